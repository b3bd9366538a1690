//! Kernels joined beyond the fusion rule and activations in other layouts: what they compute, and where they
//! pay.
use crate::build::*;
use crate::propose::{changed, seen, serving, whole};
use crate::split::{items, outputs};
use expr::{ExprBuilder, Monoid};
use kernel::{Family, Role, Stmt, Term};
use layout::DType;
use machine::Machine;
use plan::{
    Allotment, Candidate, Item, ItemWork, Plan, Planner as _, Program, Segment, ValueIx,
    ValueOrigin,
};
use shopfloor_planner::internals::{
    Joinable, Order, Region, join, joinings, regions, relaid, without_copies,
};

/// Sums over the last axis of a value in [rows, cols] memory into `to`.
fn row_sums(name: &str, (rows, cols): (i64, i64), from: ValueIx, to: ValueIx) -> Item {
    let mut b = kernel(name, Family::Row, &[("r", n(rows)), ("c", n(cols))]);
    let (ax, ay) = (b.access(&[(0, n(cols)), (1, n(1))]), b.access(&[(0, n(1))]));
    let tx = b.load("x", ax, from);
    let s = b.fill("sum", &[0], 0.0);
    b.kernel.body.push(Stmt::Fold {
        monoid: Monoid::sum(DType::F32, DType::F32),
        state: vec![s],
        args: vec![tx],
        over: vec![1],
        rescale: None,
    });
    b.store("out", ay, to, s);
    b.item()
}

/// y[r, n] = z[r, n] * (sum over c of x[r, c]): the result spans more than the sum's space.
fn spread(rows: i64, cols: i64, wide: i64) -> Program {
    let mut p = program("spread");
    let x = value(&mut p, "x", &[n(rows), n(cols)], ValueOrigin::Input(0));
    let z = value(&mut p, "z", &[n(rows), n(wide)], ValueOrigin::Input(1));
    let r = value(&mut p, "r", &[n(rows)], ValueOrigin::Made);
    let y = value(&mut p, "y", &[n(rows), n(wide)], ValueOrigin::Made);
    let mut b = kernel("times", Family::Map, &[("r", n(rows)), ("c", n(wide))]);
    let (az, ar) = (b.access(&[(0, n(wide)), (1, n(1))]), b.access(&[(0, n(1))]));
    let (tz, tr) = (b.load("z", az.clone(), z), b.load("r", ar, r));
    let mut e = ExprBuilder::new();
    let (u, v) = (e.input(0, DType::F32), e.input(1, DType::F32));
    let m = e.mul(u, v);
    let t = b.map("t", &[0, 1], e.finish(&[m]), &[tz, tr]);
    b.store("out", az, y, t);
    let sums = row_sums("sums", (rows, cols), x, r);
    p.segments.push(Segment::Straight(vec![sums, b.item()]));
    p.outputs.push(("y".into(), y));
    p
}

/// The sums of a product's rows, which the rule keeps from the product.
fn product_rows(m: i64, k: i64, w: i64) -> Program {
    let mut p = gemm(m, k, w);
    let y = p.outputs.pop().unwrap().1;
    let s = value(&mut p, "s", &[n(m)], ValueOrigin::Made);
    let rows = row_sums("rows", (m, w), y, s);
    let Segment::Straight(items) = &mut p.segments[0] else {
        panic!("items");
    };
    items.push(rows);
    p.outputs.push(("s".into(), s));
    p
}

/// exp of all elements as one axis, then sums over rows.
fn flat_then_rows(rows: i64, cols: i64) -> Program {
    let mut p = program("flat");
    let x = value(&mut p, "x", &[n(rows), n(cols)], ValueOrigin::Input(0));
    let t = value(&mut p, "t", &[n(rows), n(cols)], ValueOrigin::Made);
    let s = value(&mut p, "s", &[n(rows)], ValueOrigin::Made);
    let mut b = kernel("flat", Family::Map, &[("i", n(rows * cols))]);
    let all = b.access(&[(0, n(1))]);
    let tx = b.load("x", all.clone(), x);
    let mut e = ExprBuilder::new();
    let u = e.input(0, DType::F32);
    let v = e.unary(expr::Unary::Exp, u);
    let y = b.map("y", &[0], e.finish(&[v]), &[tx]);
    b.store("out", all, t, y);
    let rows = row_sums("rows", (rows, cols), t, s);
    p.segments.push(Segment::Straight(vec![b.item(), rows]));
    p.outputs.push(("s".into(), s));
    p
}

