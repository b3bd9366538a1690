//! PTX of every family, run on the emulator: what it does, and that nothing is touched that is not
//! there, or without the barriers it takes.
use emit::ptx;
use kernel::TileProgram;
use shopfloor_conformance::{
    Emulated, Failure, InParts, Rng, attending, boxed_windows, cases, clustered_product,
    copied_ahead, in_clusters, in_parts, matrix_schedules, parts_in_clusters, run, scalars, seeds,
    special, special_images, with_clusters,
};
use tensor::Tensor;

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

/// What a launch of both steps gives.
fn in_one_launch(subject: &Emulated, case: &InParts) -> Result<Vec<Tensor>, Failure> {
    let [first, second] = &case.programs;
    let text = ptx::in_cluster(first, second, "sm_90a");
    let text = text.map_err(|e| Failure::Refused(e.to_string()))?;
    let got = subject.launch_steps(&[first, second], &text, &[], &case.buffers);
    got.map_err(Failure::Broken)
}

/// What a launch of each gives, which hands parts over in memory.
fn one_by_one(subject: &Emulated, case: &InParts) -> Result<Vec<Tensor>, Failure> {
    let [first, second] = &case.programs;
    let launched = |p: &TileProgram, given: &[Tensor]| {
        let text = ptx::emit(p, "sm_90a").map_err(|e| Failure::Refused(e.to_string()))?;
        let got = subject.launch(p, &text, &[], given);
        got.map_err(Failure::Broken)
    };
    let (given, own) = case.buffers.split_at(first.kernel().operands.len());
    let parts = launched(first, given)?;
    launched(second, &[&parts, &own[1..]].concat())
}

/// Also, bits are those of two launches that hand parts over in memory.
#[test]
fn parts_in_clusters_agree_with_the_reference() {
    if !testing::turn("emulated: parts_in_clusters_agree_with_the_reference") {
        return;
    }
    let subject = Emulated::on("sm_90a");
    let run = |case: &InParts| {
        let got = in_one_launch(&subject, case)?;
        let apart = one_by_one(&subject, case)?;
        match got.last().map(Tensor::bytes) == apart.last().map(Tensor::bytes) {
            true => Ok(got),
            false => Err(Failure::Broken("two launches give other bits".into())),
        }
    };
    let first = 1000 * testing::Share::cases(20, 1).start;
    let last = parts_in_clusters(&run, 700_000 + first, seeds(2)).unwrap_or_else(|e| panic!("{e}"));
    println!("from seed {} up to {last}", 700_000 + first);
}

/// What the CTAs of a cluster meet for: parts that are there before others read them, and shared memory that nobody leaves
/// before they have.
#[test]
fn parts_that_are_not_waited_for_are_found_out() {
    let subject = Emulated::on("sm_90a");
    let (arrives, waits) = (
        "\tbarrier.cluster.arrive.release;\n",
        "\tbarrier.cluster.wait.acquire;\n",
    );
    let (mut found, mut seed) = (vec![], 900_000);
    while found.len() < 3 {
        let all = in_parts(&mut Rng::new(seed)).unwrap_or_else(|e| panic!("{e}"));
        found.extend(all.into_iter().filter_map(|case| {
            let [first, second] = &case.programs;
            let text = ptx::in_cluster(first, second, "sm_90a").ok()?;
            Some((case, text))
        }));
        seed += 1;
    }
    for (case, text) in &found[..3] {
        let [first, second] = &case.programs;
        let launch = |changed: String| {
            let changed = ptx::Ptx {
                text: changed,
                ..text.clone()
            };
            subject.launch_steps(&[first, second], &changed, &[], &case.buffers)
        };
        launch(text.text.clone()).unwrap_or_else(|e| panic!("{e}"));
        let own = |s: &str| text.text.matches(s).count();
        assert_eq!([own(arrives), own(waits)], [2, 2], "{}", text.text);
        let at = |s: &str, n: usize| text.text.match_indices(s).nth(n).expect("it").0;
        let without = |list: [(usize, usize); 2]| {
            let mut t = text.text.clone();
            for (at, n) in list {
                t.replace_range(at..at + n, "");
            }
            t
        };
        let both = |n: usize| [(at(waits, n), waits.len()), (at(arrives, n), arrives.len())];
        for (n, what) in ["before others read", "before it ends"]
            .into_iter()
            .enumerate()
        {
            assert!(launch(without(both(n))).is_err(), "no meeting {what}");
        }
        let relaxed = text.text.replacen("arrive.release", "arrive.relaxed", 1);
        assert!(launch(relaxed).is_err(), "a meeting that orders nothing");
    }
}

