//! From the names of sources to machines.
use machine::Machine;
use shopfloor_predict::internals::TAKEN_FOR;
use shopfloor_predict::machine_of;

#[test]
fn a_name_is_a_card_or_nothing() {
    for (asked, found) in [
        ("V100-PCIE-32GB", "V100-PCIE-32GB"),
        ("P100", "P100-SXM2-16GB"),
        ("A100-80GB", "A100-SXM4-80GB"),
        ("MI100", "MI100"),
        ("MI250", "MI250, one of 2 devices"),
    ] {
        assert_eq!(machine_of(asked).unwrap().name, found);
    }
    for none in ["RTX-30", "TITAN-BLACK-2", "A", ""] {
        assert!(machine_of(none).is_err(), "{none}");
    }
}

#[test]
fn a_device_of_a_board_has_its_part() {
    let (whole, one) = (
        machine::lookup("MI250").unwrap(),
        machine_of("MI250").unwrap(),
    );
    assert_eq!(2 * one.worker_count(), whole.worker_count());
    assert_eq!(2.0 * one.memory().peak(), whole.memory().peak());
    let rate = |m: &Machine| m.units[0].at(m.worker_count());
    assert!((2.0 * rate(&one) / rate(&whole) - 1.0).abs() < 0.01);
    one.check().unwrap();
}

#[test]
fn every_card_taken_for_another_is_there() {
    for (name, card) in TAKEN_FOR {
        assert!(machine::lookup(card).is_ok(), "{name} stands for {card}");
    }
}