/// Two products, the first's result in the order of its columns, which neither goes through fast.
fn turned(m: i64, k: i64) -> Program {
    let mut p = gemm(m, k, k);
    let y = p.outputs.pop().unwrap().1;
    let w = weight(&mut p, "w2", &[n(k), n(k)]);
    let out = value(&mut p, "out", &[n(m), n(k)], ValueOrigin::Made);
    p.values[y as usize].layout = layout::Layout::ordered(&[n(m), n(k)], &[1, 0], 1);
    let mut b = kernel(
        "second",
        Family::Contract,
        &[("m", n(m)), ("n", n(k)), ("k", n(k))],
    );
    let (aa, ab, ay) = (
        b.access(&[(0, n(1)), (2, n(m))]),
        b.access(&[(1, n(1)), (2, n(k))]),
        b.access(&[(0, n(k)), (1, n(1))]),
    );
    let (ta, tb) = (b.load("a", aa, y), b.load("b", ab, w));
    let acc = b.contract(&[0, 1], ta, tb, &[2]);
    b.store("out", ay, out, acc);
    let Segment::Straight(items) = &mut p.segments[0] else {
        panic!("items");
    };
    let ItemWork::Kernel { kernel, .. } = &mut items[0].work else {
        panic!("a kernel");
    };
    let kernel = std::sync::Arc::make_mut(kernel);
    let written = kernel.operands.iter_mut().find(|o| o.role == Role::Write);
    written.unwrap().access.terms = vec![Term::flat(0, n(m), n(1)), Term::flat(1, n(k), n(m))];
    items.push(b.item());
    p.outputs.push(("out".into(), out));
    p
}

#[test]
fn what_is_joined_gives_the_same() {
    let seed = 20262;
    for (p, pairs) in [
        (spread(5, 7, 9), 1),
        (product_rows(5, 7, 9), 1),
        (flat_then_rows(6, 10), 1),
        // A product takes what it reads from memory.
        (convs(1, 5, 4), 0),
        (turned(4, 6), 0),
    ] {
        let want = outputs(&p, seed);
        let found = joinings(&p, Joinable::Readers);
        assert_eq!(found.len(), pairs, "{}", p.name);
        for j in &found {
            let q = join(&p, &[j]);
            assert_eq!(items(&q).len(), items(&p).len() - 1);
            assert!(items(&q)[0].name.contains(" + "));
            assert!(outputs(&q, seed) == want, "{}, seed {seed}", p.name);
            bind(&q, &dims()).verify().unwrap();
        }
    }
}

/// Also where a product is behind another kernel: what is factor of it is made beside it.
#[test]
fn what_a_product_reads_may_be_made_by_it() {
    let seed = 20263;
    for (p, pairs) in [
        (spread(5, 7, 9), 1),
        (product_rows(5, 7, 9), 1),
        (turned(4, 6), 1),
    ] {
        let want = outputs(&p, seed);
        let found = joinings(&p, Joinable::All);
        assert_eq!(found.len(), pairs, "{}", p.name);
        for j in &found {
            let q = join(&p, &[j]);
            assert_eq!(items(&q).len(), items(&p).len() - 1);
            assert!(outputs(&q, seed) == want, "{}, seed {seed}", p.name);
        }
    }
}

#[test]
fn what_somebody_else_reads_is_not_joined_away() {
    let mut p = spread(5, 7, 9);
    p.outputs.push(("r".into(), 2));
    assert!(joinings(&p, Joinable::Readers).is_empty());
    let mut p = spread(5, 7, 9);
    let z = value(&mut p, "again", &[n(5)], ValueOrigin::Made);
    let Segment::Straight(items) = &mut p.segments[0] else {
        panic!("items");
    };
    items.push(row_sums("once more", (5, 1), 2, z));
    p.outputs.push(("again".into(), z));
    assert!(joinings(&p, Joinable::Readers).is_empty());
    let mut p = spread(5, 7, 9);
    let Segment::Straight(items) = &mut p.segments[0] else {
        panic!("items");
    };
    items[0].given = Some(Default::default());
    assert!(joinings(&p, Joinable::Readers).is_empty());
}

