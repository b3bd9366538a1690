//! The conformance suite through WGSL, on the same GPU where Vulkan has it.
use crate::lines::{fact, left};
use crate::options::Options;
use crate::parts::conformance::suite;
use conformance::{Failure, OnDevice, Subject};
use device::Device;
use kernel::TileProgram;
use tensor::Tensor;
use webgpu::WebGpuDevice;

/// A software driver compiles a longer text for seconds.
const SHORT: usize = 12 << 10;

/// A device that is given short texts where it is slow with others.
struct Given<'a> {
    on: OnDevice<'a>,
    software: bool,
}

impl Subject for Given<'_> {
    fn name(&self) -> String {
        self.on.name()
    }

    fn kind(&self) -> kernel::TargetKind {
        self.on.kind()
    }

    fn run(
        &self,
        program: &TileProgram,
        symbols: &[(&str, i64)],
        buffers: &[Tensor],
    ) -> Result<Vec<Tensor>, Failure> {
        if self.software {
            let arrays = vec![emit::wgsl::Array::Work; program.kernel().operands.len()];
            let text = emit::wgsl::emit(program, &arrays);
            if text.is_ok_and(|t| t.text.len() > SHORT) {
                return Err(Failure::Refused("left to a GPU".into()));
            }
        }
        self.on.run(program, symbols, buffers)
    }
}

/// The suite on the adapter that is the GPU; on any where the GPU is emulated.
pub fn run(o: &Options) -> Result<(), String> {
    let all = webgpu::adapters();
    let own = |n: &&String| o.emulated() || n.to_lowercase().contains("nvidia");
    let Some(name) = all.iter().find(own) else {
        let there = match all.is_empty() {
            true => "no Vulkan driver answers".into(),
            false => format!("Vulkan has {} alone", all.join(", ")),
        };
        let hint = "in a container NVIDIA_DRIVER_CAPABILITIES must have 'graphics'";
        left("WGSL on this GPU", format!("{there}; {hint}"));
        return Ok(());
    };
    let d = WebGpuDevice::open(Some(name)).map_err(|e| e.to_string())?;
    fact("adapter", d.name());
    let software = name.to_lowercase().contains("llvmpipe");
    let given = Given {
        on: OnDevice(&d),
        software,
    };
    let most = if software { 1 } else { 100_000 };
    suite(o, &given, most, &|| true)
}
