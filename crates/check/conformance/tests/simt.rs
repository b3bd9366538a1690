//! The lowering to threads, without any GPU.
use emit::wgsl;
use shopfloor_conformance::{
    Rng, cases, copied_ahead, run, scalars, seeds, simt::Interpreter, special, special_images,
};

/// Refusals for these reasons are random schedules that ask for what cannot be: a register tile read
/// by threads that do not hold it, or one of an unknown size.
fn expected(why: &str) -> bool {
    ["'register tile'", "'shared tile'", "'place'", "'spread'"]
        .iter()
        .any(|r| why.contains(r))
}

fn check(subject: Interpreter, seed: u64) {
    for out in crate::part_of_seeds(&subject, seed, 200, 3) {
        for (why, n) in &out.refused {
            assert!(expected(why), "{n} times: {why}");
        }
        assert!(out.total() > 6, "{:?}", out.agreed);
        assert!(out.agreed.len() >= 3, "{:?}", out.agreed);
    }
}

fn shuffling(shuffle: u32) -> Interpreter {
    Interpreter {
        shuffle,
        matrix: false,
    }
}

#[test]
fn every_family_agrees_with_the_reference() {
    check(shuffling(0), 1);
}

#[test]
fn shuffles_give_the_same() {
    if !testing::turn("shuffles_give_the_same", 2) {
        return;
    }
    check(shuffling(32), 1000);
}

#[test]
fn matrix_instructions_and_copies_keep_to_the_rules() {
    if !testing::turn("matrix_instructions_and_copies_keep_to_the_rules", 3) {
        return;
    }
    let subject = Interpreter {
        shuffle: 32,
        matrix: true,
    };
    check(subject, 5000);
}

/// What matrix instructions are for, more often than other families are.
#[test]
fn matrix_instructions_agree_with_the_reference() {
    let subject = Interpreter {
        shuffle: 32,
        matrix: true,
    };
    let before = cases(&mut Rng::new(0)).len() as u64;
    for seed in testing::Share::cases(20, 2) {
        let out = run(&subject, &|case| case >= before, 9000 + seed, 1);
        let out = out.unwrap_or_else(|e| panic!("{e}"));
        println!("{:?}, refused {:?}", out.agreed, out.refused);
        assert!(out.total() > 3, "{:?}", out.agreed);
    }
}

#[test]
fn factors_that_warps_copy_agree_with_the_reference() {
    let subject = Interpreter {
        shuffle: 32,
        matrix: true,
    };
    let last = copied_ahead(&subject, 9200, seeds(24)).unwrap_or_else(|e| panic!("{e}"));
    println!("up to seed {last}");
}

#[test]
fn products_in_parts_give_what_multiply_adds_give() {
    let subject = Interpreter {
        shuffle: 32,
        matrix: true,
    };
    let done = special(&subject, 7000, 4).unwrap_or_else(|e| panic!("{e}"));
    println!("{done} programs");
    assert!(done > 8, "{done}");
}

#[test]
fn products_of_parts_that_lie_as_images_give_what_multiply_adds_give() {
    let subject = Interpreter {
        shuffle: 32,
        matrix: true,
    };
    let done = special_images(&subject, 7300, 2).unwrap_or_else(|e| panic!("{e}"));
    println!("{done} programs");
    assert!(done > 6, "{done}");
}

#[test]
fn scalar_operations_are_right_at_the_edges_of_their_types() {
    let target = wgsl::target(wgsl::Limits::default());
    let subject = shuffling(0);
    let share = testing::Share::of_run(12);
    let mut picks = |form: kernel::Form| share.has(&form.to_string());
    let done = scalars(&subject, &target, &target.dtypes, 4000, &mut picks);
    let done = done.unwrap_or_else(|e| panic!("{share}: {e}"));
    println!("{done} operations");
    assert!(done > 17, "{done}");
}