/// `p` with the region in that order.
fn laid(p: &Program, r: &Region, how: Order) -> Program {
    let mut out = p.clone();
    relaid(p, r, how).unwrap().swap(&mut out);
    out
}

#[test]
fn what_lies_otherwise_gives_the_same() {
    let seed = 20263;
    let mut ways = 0;
    for p in [
        convs(1, 5, 4),
        convs(2, 6, 8),
        turned(4, 6),
        flat_then_rows(6, 10),
        product_rows(5, 7, 9),
        // Its parts begin elsewhere than the value, at the top of a symbol too.
        concat(),
        moved_first((6, 4, 5), 7),
    ] {
        let want = outputs(&p, seed);
        let all = regions(&p);
        assert_eq!(all.len(), 1, "{}", p.name);
        for how in Order::all(2) {
            let Some(mut other) = relaid(&p, &all[0], how) else {
                continue;
            };
            let (mut q, said) = (p.clone(), other.said.clone());
            other.swap(&mut q);
            println!("{}: {said}", p.name);
            assert!(outputs(&q, seed) == want, "{} {said}, seed {seed}", p.name);
            assert_ne!(q.values, p.values);
            bind(&q, &dims()).verify().unwrap();
            ways += 1;
            other.swap(&mut q);
            assert_eq!((&q.values, items(&q)), (&p.values, items(&p)));
        }
    }
    assert!(ways >= 17, "only {ways} ways were tried");
    // An address that goes outside a dimension without a bound that says so is no place along it.
    let mut p = convs(1, 5, 4);
    let Segment::Straight(items) = &mut p.segments[0] else {
        panic!("items");
    };
    let ItemWork::Kernel { kernel, .. } = &mut items[1].work else {
        panic!("a kernel");
    };
    std::sync::Arc::make_mut(kernel).operands[0]
        .access
        .bounds
        .clear();
    assert!(relaid(&p, &regions(&p)[0], Order::LastTurned).is_none());
}

/// Steps that are costlier to begin than described are better one.
#[test]
fn what_the_rule_keeps_apart_is_joined_where_it_pays() {
    let all = Allotment::default();
    let p = spread(64, 64, 64);
    let plan = bind(&p, &dims());
    let truth = changed(&["overhead=8x"]);
    let found = planner().propose(&seen(&plan, &truth), &[serving(&p, &plan, &all)]);
    let c = found.first().unwrap();
    assert!(
        c.why
            .choice
            .contains("another fusion: 'sums' in one step with 'times'"),
        "{:?}",
        c.why
    );
    let one = &c.changes[0].plan;
    assert!(one.is_apart() && whole(one, &truth) < whole(&plan, &truth));
    one.clone().verify().unwrap().check_program(&p).unwrap();
    let none = |c: &&Candidate| c.gain_s > 0.05 * c.now_s;
    let again = planner().propose(&seen(one, &truth), &[serving(&p, one, &all)]);
    assert!(again.iter().find(none).is_none(), "{again:#?}");
}

/// Proposes for `p`, whose activations lie badly: the plan proposed, which has to be as fast as `good` and to
/// say why, and to be the last of its kind.
fn laid_well(p: &Program, good: f64) -> Candidate {
    let all = Allotment::default();
    let truth = changed(&[]);
    let plan = bind(p, &dims());
    let bad = whole(&plan, &truth);
    let found = planner().propose(&seen(&plan, &truth), &[serving(p, &plan, &all)]);
    let Some(c) = found.into_iter().next() else {
        panic!("no proposal for {}: {bad:e}, else {good:e}", p.name);
    };
    assert!(c.why.choice.contains("another layout: '"), "{:?}", c.why);
    let laid = &c.changes[0].plan;
    let now = whole(laid, &truth);
    println!(
        "{} {}: {bad:e}, now {now:e}, else {good:e}",
        p.name, c.why.choice
    );
    assert!(laid.is_apart(), "{}", p.name);
    assert!(now < 1.02 * good, "{}: {now:e}, else {good:e}", p.name);
    assert!(now < 0.95 * bad, "{}: {now:e} of {bad:e}", p.name);
    laid.clone().verify().unwrap();
    let again = planner().propose(&seen(laid, &truth), &[serving(p, laid, &all)]);
    assert!(
        again.iter().all(|c| c.gain_s < 0.05 * c.now_s),
        "{again:#?}"
    );
    c
}

