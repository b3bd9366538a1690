//! Parts of machines.
use shopfloor_machine::Machine;

#[test]
fn a_slice_has_its_share_and_a_worker_no_more_than_that() {
    let m = Machine::load("a100").unwrap();
    let s = m.slice(4);
    assert_eq!(s.worker_count(), 4);
    for (a, b) in m.levels.iter().zip(&s.levels) {
        let own = a.read.per_worker.value.min(b.read.all.value);
        assert_eq!(b.read.per_worker.value, own, "{}", a.name);
        assert!(b.read.at(4) <= b.read.all.value, "{}", a.name);
        let f = b.read.all.value / a.read.all.value;
        assert!((f - 4.0 / 108.0).abs() < 1e-12, "{}", a.name);
    }
    let l2 = |m: &Machine| m.level("L2").unwrap().bytes.value;
    assert!((l2(&s) / l2(&m) - 4.0 / 108.0).abs() < 1e-12);
    assert_eq!(
        s.level("shared").unwrap().bytes,
        m.level("shared").unwrap().bytes
    );
    assert_eq!(m.slice(0).worker_count(), 1);
    assert_eq!(m.slice(1000), m);
}
