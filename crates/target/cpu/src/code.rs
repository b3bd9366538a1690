//! What a step runs on a CPU, by name and address: nothing is run here.
use crate::exec::{compile, listed};
use crate::isa::Isa;
use crate::ukr::kernels;
use kernel::TileProgram;
use layout::DimBox;
use plan::Params;

pub use crate::exec::listed::Called;

/// The functions that `program` calls on a CPU with `isa` for any dims of the box, in the order of its
/// operations: micro-kernels, loops over rows and copies.
///
/// # Errors
/// What this backend cannot run of the program, or an instruction set whose code is not in this build.
pub fn called(program: &TileProgram, dims: &DimBox, isa: Isa) -> Result<Vec<Called>, String> {
    let table = kernels(isa);
    if table.isa != isa {
        return Err(format!(
            "this program was built for another processor: it has no code for {isa}"
        ));
    }
    let k = program.kernel();
    let args: Vec<u32> = (0..k.operands.len() as u32).collect();
    let mut params = Params::within(dims);
    let compiled = compile::compile(program, &args, &mut params, dims, table)?;
    Ok(listed::listed(&compiled, k.tiles.len()))
}