/// Programs in clusters whose pieces come to every stage again, with buffers of zeros.
fn clustered(count: usize) -> Vec<(TileProgram, Vec<Tensor>)> {
    let (mut found, mut rng) = (vec![], Rng::new(79));
    while found.len() < count {
        let case = clustered_product(&mut rng);
        let zeros = |o: &kernel::Operand| {
            let n = o.elements.known().expect("a size");
            Tensor::zeros(o.dtype, &[n as usize]).expect("memory")
        };
        let buffers: Vec<Tensor> = case.kernel.operands.iter().map(zeros).collect();
        for s in matrix_schedules(&case.kernel, &mut rng) {
            let plain = TileProgram::new(case.kernel.clone(), s).ok();
            let Some(p) = plain.and_then(|p| with_clusters(&p, &mut rng)) else {
                continue;
            };
            let s = p.schedule();
            let depth = |c: &kernel::AxisTile| {
                let extent = p.kernel().axes[c.axis as usize].extent.known();
                extent.unwrap_or(0) / c.tile
            };
            let stages = s.places.iter().find_map(|p| p.stages()).unwrap_or(1);
            let pieces: i64 = s.loops.iter().map(depth).product();
            if pieces > 2 * i64::from(stages) && ptx::emit(&p, "sm_90a").is_ok() {
                found.push((p, buffers.clone()));
            }
        }
    }
    found
}

/// What CTAs of a cluster wait for each other for: barriers that are there before others arrive at them, stages that nobody
/// reads any more, and shared memory that others still write to.
#[test]
fn clusters_that_do_not_wait_for_each_other_are_found_out() {
    let subject = Emulated::on("sm_90a");
    let meets = |order: &str| {
        format!("\tbarrier.cluster.arrive.{order};\n\tbarrier.cluster.wait.acquire;\n")
    };
    let mut found = [0; 3];
    let programs = clustered(6);
    for (p, buffers) in &programs {
        let text = ptx::emit(p, "sm_90a").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(text.cluster, 2);
        let fine = subject.launch(p, &text, &[], buffers);
        fine.unwrap_or_else(|e| panic!("{e}"));
        let broken = [
            text.text.replacen(&meets("relaxed"), "\tbar.sync 0;\n", 1),
            text.text.replacen(&meets("release"), "", 1),
            // Each says twice that its own stage is free, and not that the other's is.
            without_peers(&text.text),
        ];
        for (n, broken) in broken.into_iter().enumerate() {
            let changed = ptx::Ptx {
                text: broken,
                ..text.clone()
            };
            let e = subject.launch(p, &changed, &[], buffers);
            found[n] += usize::from(e.is_err());
        }
    }
    println!("{found:?} of {}", programs.len());
    assert_eq!(found, [programs.len(); 3]);
}

/// A text in which the address of another CTA's barrier is that of the CTA's own.
fn without_peers(text: &str) -> String {
    let line = |l: &str| match l.trim_start().strip_prefix("mapa.shared::cluster.u32 ") {
        Some(rest) => {
            let names: Vec<&str> = rest.split(", ").collect();
            format!("\tmov.b32 {}, {};\n", names[0], names[1])
        }
        None => format!("{l}\n"),
    };
    text.lines().map(line).collect()
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
