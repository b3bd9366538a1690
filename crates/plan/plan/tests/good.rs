//! Plans that are fine: verified, saved and read back, damaged without a panic, checked in time.
use crate::common;
use common::random::mutate;
use common::*;
use fastrand::Rng;
use layout::Dim;
use shopfloor_plan::*;

#[test]
fn good_plans_pass() {
    for p in good() {
        let v = p.clone().verify().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(*v.plan(), p);
        assert_eq!(
            v.step_programs(0).len(),
            p.blocks().next().unwrap().steps.len()
        );
    }
}

#[test]
fn text_reads_back_equal() {
    for mut p in good() {
        p.predicted.time_s = 0.1 + 0.2;
        let text = p.to_json().unwrap();
        let back = Plan::from_json(&text).unwrap();
        assert_eq!(back, p);
        assert_eq!(back.to_json().unwrap(), text);
        // An unknown field, another version, a piece.
        let more = text.replacen("\"model\"", "\"colour\": 1,\n  \"model\"", 1);
        let e = Plan::from_json(&more).unwrap_err().to_string();
        assert!(e.contains("colour"), "{e}");
        let deep = text.replacen("\"dtype\"", "\"shade\": 1, \"dtype\"", 1);
        assert!(Plan::from_json(&deep).is_err());
        assert!(Plan::from_json(&text.replacen("\"version\": 1", "\"version\": 2", 1)).is_err());
        assert!(Plan::from_json(&text[..text.len() / 2]).is_err());
        // How the text is set does not matter, what it says does.
        let dense = text.replace("\n", " ");
        assert_eq!(Plan::from_json(&dense).unwrap(), p);
        let changed = text.replacen("\"model\": \"", "\"model\": \"x", 1);
        assert_eq!(Plan::from_json(&changed), Err(PlanError::Changed));
        let model = format!("x{}", p.model);
        let want = Plan { model, ..p.clone() };
        assert_eq!(Plan::from_json_unchecked(&changed).unwrap(), want);
        let line = text.lines().nth(1).unwrap();
        assert!(line.contains("checksum"));
        let none = text.replacen(line, "", 1);
        assert_eq!(Plan::from_json(&none), Err(PlanError::Changed));
        assert_eq!(Plan::from_json_unchecked(&none).unwrap(), p);
        assert!(Plan::from_json(&"[".repeat(100_000)).is_err());
    }
    // Values outside that JSON has no number for.
    let mut p = chain();
    if let PlanSegment::Block(b) = &mut p.segments[0]
        && let StepWork::Kernel { kernel, .. } = &mut b.steps[0].work
    {
        std::sync::Arc::make_mut(kernel).operands[0].access.outside = f64::NEG_INFINITY;
    }
    assert_eq!(Plan::from_json(&p.to_json().unwrap()).unwrap(), p);
}

#[test]
fn damaged_plans_never_panic() {
    let originals: Vec<serde_json::Value> = good()
        .iter()
        .map(|p| serde_json::to_value(p).unwrap())
        .collect();
    let (mut read, mut valid) = (0, 0);
    for seed in testing::Share::cases(4, 5_000) {
        let mut rng = Rng::with_seed(seed);
        let mut v = originals[rng.usize(..originals.len())].clone();
        for _ in 0..1 + rng.usize(..2) {
            mutate(&mut v, &mut rng);
        }
        let Ok(p) = serde_json::from_value::<Plan>(v) else {
            continue;
        };
        read += 1;
        valid += u32::from(p.verify().is_ok());
    }
    assert!(read > 1_000 && valid > 20, "{read} read, {valid} valid");
    println!("{read} damaged plans read, {valid} still valid");
}

/// A long chain of small steps that share two pieces of memory by turns.
fn long(n: usize) -> Plan {
    let mut p = PlanMaker::new();
    let x = p.input(layout::DType::F32, &[m(), d(16)]);
    let first = p.arena(&[m(), d(16)]);
    let second = p.arena(&[m(), d(16)]);
    let y = p.output(&[m(), d(16)]);
    let step = || {
        (
            kernels::pointwise(m(), d(16), expr::Unary::Exp),
            kernels::pointwise_cpu(3),
        )
    };
    let mut from = x;
    for i in 0..n {
        let to = match i {
            i if i + 1 == n => y,
            i => p.arena_on(if i % 2 == 0 { first } else { second }, &[m(), d(16)]),
        };
        let waits: Vec<StepId> = (i > 0).then(|| i as StepId - 1).into_iter().collect();
        p.step(false, step(), &[from, to], &waits);
        from = to;
    }
    p.finish("long")
}

#[test]
fn long_plans_are_checked() {
    let p = long(2000);
    let start = std::time::Instant::now();
    p.verify().unwrap();
    println!(
        "2000 steps verified in {:.1} ms",
        start.elapsed().as_secs_f64() * 1e3
    );
    // One missing wait is found wherever it is.
    for at in [1, 777, 1999] {
        let mut p = long(2000);
        if let PlanSegment::Block(b) = &mut p.segments[0] {
            b.steps[at].waits.clear();
        }
        assert!(p.verify().is_err());
    }
}

#[test]
fn weights_are_compared_with_the_store() {
    let v = chain().verify().unwrap();
    let e = v
        .check_weights(&tensor::WeightStore::default())
        .unwrap_err()
        .to_string();
    assert!(e.contains("no such constant"), "{e}");
}

#[test]
fn small_boxes_are_looked_at_point_by_point() {
    // Rows of min(m, 5) in a buffer that is as wide as m: no interval shows it, every point does.
    let mut p = PlanMaker::new();
    let rows = m().min_with(&Dim::Known(5));
    let x = p.input(layout::DType::F32, &[m(), d(4)]);
    let y = p.output(&[rows.clone(), d(4)]);
    p.step(
        false,
        (
            kernels::pointwise(rows, d(4), expr::Unary::Exp),
            kernels::pointwise_cpu(3),
        ),
        &[x, y],
        &[],
    );
    p.finish("points").verify().unwrap();
}

#[test]
fn floors_are_compared_with_what_they_round() {
    // A pool of 2 over any of 1,000,000 heights: 2 * floor(h / 2) rows are never more than h.
    let mut p = PlanMaker::new();
    p.dims.insert("h", 2, 1_000_001);
    p.block.symbols.push("h".into());
    let h = Dim::sym("h");
    let half = h.floor_div(&d(2));
    let x = p.input(layout::DType::F32, &[h, d(4)]);
    let y = p.output(&[half.clone(), d(8)]);
    p.step(
        false,
        (
            kernels::pointwise(half, d(8), expr::Unary::Exp),
            kernels::pointwise_cpu(3),
        ),
        &[x, y],
        &[],
    );
    p.finish("pool").verify().unwrap();
    // Rounded up it would be one row too many.
    let mut p = PlanMaker::new();
    p.dims.insert("h", 2, 1_000_001);
    p.block.symbols.push("h".into());
    let h = Dim::sym("h");
    let half = h.ceil_div(&d(2));
    let x = p.input(layout::DType::F32, &[h, d(4)]);
    let y = p.output(&[half.clone(), d(8)]);
    p.step(
        false,
        (
            kernels::pointwise(half, d(8), expr::Unary::Exp),
            kernels::pointwise_cpu(3),
        ),
        &[x, y],
        &[],
    );
    assert!(p.finish("pool").verify().is_err());
}
