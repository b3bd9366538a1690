//! The interpreter of [`emit::simt`] as a subject of the suite.
use crate::{Failure, Subject};
use emit::simt::Program;
use emit::simt::run::{Memory, run as run_threads};
use expr::Scalar;
use kernel::{OperandId, Role, TargetKind, TileProgram};
use tensor::Tensor;

/// Elements of every operand's buffer.
struct Buffers<'a>(&'a mut [Tensor]);

impl Buffers<'_> {
    fn place(&self, operand: OperandId, at: i64, verb: &str) -> Result<usize, String> {
        let n = self.0[operand as usize].len();
        let at_place = usize::try_from(at).ok().filter(|&a| a < n);
        at_place.ok_or_else(|| format!("is {verb} at {at} of {n}"))
    }
}

impl Memory for Buffers<'_> {
    fn load(&mut self, operand: OperandId, at: i64) -> Result<Scalar, String> {
        let at = self.place(operand, at, "read")?;
        let b = &self.0[operand as usize];
        Ok(match b.dtype().is_float() {
            true => Scalar::Float(b.get_f64(at)),
            false => Scalar::Int(b.get_i64(at)),
        })
    }

    fn store(&mut self, operand: OperandId, at: i64, v: Scalar) -> Result<(), String> {
        let at = self.place(operand, at, "written")?;
        let b = &mut self.0[operand as usize];
        match v {
            Scalar::Float(x) => b.set_f64(at, x),
            Scalar::Int(x) => b.set_i64(at, x),
        }
        Ok(())
    }
}

/// Runs every task of `p` on `buffers`, one per operand; `lookup` gives the symbols' values.
///
/// # Errors
/// Says what rule was broken and where.
pub fn run(
    p: &Program,
    lookup: &dyn Fn(&str) -> Option<i64>,
    buffers: &mut [Tensor],
) -> Result<(), String> {
    run_threads(p, lookup, &mut Buffers(buffers), 0..i64::MAX, u64::MAX).map(|_| ())
}

/// The interpreter as a subject of the suite.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interpreter {
    /// Threads that can exchange values directly, 0 for none.
    pub shuffle: u32,
    /// Whether there are matrix instructions, and copies beside what follows.
    pub matrix: bool,
}

impl Subject for Interpreter {
    fn name(&self) -> String {
        format!("interpreter of threads, shuffles over {}", self.shuffle)
    }

    fn kind(&self) -> TargetKind {
        match self.matrix {
            true => TargetKind::Ptx,
            false => TargetKind::Wgsl,
        }
    }

    fn run(
        &self,
        program: &TileProgram,
        symbols: &[(&str, i64)],
        buffers: &[Tensor],
    ) -> Result<Vec<Tensor>, Failure> {
        let caps = emit::simt::Caps {
            shuffle: self.shuffle,
            copies: self.matrix,
            warpgroups: self.matrix,
            dependents: self.matrix,
        };
        let p = emit::simt::lower(program, caps).map_err(|e| Failure::Refused(e.to_string()))?;
        let mut all = buffers.to_vec();
        let lookup = |s: &str| symbols.iter().find(|x| x.0 == s).map(|x| x.1);
        run(&p, &lookup, &mut all).map_err(Failure::Broken)?;
        let written = program.kernel().operands.iter().zip(all);
        Ok(written
            .filter(|(o, _)| o.role == Role::Write)
            .map(|(_, t)| t)
            .collect())
    }
}
