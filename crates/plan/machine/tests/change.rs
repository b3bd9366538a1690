//! Changes that `what-if` asks about.

use shopfloor_machine::{Change, Machine, NumType, UnitClass, catalog, lookup};

fn changed(name: &str, text: &str) -> Machine {
    let mut m = lookup(name).unwrap();
    text.parse::<Change>().unwrap().apply(&mut m).unwrap();
    m
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs(), "{a:e} is not {b:e}");
}

#[test]
fn each_kind_of_property() {
    let a = lookup("a100").unwrap();
    let at = |m: &Machine, n: &str| m.level(n).unwrap().clone();
    near(
        at(&changed("a100", "l2=2x"), "L2").bytes.value,
        2.0 * at(&a, "L2").bytes.value,
    );
    near(
        at(&changed("a100", "L2=96MiB"), "L2").bytes.value,
        96.0 * 1048576.0,
    );
    let fast = changed("a100", "bandwidth=1.5x");
    near(fast.memory().peak(), 1.5 * a.memory().peak());
    near(fast.memory().read.at(108), 1.5 * a.memory().read.at(108));
    near(
        changed("a100", "bandwidth=3.35TB/s").memory().peak(),
        3.35e12,
    );
    near(changed("a100", "memory=141GB").memory().bytes.value, 141e9);
    near(
        changed("a100", "memory.latency=-50%")
            .memory()
            .latency_s
            .value,
        0.5 * a.memory().latency_s.value,
    );
    near(
        at(&changed("a100", "l2.bandwidth=2x"), "L2").read.all.value,
        2.0 * at(&a, "L2").read.all.value,
    );
    let rate = |m: &Machine, c, d| m.unit(c, d).unwrap().all.value;
    let t = changed("a100", "tensor=2x");
    near(rate(&t, UnitClass::Tensor, NumType::F16), 624e12);
    near(
        rate(&t, UnitClass::Fma, NumType::F32),
        rate(&a, UnitClass::Fma, NumType::F32),
    );
    let one = changed("a100", "tensor.f16=2x");
    near(rate(&one, UnitClass::Tensor, NumType::Bf16), 312e12);
    let more = changed("a100", "sms=132");
    assert_eq!(more.worker_count(), 132);
    near(
        rate(&more, UnitClass::Tensor, NumType::F16),
        312e12 * 132.0 / 108.0,
    );
    let clock = changed("a100", "clock=+10%");
    near(
        at(&clock, "L2").read.all.value,
        1.1 * at(&a, "L2").read.all.value,
    );
    near(clock.memory().peak(), a.memory().peak());
    near(changed("a100", "launch=2us").costs.launch_s.value, 2e-6);
    near(
        changed("a100", "overhead=0.5x").costs.step_s.value,
        0.5 * a.costs.step_s.value,
    );
    let link = changed("a100", "pcie=2x");
    near(
        link.links[0].bandwidth.value,
        2.0 * a.links[0].bandwidth.value,
    );
    near(
        at(&link, "host").read.all.value,
        2.0 * at(&a, "host").read.all.value,
    );
    let shared = changed("a100", "shared=2x");
    assert_eq!(shared.limits.shared_per_cta.unwrap().value, 2 * 166_912);
    let unified = changed("apple m2 pro 19c", "bandwidth=2x");
    near(
        at(&unified, "host").read.all.value,
        at(&unified, "device").read.all.value,
    );
}

#[test]
fn every_machine_takes_the_common_changes() {
    for e in catalog() {
        for text in [
            "bandwidth=1.5x",
            "memory=2x",
            "clock=+10%",
            "workers=2x",
            "overhead=0",
            "latency=0.5x",
        ] {
            let mut m = e.machine.clone();
            let c: Change = text.parse().unwrap();
            c.apply(&mut m)
                .unwrap_or_else(|why| panic!("{}: {why}", e.machine.name));
            assert_ne!(m, e.machine, "{text}");
        }
    }
}

#[test]
fn slips_are_said() {
    for bad in [
        "l2",
        "l2=",
        "l2=twice",
        "=2x",
        "l2=0x",
        "l2=-3x",
        "l2=1e99",
        "l2=2xx",
        "l2=-200%",
        "bandwidth=3parsec",
    ] {
        let e = bad.parse::<Change>().unwrap_err();
        assert!(e.contains("l2=2x") && e.contains(bad), "{bad}: {e}");
    }
    let mut a = lookup("a100").unwrap();
    let before = a.clone();
    for unknown in [
        "l4=2x",
        "l2.colour=2x",
        "tensor.f99=2x",
        "xgmi=2x",
        "launch.x=1us",
    ] {
        let e = unknown
            .parse::<Change>()
            .unwrap()
            .apply(&mut a)
            .unwrap_err();
        assert!(e.contains("L2") && e.contains("bandwidth"), "{e}");
        assert_eq!(a, before);
    }
    let e = "memory=0"
        .parse::<Change>()
        .unwrap()
        .apply(&mut a)
        .unwrap_err();
    assert!(e.contains("memory=0"), "{e}");
    assert_eq!(a, before);
}
