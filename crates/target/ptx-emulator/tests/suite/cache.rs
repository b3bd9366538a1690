//! The cache of the clock: lines in sectors.
use shopfloor_ptx_emulator::internals::Cache;

#[test]
fn what_was_used_last_stays_and_sectors_come_one_by_one() {
    // One set of 16 lines.
    let mut c = Cache::new(2048.0);
    assert_eq!(c.look(7, 15), (0, 0.0));
    c.fill(7, 3, 10.0);
    assert_eq!(c.look(7, 15), (3, 10.0));
    for k in 100..115 {
        c.fill(k, 15, 20.0);
    }
    assert_eq!(c.look(7, 1), (1, 10.0));
    c.fill(200, 1, 30.0);
    assert_eq!(c.look(100, 15).0, 0, "the one unused for longest went");
    assert_eq!(c.look(7, 2).0, 2);
}

#[test]
fn a_sector_goes_to_memory_once() {
    let mut c = Cache::new(4096.0);
    assert_eq!(c.write(5, 3, 0.0), 3);
    assert_eq!(c.write(5, 7, 0.0), 4);
    assert_eq!(Cache::new(0.0).write(5, 3, 0.0), 3);
}
