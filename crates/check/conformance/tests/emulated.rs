//! PTX of every family, run on the emulator: what it does, and that nothing is touched that is not
//! there, or without the barriers it takes.
use emit::ptx;
use shopfloor_conformance::{Emulated, run, scalars, seeds, special};

#[test]
fn every_family_agrees_with_the_reference() {
    let own = testing::Share::cases(36, 1);
    let count = seeds((own.end - own.start) as usize);
    let out = run(&Emulated::default(), &|_| true, 3000 + own.start, count);
    let out = out.unwrap_or_else(|e| panic!("{e}"));
    println!("{:?}, refused {:?}", out.agreed, out.refused);
    assert!(out.total() > 15, "{:?}", out.agreed);
    assert!(out.agreed.len() >= 7, "{:?}", out.agreed);
}

#[test]
fn products_in_parts_give_what_multiply_adds_give() {
    let done = special(&Emulated::on("sm_80"), 7100, 4).unwrap_or_else(|e| panic!("{e}"));
    println!("{done} programs");
    assert!(done > 8, "{done}");
}

#[test]
fn scalar_operations_are_right_at_the_edges_of_their_types() {
    let target = ptx::target("sm_80");
    let share = testing::Share::of_run(4);
    let done = scalars(
        &Emulated::on("sm_80"),
        &target,
        &target.dtypes,
        4000,
        &mut |form| share.has(&form.to_string()),
    );
    let done = done.unwrap_or_else(|e| panic!("{share}: {e}"));
    println!("{done} operations");
    assert!(done > 90, "{done}");
}
