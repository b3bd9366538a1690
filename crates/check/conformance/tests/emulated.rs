//! PTX of every family, run on the emulator: what it does, and that nothing is touched that is not
//! there, or without the barriers it takes.
use emit::ptx;
use shopfloor_conformance::{
    Emulated, Rng, attending, boxed_windows, cases, copied_ahead, in_clusters, run, scalars, seeds,
    special, special_images,
};

#[test]
fn every_family_agrees_with_the_reference() {
    for out in crate::part_of_seeds(&Emulated::default(), 3000, 36, 4) {
        assert!(out.total() > 4, "{:?}", out.agreed);
        assert!(out.agreed.len() >= 3, "{:?}", out.agreed);
    }
}

/// What matrix instructions are for, those of warpgroups too.
#[test]
fn matrix_instructions_agree_with_the_reference() {
    if !testing::turn("emulated: matrix_instructions_agree_with_the_reference") {
        return;
    }
    let before = cases(&mut Rng::new(0)).len() as u64;
    for seed in testing::Share::cases(20, 2) {
        let out = run(
            &Emulated::on("sm_90a"),
            &|case| case >= before,
            9000 + seed,
            1,
        );
        let out = out.unwrap_or_else(|e| panic!("{e}"));
        println!("{:?}, refused {:?}", out.agreed, out.refused);
        assert!(out.total() > 3, "{:?}", out.agreed);
    }
}

#[test]
fn factors_that_warps_copy_agree_with_the_reference() {
    let last =
        copied_ahead(&Emulated::on("sm_90a"), 9100, seeds(24)).unwrap_or_else(|e| panic!("{e}"));
    println!("up to seed {last}");
}

#[test]
fn clusters_agree_with_the_reference() {
    let first = 1000 * testing::Share::cases(20, 1).start;
    let last = in_clusters(&Emulated::on("sm_90a"), 400_000 + first, seeds(16));
    let last = last.unwrap_or_else(|e| panic!("{e}"));
    println!("from seed {} up to {last}", 400_000 + first);
}

#[test]
fn windows_that_are_boxes_agree_with_the_reference() {
    let first = 1000 * testing::Share::cases(20, 1).start;
    let last = boxed_windows(&Emulated::on("sm_90a"), first, seeds(8));
    println!("up to seed {}", last.unwrap_or_else(|e| panic!("{e}")));
}

#[test]
fn attention_by_warpgroups_agrees_with_the_reference() {
    let first = 10 * testing::Share::cases(20, 1).start;
    let subject = Emulated::on("sm_90a");
    let last = attending(&subject, 9700 + first, seeds(6)).unwrap_or_else(|e| panic!("{e}"));
    println!("up to seed {last}");
}

#[test]
fn products_in_parts_give_what_multiply_adds_give() {
    let done = special(&Emulated::on("sm_90a"), 7100, 4).unwrap_or_else(|e| panic!("{e}"));
    println!("{done} programs");
    assert!(done > 24, "{done}");
}

#[test]
fn products_of_parts_that_lie_as_images_give_what_multiply_adds_give() {
    if !testing::turn("products_of_parts_that_lie_as_images_give_what_multiply_adds_give") {
        return;
    }
    let done = special_images(&Emulated::on("sm_90a"), 7400, 2).unwrap_or_else(|e| panic!("{e}"));
    println!("{done} programs");
    assert!(done > 18, "{done}");
}

#[test]
fn scalar_operations_are_right_at_the_edges_of_their_types() {
    let target = ptx::target("sm_80");
    let share = testing::Share::of_run(12);
    let done = scalars(
        &Emulated::on("sm_80"),
        &target,
        &target.dtypes,
        4000,
        &mut |form| share.has(&form.to_string()),
    );
    let done = done.unwrap_or_else(|e| panic!("{share}: {e}"));
    println!("{done} operations");
    assert!(done > 22, "{done}");
}
