//! Devices as a type, and kinds of errors.

use shopfloor::{Cancel, DType, Device, Error, ErrorKind, Session, Tensor, inputs};
use std::path::{Path, PathBuf};

fn digits() -> PathBuf {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models");
    models.join("digits_cnn/model.onnx")
}

#[test]
fn every_name_is_a_device_and_back() {
    let gpu = |s: &str| Device::Emulated { gpu: s.into() };
    for (name, device, again) in [
        ("cpu", Device::Cpu, "cpu"),
        ("cuda", Device::Cuda { index: 0 }, "cuda:0"),
        ("cuda:3", Device::Cuda { index: 3 }, "cuda:3"),
        ("wgpu", Device::Wgpu { adapter: None }, "wgpu"),
        ("emulated", gpu("a100"), "emulated:a100"),
        ("emulated:t4,sms=4", gpu("t4,sms=4"), "emulated:t4,sms=4"),
        (
            "cpu+cuda",
            Device::Cuda { index: 0 }.with_cpu(),
            "cpu+cuda:0",
        ),
        ("emulated:t4+cpu", gpu("t4").with_cpu(), "cpu+emulated:t4"),
    ] {
        let read: Device = name.parse().unwrap();
        assert_eq!((&read, read.to_string().as_str()), (&device, again));
        assert_eq!(again.parse::<Device>().unwrap(), device);
    }
    let llvm = Some("llvmpipe".to_string());
    let named: Device = "wgpu:llvmpipe".parse().unwrap();
    assert_eq!(named, Device::Wgpu { adapter: llvm });
    for (name, part) in [
        ("", "there is no device"),
        ("gpu", "there is no device"),
        ("cpu:1", "there is no device"),
        ("cuda:-1", "cuda:0"),
        ("cuda:99999999999", "cuda:0"),
        ("cpu+cpu", "cpu+cuda"),
        ("h100", "is planned for and does not run"),
    ] {
        let e = name.parse::<Device>().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Usage, "{name}");
        assert!(e.to_string().contains(part), "{name}: {e}");
    }
}

#[test]
fn a_session_takes_a_device_or_its_name() {
    let x = Tensor::zeros(DType::F32, &[1, 1, 8, 8]).unwrap();
    let run = |s: Session| s.run(inputs!["image" => &x]).unwrap();
    let of = || Session::builder().with_threads(1);
    let cpu = run(of()
        .with_device(Device::Cpu)
        .commit_from_file(digits())
        .unwrap());
    let named = run(of().with_device("cpu").commit_from_file(digits()).unwrap());
    assert_eq!(cpu, named);
    let gpu = Device::Cuda { index: 4000 };
    let e = of()
        .with_device(gpu)
        .commit_from_file(digits())
        .err()
        .unwrap();
    assert!(e.to_string().contains("cuda:4000"), "{e}");
}

#[test]
fn inputs_may_be_given_by_their_places() {
    let s = Session::builder().with_threads(1);
    let s = s.commit_from_file(digits()).unwrap();
    let x = Tensor::zeros(DType::F32, &[2, 1, 8, 8]).unwrap();
    let want = s.run(inputs!["image" => &x]).unwrap();
    assert_eq!(s.run(inputs![&x]).unwrap(), want);
    let call = shopfloor::Call::default();
    assert_eq!(s.run_call(inputs![x.clone()], call).unwrap(), want);
    let e = s.run(inputs![&x, &x]).unwrap_err();
    assert!(e.to_string().contains("input 1 has no name"), "{e}");
    assert_eq!(s.run(inputs![]).unwrap_err().kind(), ErrorKind::Input);
}

#[test]
fn odd_options_are_refused_and_nothing_panics() {
    let x = Tensor::zeros(DType::F32, &[1, 1, 8, 8]).unwrap();
    let run = |b: shopfloor::SessionBuilder| -> Result<(), shopfloor::Error> {
        let s = b.commit_from_file(digits())?;
        s.run(inputs!["image" => &x]).map(drop)
    };
    let of = || Session::builder().with_threads(1);
    let odd = [
        of().with_dim("batch", 5, 1),
        of().with_dim("batch", -3, 2),
        of().with_dim("batch", i64::MIN, i64::MAX),
        of().with_dim("batch", 0, i64::MAX),
        of().with_dim("batch", 0, 1 << 40),
        of().with_dim("batch", 1 << 40, 1 << 40),
        of().with_shape("image", &[usize::MAX, 1, 8, 8]),
        of().with_queue(0, 0),
        of().with_weight(f64::NAN),
        of().with_weight(-1.0),
        of().with_memory_limit(0),
        of().with_workers(0),
        of().with_threads(0),
        of().with_deadline(std::time::Duration::ZERO),
    ];
    // The first four are no ranges.
    for (i, b) in odd.into_iter().enumerate() {
        // Some of them mean something; what matters is that each is answered.
        let e = run(b).err().map(|e| e.to_string());
        assert!(
            e.as_ref()
                .is_none_or(|e| !e.is_empty() && !e.contains('\n')),
            "{i}: {e:?}"
        );
        let range = e.is_some_and(|e| e.contains("'batch' cannot range"));
        assert!(i > 3 || range, "{i}");
    }
}

#[test]
fn errors_have_kinds() {
    let kind = |s: Result<Session, shopfloor::Error>| s.err().unwrap().kind();
    let of = || Session::builder().with_threads(1);
    assert_eq!(
        kind(of().commit_from_file("/no/such/model.onnx")),
        ErrorKind::Io
    );
    assert_eq!(
        kind(of().commit_from_memory(vec![1u8; 40])),
        ErrorKind::Damaged
    );
    assert_eq!(
        kind(of().with_dim("nobody", 1, 2).commit_from_file(digits())),
        ErrorKind::Usage
    );
    let s = of().commit_from_file(digits()).unwrap();
    let mut dims = shopfloor::DimBox::new();
    dims.insert("batch", 3, 2);
    assert_eq!(s.plan(&dims).unwrap_err().kind(), ErrorKind::Usage);
    assert!(s.stream(&dims).is_err());
    let mut dims = shopfloor::DimBox::new();
    dims.insert("bach", 1, 2);
    let e = s.stream(&dims).err().unwrap();
    assert!(
        e.kind() == ErrorKind::Usage && e.to_string().contains("'bach'"),
        "{e}"
    );
    let mut idle = s.stream(&shopfloor::DimBox::new()).unwrap();
    let e: Error = idle.receive().unwrap_err().into();
    assert_eq!(e.kind(), ErrorKind::Usage);
    let x = Tensor::zeros(DType::F32, &[1, 1, 8, 8]).unwrap();
    let flat = Tensor::zeros(DType::F32, &[64]).unwrap();
    assert_eq!(
        s.run(inputs!["x" => &x]).unwrap_err().kind(),
        ErrorKind::Input
    );
    assert_eq!(
        s.run(inputs!["image" => flat]).unwrap_err().kind(),
        ErrorKind::Input
    );
    let cancel = Cancel::new();
    cancel.cancel();
    let call = shopfloor::Call {
        cancel: Some(&cancel),
        deadline: None,
    };
    let e = s.run_call(inputs!["image" => &x], call).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Cancelled);
    s.drain();
    assert_eq!(
        s.run(inputs!["image" => &x]).unwrap_err().kind(),
        ErrorKind::Refused
    );
}
