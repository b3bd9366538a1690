//! Every family on whatever GPU answers; software ones (lavapipe) count.
use device::Device;
use shopfloor_conformance::{OnDevice, run};
use std::sync::OnceLock;
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

#[test]
fn every_family_agrees_with_the_reference() {
    let Some(d) = device() else { return };
    let out = run(&OnDevice(d), None, 5000, 3).unwrap_or_else(|e| panic!("{e}"));
    println!("{:?}, refused {:?}", out.agreed, out.refused.len());
    assert!(out.total() > 40, "{out:?}");
    assert!(out.agreed.len() >= 7, "{:?}", out.agreed);
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
