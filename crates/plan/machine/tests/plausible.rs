//! Measurements that cannot be are found, those that can are not.

use shopfloor_machine::{
    LevelMeasure, Machine, Measurements, NumType, OpRate, Subject, UnitClass, WorkerPoint, lookup,
};

fn zen5() -> Machine {
    lookup("zen5-2core").unwrap()
}

fn curve(one: f64, both: f64) -> Vec<WorkerPoint> {
    [(1, one), (2, both)]
        .map(|(workers, per_s)| WorkerPoint { workers, per_s })
        .into()
}

fn rate(class: UnitClass, isa: &str, lanes: u64, one: f64, both: f64) -> OpRate {
    OpRate {
        class,
        dtype: NumType::F32,
        isa: isa.into(),
        lanes,
        rate: curve(one, both),
    }
}

fn level(name: &str, read: (f64, f64), latency_s: f64) -> LevelMeasure {
    LevelMeasure {
        name: name.into(),
        bytes: 1e4,
        read: curve(read.0, read.1),
        write: curve(read.0 / 2.0, read.1 / 2.0),
        copy: curve(read.0, read.1),
        latency_s: Some(latency_s),
    }
}

/// What a quiet machine gives.
fn sound() -> Measurements {
    Measurements {
        machine: zen5().identity(),
        workers: 2,
        clock_hz: Some(4.2e9),
        handoff_s: Some(6e-8),
        wake_s: Some(2e-5),
        ops: vec![
            rate(UnitClass::Fma, "avx512", 16, 2.65e11, 5.3e11),
            rate(UnitClass::Fma, "portable", 4, 6.5e10, 1.25e11),
            rate(UnitClass::Simple, "avx512", 16, 1.35e11, 2.6e11),
            rate(UnitClass::Element, "", 16, 2.1e9, 4.2e9),
        ],
        levels: vec![
            level("L1", (5.4e11, 1.06e12), 1.2e-9),
            level("L2", (2.6e11, 5.2e11), 4e-9),
            level("L3", (1.2e11, 2.4e11), 1.2e-8),
            level("host", (3.8e10, 5.2e10), 1.6e-7),
        ],
        ..Measurements::default()
    }
}

/// What is said of `change`, of which there is one contradiction.
fn said(of: Subject, change: impl FnOnce(&mut Measurements)) -> String {
    let mut m = sound();
    change(&mut m);
    let found = m.contradictions(&zen5());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].of, of);
    // Without it nothing is wrong, and the rest is still there.
    let rest = m.without(&found);
    assert!(rest.contradictions(&zen5()).is_empty());
    let left = |m: &Measurements| m.ops.len() + m.levels.len() + usize::from(m.handoff_s.is_some());
    assert_eq!(left(&rest) + 1, left(&m));
    found[0].to_string()
}

#[test]
fn what_a_quiet_machine_gives_is_believed() {
    assert_eq!(sound().contradictions(&zen5()), []);
    // One core has the memory to itself and the higher frequency.
    let mut m = sound();
    m.levels[3].read = curve(3.8e10, 3.6e10);
    m.ops[0].rate = curve(2.7e11, 4.4e11);
    assert_eq!(m.contradictions(&zen5()), []);
    // Nobody measured the frequency: a core may run well above its nominal one.
    m.clock_hz = None;
    m.ops[0].rate = curve(3.4e11, 6.8e11);
    assert_eq!(m.contradictions(&zen5()), []);
}

#[test]
fn all_cores_are_not_slower_than_one() {
    let why = said(Subject::Rate(0), |m| m.ops[0].rate = curve(2.65e11, 1.4e11));
    assert_eq!(
        why,
        "the rate of fma f32 with avx512 of 2 cores is 140.00 G/s, less than the 265.00 G/s of one core"
    );
    let why = said(Subject::Level(1), |m| {
        m.levels[1].read = curve(2.6e11, 1.3e11)
    });
    assert!(
        why.starts_with("reading L2 of 2 cores is 130.00 G/s, less than"),
        "{why}"
    );
    // Nor more than as many times as fast.
    let why = said(Subject::Rate(3), |m| m.ops[3].rate = curve(2.1e9, 8.4e9));
    assert!(
        why.contains("more than 2 times the 2.10 G/s of one core"),
        "{why}"
    );
}

#[test]
fn no_unit_is_faster_than_its_width_and_frequency() {
    let why = said(Subject::Rate(0), |m| m.ops[0].rate = curve(4e11, 8e11));
    assert!(
        why.contains("4.20 GHz times its width are 268.80 G/s"),
        "{why}"
    );
    said(Subject::Rate(1), |m| m.ops[1].rate = curve(2e11, 4e11));
    said(Subject::Level(0), |m| {
        m.levels[0].read = curve(2e12, 4e12);
        m.levels[0].copy = curve(1e11, 2e11);
    });
    let why = said(Subject::Level(0), |m| m.levels[0].latency_s = Some(1e-10));
    assert!(why.contains("less than a cycle"), "{why}");
}

#[test]
fn farther_levels_are_not_nearer() {
    let why = said(Subject::Level(2), |m| {
        m.levels[2].read = curve(4.5e11, 9e11)
    });
    assert_eq!(why, "L3 is nearer than L2");
    said(Subject::Level(3), |m| m.levels[3].latency_s = Some(2e-9));
}

#[test]
fn numbers_are_numbers_and_waking_takes_longer_than_telling() {
    for v in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        said(Subject::Rate(2), |m| m.ops[2].rate[1].per_s = v);
        said(Subject::Level(0), |m| m.levels[0].write[0].per_s = v);
    }
    let why = said(Subject::Threads, |m| m.handoff_s = Some(2e-3));
    assert!(why.contains("a parked one after 20.00 us"), "{why}");
}

#[test]
fn a_busy_machine_is_said_to_be_one() {
    let mut m = sound();
    assert_eq!(m.disturbed(), None);
    (m.others, m.spread) = (Some(0.1), Some(0.03));
    assert_eq!(m.disturbed(), None);
    (m.others, m.spread) = (Some(1.2), Some(0.35));
    assert_eq!(
        m.disturbed().unwrap(),
        "the machine was busy while it was measured: others kept 1.2 of its 2 cores busy and repetitions differed by 35%"
    );
    let again = Measurements::from_toml(&m.to_toml().unwrap(), "x").unwrap();
    assert_eq!(again, m);
    // What was kept before there were short ones is a full one.
    let old = m.to_toml().unwrap().replace("extent = \"full\"\n", "");
    assert_eq!(Measurements::from_toml(&old, "x").unwrap(), m);
}
