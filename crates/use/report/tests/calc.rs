//! The calculators' tables: what they say, and that they keep within a hundred columns.

use machine::calc::{Batches, Launch};
use shopfloor_report::Style;
use shopfloor_report::calc::{
    AccessInput, AccessView, OccupancyView, TensorView, TransferView, hierarchy, machine_comparison,
};

const STYLE: Style = Style {
    width: 100,
    color: false,
};

fn narrow(text: &str, what: &str) {
    for l in text.lines() {
        assert!(l.chars().count() <= 100, "{what}: {l}");
    }
}

#[test]
fn every_machine_is_drawn() {
    for e in machine::catalog() {
        let m = &e.machine;
        let text = hierarchy(m, STYLE);
        narrow(&text, &m.name);
        for l in &m.levels {
            assert!(text.contains(&l.name), "{}: {text}", m.name);
        }
        if let Some(k) = m.links.iter().find(|k| k.to == "host") {
            assert!(text.contains(&format!("|| {}", k.name)), "{text}");
        }
    }
    let two = ["a100", "rtx 4090"].map(|n| machine::lookup(n).unwrap());
    let text = machine_comparison(&two, STYLE);
    assert!(
        text.contains("(0.49x)") && text.contains("ridge f32"),
        "{text}"
    );
    narrow(&text, "compare");
}

#[test]
fn every_pattern_is_drawn() {
    for width in [1, 2, 4, 8, 16] {
        for stride in [0, 1, 2, 3, 5, 31, 32, 33, 1023, 1024, 1 << 40] {
            let input = AccessInput {
                lanes: 64,
                width,
                stride,
                ..AccessInput::default()
            };
            let v = AccessView::new(&input).unwrap();
            narrow(&v.render(STYLE), &v.pattern);
        }
    }
    let far = AccessInput {
        lanes: 32,
        width: 4,
        stride: u64::MAX,
        ..AccessInput::default()
    };
    assert!(AccessView::new(&far).is_err());
}

#[test]
fn reasons_are_given() {
    let m = machine::lookup("a100").unwrap();
    let launch = Launch {
        threads: 256,
        registers: 64,
        shared: 48 * 1024,
        dynamic_shared: 0,
        opt_in: false,
        carveout: None,
        barriers: 1,
    };
    let v = OccupancyView::new(&m.name, &m.limits, Some(&m), &launch, 16).unwrap();
    assert_eq!((v.blocks_per_sm, v.limits.barriers), (3, -1));
    let text = v.render(STYLE);
    narrow(&text, "occupancy");
    for part in [
        "of the SM's 164 KiB, so 3 fit",
        "gives 4 CTAs",
        "Little's law",
        "enough",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = serde_json::to_value(&v).unwrap();
    assert_eq!(json["limits"]["smem"], 3);
    let t = TransferView::new(&m.name, 4_000_000, &Batches::on(&m, 4e6, 100, 1e-5));
    let text = t.render(STYLE);
    narrow(&text, "transfer");
    assert!(text.contains("one by one from"), "{text}");
    for op in [
        "matmul:4096x4096x4096:f16",
        "matmul:17x9x33:f32",
        "matmul:1x1x1:i4",
    ] {
        let t = TensorView::new(&m, &op.parse().unwrap());
        assert!(!t.explanation.is_empty());
        narrow(&t.render(STYLE), op);
    }
}
