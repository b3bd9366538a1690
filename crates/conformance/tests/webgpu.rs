//! Every family on whatever GPU answers; software ones (lavapipe) count.
use device::Device;
use kernel::TileProgram;
use shopfloor_conformance::{Failure, OnDevice, Subject, run, seeds};
use std::sync::OnceLock;
use tensor::Tensor;
use webgpu::WebGpuDevice;

/// The device, or `None` where no adapter answers: said once, by name.
fn device() -> Option<&'static WebGpuDevice> {
    static ONE: OnceLock<Option<WebGpuDevice>> = OnceLock::new();
    ONE.get_or_init(|| match WebGpuDevice::open(None) {
        Ok(d) => {
            println!("on {}", d.name());
            Some(d)
        }
        Err(e) => {
            println!("left out: what needs a GPU: {e}");
            None
        }
    })
    .as_ref()
}

/// A device given short texts only, unless a campaign asks for all: a software driver compiles a long
/// one for seconds.
struct Short<'a>(OnDevice<'a>);

/// Bytes of WGSL.
const SHORT: usize = 32 << 10;

impl Subject for Short<'_> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn kind(&self) -> kernel::TargetKind {
        self.0.kind()
    }

    fn run(
        &self,
        program: &TileProgram,
        symbols: &[(&str, i64)],
        buffers: &[Tensor],
    ) -> Result<Vec<Tensor>, Failure> {
        let arrays = vec![emit::wgsl::Array::Work; program.kernel().operands.len()];
        let text = emit::wgsl::emit(program, &arrays);
        match text.map_or(0, |t| t.text.len()) {
            n if n > SHORT && seeds(1) == 1 => Err(Failure::Refused("left to a campaign".into())),
            _ => self.0.run(program, symbols, buffers),
        }
    }
}

#[test]
fn every_family_agrees_with_the_reference() {
    let Some(d) = device() else { return };
    let out = run(&Short(OnDevice(d)), None, 5000, seeds(10)).unwrap_or_else(|e| panic!("{e}"));
    println!("{:?}, refused {:?}", out.agreed, out.refused);
    assert!(out.total() > 250, "{out:?}");
    assert!(out.agreed.len() >= 8, "{:?}", out.agreed);
}

#[test]
fn an_unknown_adapter_is_named_beside_those_there_are() {
    if device().is_none() {
        return;
    }
    let e = WebGpuDevice::open(Some("no such adapter"))
        .err()
        .map(|e| e.to_string());
    let e = e.expect("there is none");
    assert!(
        e.contains("no such adapter") && e.contains("there are: "),
        "{e}"
    );
}
