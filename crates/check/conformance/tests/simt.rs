//! The lowering to threads, without any GPU.
use emit::simt::ir::{Inst, Warpgroup};
use emit::simt::{self, Caps, Program};
use emit::wgsl;
use kernel::{Mapping, TileProgram};
use shopfloor_conformance::{
    Failure, InParts, Rng, attending, boxed_windows, cases, clustered_product, copied_ahead,
    in_clusters, in_parts, matrix_schedules, parts_in_clusters, run, scalars, seeds,
    simt as threads, simt::Interpreter, special, special_images, warpgroup_product, with_clusters,
    with_image,
};
use std::sync::Arc;
use tensor::Tensor;

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
    if !testing::turn("shuffles_give_the_same") {
        return;
    }
    check(shuffling(32), 1000);
}

#[test]
fn matrix_instructions_and_copies_keep_to_the_rules() {
    if !testing::turn("matrix_instructions_and_copies_keep_to_the_rules") {
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
    for seed in testing::Share::cases(40, 1) {
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
fn clusters_agree_with_the_reference() {
    let subject = Interpreter {
        shuffle: 32,
        matrix: true,
    };
    let first = 1000 * testing::Share::cases(20, 1).start;
    let last = in_clusters(&subject, 300_000 + first, seeds(8)).unwrap_or_else(|e| panic!("{e}"));
    println!("from seed {} up to {last}", 300_000 + first);
}

/// What a target with all that threads do together can do.
const MATRIX: Caps = Caps {
    shuffle: 32,
    copies: true,
    warpgroups: true,
    dependents: true,
};

#[test]
fn parts_in_clusters_agree_with_the_reference() {
    if !testing::turn("simt: parts_in_clusters_agree_with_the_reference") {
        return;
    }
    let run = |case: &InParts| {
        let [first, second] = &case.programs;
        let p = simt::in_cluster(first, second, MATRIX);
        let p = p.map_err(|e| Failure::Refused(e.to_string()))?;
        let mut all = case.buffers.clone();
        threads::run(&p, &|_| None, &mut all).map_err(|e| Failure::Broken(format!("{e}\n{p}")))?;
        Ok(vec![all.pop().expect("results")])
    };
    let first = 1000 * testing::Share::cases(20, 1).start;
    let last = parts_in_clusters(&run, 600_000 + first, seeds(2)).unwrap_or_else(|e| panic!("{e}"));
    println!("from seed {} up to {last}", 600_000 + first);
}

/// The body in which the CTAs of a cluster meet: the program's, or that of the pipeline which ends it.
fn meeting_body(p: &mut Program) -> &mut Vec<Inst> {
    match p.body.contains(&Inst::ClusterWait) {
        true => &mut p.body,
        false => pipeline(p),
    }
}

/// Takes meeting number `n` out of a body.
fn unmet(body: &mut Vec<Inst>, n: usize) {
    for own in [Inst::ClusterWait, Inst::ClusterArrive] {
        let mut all = body.iter().enumerate().filter(|(_, i)| **i == own);
        let at = all.nth(n).expect("a meeting").0;
        body.remove(at);
    }
}

#[test]
fn clusters_that_do_not_meet_around_their_parts_are_refused() {
    let (mut found, mut seed) = (vec![], 910_000);
    while found.len() < 4 {
        let all = in_parts(&mut Rng::new(seed)).unwrap_or_else(|e| panic!("{e}"));
        let [one, two] = [0, 1];
        found.extend(all.into_iter().filter_map(|case| {
            let p = simt::in_cluster(&case.programs[one], &case.programs[two], MATRIX);
            Some((p.ok()?, case.buffers))
        }));
        seed += 1;
    }
    for (whole, buffers) in &found[..4] {
        let broken = |words: &str, run: &str, change: &dyn Fn(&mut Vec<Inst>)| {
            let mut p = whole.clone();
            change(meeting_body(&mut p));
            let e = simt::verify::verify(&p).expect_err(words);
            assert!(e.contains(words), "{words}: {e}");
            let e = threads::run(&p, &|_| None, &mut buffers.clone()).expect_err(run);
            assert!(e.contains(run), "{run}: {e}");
        };
        broken("does not stand between", "have not met", &|body| {
            unmet(body, 0);
        });
        broken(
            "a CTA ends before others",
            "may end before others",
            &|body| {
                unmet(body, 1);
            },
        );
        // They say that they have read what they have not.
        broken("does not stand between", "have not met", &|body| {
            let mut arrivals = body.iter().enumerate();
            let early = arrivals.position(|(_, i)| *i == Inst::ClusterWait);
            let last = body.iter().rposition(|i| *i == Inst::ClusterArrive);
            let i = body.remove(last.expect("an arrival"));
            body.insert(early.expect("a meeting") + 1, i);
        });
    }
}

/// A program whose CTAs copy runs, or boxes, together.
fn clustered(boxes: bool) -> Program {
    let caps = Caps {
        shuffle: 32,
        copies: true,
        warpgroups: true,
        dependents: true,
    };
    let mut rng = Rng::new(78);
    loop {
        let case = clustered_product(&mut rng);
        for s in matrix_schedules(&case.kernel, &mut rng) {
            let plain = TileProgram::new(case.kernel.clone(), s).ok();
            let program = match boxes {
                true => plain,
                false => plain.and_then(|p| with_image(&p)).map(|i| i.program),
            };
            let made = program.and_then(|p| with_clusters(&p, &mut rng));
            let Some(p) = made.and_then(|p| simt::lower(&p, caps).ok()) else {
                continue;
            };
            let together = p.tensors.iter().any(|t| t.among > 1);
            if together == boxes {
                return p;
            }
        }
    }
}

/// The first run of elements that CTAs copy together.
fn run_together(body: &mut [Inst]) -> Option<&mut Inst> {
    body.iter_mut().find_map(|i| match i {
        Inst::Bulk { among: 2.., .. } => Some(i),
        i => run_together(i.body_mut()?),
    })
}

#[test]
fn clusters_that_cannot_be_are_refused() {
    let refused = |boxes: bool, words: &str, change: &dyn Fn(&mut Program)| {
        let mut p = clustered(boxes);
        simt::verify::verify(&p).unwrap_or_else(|e| panic!("{e}\n{p}"));
        change(&mut p);
        match simt::verify::verify(&p) {
            Err(e) => assert!(e.contains(words), "{words}: {e}"),
            Ok(()) => panic!("{words}: {:?}\n{p}", p.tensors),
        }
    };
    for boxes in [false, true] {
        refused(boxes, "no clusters of 3", &|p| p.cluster = 3);
        refused(boxes, "no clusters of 0", &|p| p.cluster = 0);
        refused(boxes, "no clusters of 2", &|p| p.walkers = 3);
        refused(boxes, "no clusters of 2", &|p| {
            p.tasks = layout::Dim::Known(7)
        });
        // Barriers of stages that count the threads of one CTA alone.
        refused(boxes, "stages of 1 CTAs in clusters of 2", &|p| {
            let found = p.body.iter_mut().find_map(|i| match i {
                Inst::Pipeline { pipeline, .. } => Some(pipeline),
                _ => None,
            });
            found.expect("a pipeline").among = 1;
        });
    }
    let of_run =
        |change: &dyn Fn(&mut u32, &mut u32), p: &mut Program| match run_together(&mut p.body) {
            Some(Inst::Bulk {
                elements, among, ..
            }) => change(elements, among),
            _ => panic!("a run"),
        };
    refused(false, "4 CTAs copy together", &|p| {
        of_run(&|_, among| *among = 4, p);
    });
    refused(false, "0 CTAs copy together", &|p| {
        of_run(&|_, among| *among = 0, p);
    });
    // A half of 16 bytes.
    refused(false, "2 CTAs copy together", &|p| {
        of_run(&|elements, _| *elements = 4, p);
    });
    refused(true, "4 CTAs copy together", &|p| {
        p.tensors.iter_mut().for_each(|t| t.among = 4);
    });
    // Four lines are no block that a swizzle goes over.
    refused(true, "2 CTAs copy together", &|p| {
        for t in &mut p.tensors {
            t.view.dims[1..].iter_mut().for_each(|d| d.count = 1);
            t.view.dims[1].count = 8;
        }
    });
}

#[test]
fn windows_that_are_boxes_agree_with_the_reference() {
    let subject = Interpreter {
        shuffle: 32,
        matrix: true,
    };
    let first = 1000 * testing::Share::cases(20, 1).start;
    let last = boxed_windows(&subject, first + 500, seeds(8)).unwrap_or_else(|e| panic!("{e}"));
    println!("up to seed {last}");
}

#[test]
fn attention_by_warpgroups_agrees_with_the_reference() {
    let subject = Interpreter {
        shuffle: 32,
        matrix: true,
    };
    let first = 10 * testing::Share::cases(20, 1).start;
    let last = attending(&subject, 9700 + first, seeds(6)).unwrap_or_else(|e| panic!("{e}"));
    println!("up to seed {last}");
}

/// Programs whose CTAs walk several tasks, with products under way from one piece to the next, and buffers for each.
fn walking(count: usize) -> Vec<(Program, Vec<Tensor>)> {
    let caps = Caps {
        shuffle: 32,
        copies: true,
        warpgroups: true,
        dependents: true,
    };
    let mut found = vec![];
    let mut rng = Rng::new(77);
    while found.len() < count {
        let case = warpgroup_product(&mut rng);
        let operands = case.kernel.operands.iter();
        let buffers = operands.map(|o| {
            let n = o.elements.known().expect("a size");
            Tensor::zeros(o.dtype, &[n as usize]).expect("memory")
        });
        let buffers: Vec<Tensor> = buffers.collect();
        for s in matrix_schedules(&case.kernel, &mut rng) {
            let walks = matches!(&s.mapping, Mapping::Gpu(g) if g.walkers == 1);
            let made = TileProgram::new(case.kernel.clone(), Arc::new(s)).ok();
            let made = made
                .filter(|_| walks)
                .and_then(|p| simt::lower(&p, caps).ok());
            // Pieces of later tasks come to every stage.
            let behind = |p: &Program| {
                let tasks = p.tasks.known().unwrap_or(0);
                let of = |i: &Inst| match i {
                    Inst::Pipeline { pipeline, .. } => {
                        pipeline.behind > 0 && tasks > pipeline.stages.into()
                    }
                    _ => false,
                };
                p.body.iter().any(of)
            };
            found.extend(made.filter(behind).map(|p| (p, buffers.clone())));
        }
    }
    found
}

/// The body of its pipeline.
fn pipeline(p: &mut Program) -> &mut Vec<Inst> {
    let found = p.body.iter_mut().find_map(|i| match i {
        Inst::Pipeline { body, .. } => Some(body),
        _ => None,
    });
    found.expect("a pipeline")
}

#[test]
fn stages_that_are_free_too_early_for_the_next_task_are_found_out() {
    let lookup = |_: &str| None;
    for (mut p, mut buffers) in walking(4) {
        threads::run(&p, &lookup, &mut buffers).unwrap_or_else(|e| panic!("{e}\n{p}"));
        let body = pipeline(&mut p);
        let freed = body.iter().position(|i| *i == Inst::Freed).expect("it");
        assert_eq!(body[freed - 1], Inst::Warpgroup(Warpgroup::Wait(0)));
        body.swap(freed - 1, freed);
        let e = threads::run(&p, &lookup, &mut buffers).expect_err("a race");
        assert!(e.contains("product under way"), "{e}\n{p}");
        let e = simt::verify::verify(&p).expect_err("a rule");
        assert!(e.contains("from one task to the next"), "{e}");
        // Nobody gives the last stages back.
        pipeline(&mut p).retain(|i| *i != Inst::Freed);
        let e = simt::verify::verify(&p).expect_err("a rule");
        assert!(e.contains("from one task to the next"), "{e}");
    }
}

#[test]
fn products_in_parts_give_what_multiply_adds_give() {
    if !testing::turn("simt: products_in_parts_give_what_multiply_adds_give") {
        return;
    }
    let subject = Interpreter {
        shuffle: 32,
        matrix: true,
    };
    let done = special(&subject, 7000, 4).unwrap_or_else(|e| panic!("{e}"));
    println!("{done} programs");
    assert!(done > 24, "{done}");
}

#[test]
fn products_of_parts_that_lie_as_images_give_what_multiply_adds_give() {
    let subject = Interpreter {
        shuffle: 32,
        matrix: true,
    };
    let done = special_images(&subject, 7300, 2).unwrap_or_else(|e| panic!("{e}"));
    println!("{done} programs");
    assert!(done > 18, "{done}");
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