/// Programs whose activations were given a layout that is slow: what is proposed is as fast as they were before.
#[test]
fn activations_are_laid_where_it_pays() {
    let truth = changed(&[]);
    for p in [convs(1, 28, 64), convs(1, 56, 32)] {
        let good = whole(&bind(&p, &dims()), &truth);
        let bad = laid(&p, &regions(&p)[0], Order::LastTurned);
        laid_well(&bad, good);
    }
}

/// Two regions at once, each of which may lie as it did or otherwise.
#[test]
fn regions_lie_otherwise_together() {
    let truth = changed(&[]);
    let p = convs_of(3, 1, 28, 64);
    let good = whole(&bind(&p, &dims()), &truth);
    let mut bad = p.clone();
    let all = regions(&p);
    assert_eq!(all.len(), 2);
    for (r, how) in all.iter().zip([Order::SecondInner, Order::LastTurned]) {
        bad = laid(&bad, r, how);
    }
    let c = laid_well(&bad, good);
    for name in ["'y0' row-major", "'y1' row-major"] {
        assert!(c.why.choice.contains(name), "{:?}", c.why);
    }
}

/// A product of what is moved first: x in [k, m] memory goes to v in [m, k] memory, as lowering has it for a
/// convolution of one position; the result is stored as x lies. Beside it sums over rows of z, `long` numbers
/// each, which say whatever v's layout is how fast memory is.
pub fn moved_first((m, k, w): (i64, i64, i64), long: i64) -> Program {
    let mut p = program("moved first");
    let x = value(&mut p, "x", &[n(k), n(m)], ValueOrigin::Input(0));
    let z = value(&mut p, "z", &[n(64), n(long)], ValueOrigin::Input(1));
    let wt = weight(&mut p, "w", &[n(k), n(w)]);
    let v = value(&mut p, "v", &[n(k), n(m)], ValueOrigin::Made);
    let y = value(&mut p, "y", &[n(w), n(m)], ValueOrigin::Made);
    let s = value(&mut p, "s", &[n(64)], ValueOrigin::Made);
    p.values[v as usize].layout = layout::Layout::ordered(&[n(k), n(m)], &[1, 0], 1);
    let (read, write) = ((n(0), n(1), n(m)), (n(0), n(k), n(1)));
    let turn = moved("turn", n(m), n(k), read, write, x, v);
    let axes = [("m", n(m)), ("n", n(w)), ("k", n(k))];
    let mut b = kernel("product", Family::Contract, &axes);
    let (aa, ab, ay) = (
        b.access(&[(0, n(k)), (2, n(1))]),
        b.access(&[(1, n(1)), (2, n(w))]),
        b.access(&[(0, n(1)), (1, n(m))]),
    );
    let (ta, tb) = (b.load("a", aa, v), b.load("b", ab, wt));
    let acc = b.contract(&[0, 1], ta, tb, &[2]);
    b.store("out", ay, y, acc);
    let sums = row_sums("sums", (64, long), z, s);
    let items = vec![turn, b.item(), sums];
    p.segments.push(Segment::Straight(items));
    p.outputs.extend([("y".into(), y), ("s".into(), s)]);
    p
}

/// A candidate that is worth a trial.
fn pays(all: Vec<Candidate>) -> Option<Candidate> {
    all.into_iter().find(|c| c.gain_s > 0.05 * c.now_s)
}

