//! A calibration on emulated GPUs: every kernel of it runs, and what it says is what the emulated clock
//! was made of.
use cuda::Driver;
use cuda::calibrate::{CalibrateOptions, calibrate};
use machine::{Machine, Source};
use shopfloor_cuda_emulated::{Checks, EmulatedDriver, EmulatedGpu};

fn check(name: &str) {
    let gpu = EmulatedGpu::named(name).unwrap().with_sms(4);
    let info = gpu.info.clone();
    let driver = EmulatedDriver::new(vec![gpu.with_checks(Checks::none())]);
    let context = driver.open(0).unwrap();
    let base = Machine::load(name).unwrap();
    let mut said = vec![];
    let out = calibrate(
        &context,
        &base,
        &CalibrateOptions::default(),
        &mut |share, what| {
            assert!((0.0..1.0).contains(&share));
            said.push(what.to_string());
        },
    );
    let out = out.unwrap();
    for f in &out.figures {
        println!(
            "{name}: {} {:.3e} {}, described {:?}",
            f.what, f.measured, f.unit, f.described
        );
    }
    assert_eq!(out.failed, Vec::<String>::new());
    assert!(said.len() >= 10, "{said:?}");
    assert!(
        out.figures
            .iter()
            .all(|f| f.measured.is_finite() && f.measured > 0.0)
    );
    let m = &out.machine;
    m.check().unwrap();
    let text = m.to_toml().unwrap();
    assert_eq!(&Machine::from_toml(&text, "measured.toml").unwrap(), m);
    // Four SMs reach the memory's rate, and no more.
    let bus = 2e3 * f64::from(info.memory_clock_khz) * f64::from(info.bus_bits) / 8.0;
    let read = m.level("device").unwrap().read.all;
    assert_eq!(read.source, Source::Measured);
    assert!(
        (0.5..=1.05).contains(&(read.value / bus)),
        "{:e} of {bus:e}",
        read.value
    );
    for s in [m.costs.launch_s, m.costs.step_s, m.costs.handoff_s] {
        assert!(
            s.source == Source::Measured && (1e-7..1e-4).contains(&s.value),
            "{s:?}"
        );
    }
    let ways = m.costs.ways.clone().unwrap();
    for s in [ways.launch_gap_s, ways.graph_s, ways.graph_node_s] {
        assert!(
            s.source == Source::Measured && (1e-7..1e-4).contains(&s.value),
            "{s:?}"
        );
    }
    assert!(ways.graph_node_s.value < ways.launch_gap_s.value);
    let link = m.links.iter().find(|l| l.to == "host").unwrap();
    assert_eq!(link.bandwidth.source, Source::Measured);
}

#[test]
fn an_a100_is_measured() {
    check("a100");
}

#[test]
fn an_h100_is_measured() {
    check("h100");
}

#[test]
fn a_t4_is_measured() {
    check("t4");
}