/// As the machine is described the product reads best what was turned for it; with an L2 that gives an eighth
/// it reads x as it lies, and no step turns it. Each is proposed when steps say so, and nothing after it.
#[test]
fn a_layout_goes_by_what_steps_took_and_comes_back() {
    let all = Allotment::default();
    let p = moved_first((784, 64, 64), 256);
    let (told, slow) = (changed(&[]), changed(&["l2.bandwidth=0.125x"]));
    let plan = bind(&p, &dims());
    let ask = |plan: &Plan, truth: &Machine| {
        let seen = seen(plan, truth);
        pays(planner().propose(&seen, &[serving(&p, plan, &all)]))
    };
    assert!(ask(&plan, &told).is_none());
    let c = ask(&plan, &slow).expect("another layout");
    let why = &c.why;
    assert!(
        why.choice.contains("another layout: 'v' row-major"),
        "{why:?}"
    );
    assert!(
        why.reason.contains("explained by l2.bandwidth=0.1"),
        "{why:?}"
    );
    let laid = &c.changes[0].plan;
    let names: Vec<&str> = laid
        .blocks()
        .flat_map(|b| &b.steps)
        .map(|s| s.name.as_str())
        .collect();
    assert_eq!(names, ["product", "sums"]);
    assert!(whole(laid, &slow) < 0.8 * whole(&plan, &slow));
    assert!(whole(laid, &told) > 1.05 * whole(&plan, &told));
    laid.clone().verify().unwrap();
    // The sums still say what the L2 gives.
    assert!(ask(laid, &slow).is_none());
    let back = ask(laid, &told).expect("the way back");
    let why = &back.why;
    let said = "another layout: activations as the program has them";
    assert!(why.choice.contains(said), "{why:?}");
    let back = &back.changes[0].plan;
    assert!(!back.is_apart());
    assert!(whole(back, &told) < 1.001 * whole(&plan, &told));
    assert!(ask(back, &told).is_none());
}

#[test]
fn what_only_copies_is_gone_and_gives_the_same() {
    let seed = 20264;
    let p = moved_first((6, 4, 5), 7);
    let want = outputs(&p, seed);
    let r = &regions(&p)[0];
    let free: std::collections::BTreeSet<ValueIx> = r.values.iter().copied().collect();
    let own = items(&p);
    // It turns something.
    assert_eq!(without_copies(&p, &own, &free), (own, vec![]));
    let mut q = laid(&p, r, Order::RowMajor);
    let (left, gone) = without_copies(&q, &items(&q), &free);
    assert_eq!(gone, ["turn"]);
    // Nor is it gone where somebody else reads the copy, or who reads it reads what it is of as well.
    let none = Default::default();
    assert_eq!(without_copies(&q, &items(&q), &none).1.len(), 0);
    let mut both = items(&q);
    let ItemWork::Kernel { kernel, args } = &mut both[1].work else {
        panic!("a kernel");
    };
    let kernel = std::sync::Arc::make_mut(kernel);
    kernel.operands.push(kernel.operands[0].clone());
    args.push(0);
    assert_eq!(without_copies(&q, &both, &free).1.len(), 0);
    q.segments = vec![Segment::Straight(left)];
    assert!(outputs(&q, seed) == want, "seed {seed}");
    bind(&q, &dims()).verify().unwrap();
}

/// Of a region whose values lie differently those that have an order already stay.
#[test]
fn what_lies_differently_comes_to_lie_alike() {
    let seed = 20265;
    let (rows, cols) = (6, 10);
    let mut p = flat_then_rows(rows, cols);
    let t = 1;
    let turned = value(&mut p, "turned", &[n(rows), n(cols)], ValueOrigin::Made);
    p.values[turned as usize].layout = layout::Layout::ordered(&[n(rows), n(cols)], &[1, 0], 1);
    let (read, write) = ((n(0), n(cols), n(1)), (n(0), n(1), n(rows)));
    let turn = moved("turn", n(rows), n(cols), read, write, t, turned);
    let Segment::Straight(items) = &mut p.segments[0] else {
        panic!("items");
    };
    let ItemWork::Kernel { kernel, args } = &mut items[1].work else {
        panic!("a kernel");
    };
    args[0] = turned;
    std::sync::Arc::make_mut(kernel).operands[0].access.terms = vec![
        Term::flat(0, n(rows), n(1)),
        Term::flat(1, n(cols), n(rows)),
    ];
    items.insert(1, turn);
    let want = outputs(&p, seed);
    let all = regions(&p);
    assert_eq!((all.len(), all[0].values.len()), (1, 2));
    for how in [Order::RowMajor, Order::LastTurned] {
        let q = laid(&p, &all[0], how);
        let changed = q.values.iter().zip(&p.values).filter(|(a, b)| a != b);
        assert_eq!(changed.count(), 1, "{how:?}");
        assert!(outputs(&q, seed) == want, "{how:?}, seed {seed}");
    }
}
