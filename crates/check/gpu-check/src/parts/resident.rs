//! The life of a kernel that stays: it starts, answers, idles, is given more than its ring holds, fails
//! tasks, makes room for another plan, and leaves.
use crate::broken::{BROKEN, caught};
use crate::device;
use crate::lines::{check, item, left, row};
use crate::options::Options;
use graph::{ContractSpec, GraphBuilder, Op, Origin};
use layout::{DType, Dim};
use report::units;
use runtime::Engine;
use shopfloor::{Launch, Model, ModelOptions, Session, Tensor};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::WeightStore;

/// Columns of the table.
pub const COLUMNS: &[&str] = &["figure", "value"];

const WIDTH: usize = 64;
const ROWS: usize = 96;

/// `nodes` products of [ROWS, WIDTH] with matrices of their own, of rows that an index picks where `picks`
/// says so.
fn model(nodes: usize, picks: bool) -> Result<Model, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let mut weights = WeightStore::new();
    let mut ids = vec![];
    for i in 0..nodes {
        let value = |j: usize| ((i * 31 + j * 7) % 17) as f32 / 68.0 - 0.1;
        let m: Vec<f32> = (0..WIDTH * WIDTH).map(value).collect();
        let t = Tensor::from_f32(&[WIDTH, WIDTH], &m).map_err(|e| text(&e))?;
        ids.push(
            weights
                .add_tensor(&format!("w{i}"), t)
                .map_err(|e| text(&e))?,
        );
    }
    let origin = |name: String, op: &str| Origin {
        name,
        op_type: op.into(),
    };
    let mut b = GraphBuilder::new("chain", Arc::new(weights));
    let mut x = b.input("x", DType::F32, vec![Dim::from(ROWS), Dim::from(WIDTH)]);
    if picks {
        let index = b.input("index", DType::I64, vec![Dim::from(4usize)]);
        let o = origin("pick".into(), "Gather");
        x = b
            .node(
                Op::Gather { axis: 0, batch: 0 },
                &[x, index],
                &["picked"],
                &o,
            )
            .map_err(|e| text(&e))?[0];
    }
    for (i, id) in ids.into_iter().enumerate() {
        let w = b.weight(id).map_err(|e| text(&e))?;
        let o = origin(format!("product{i}"), "MatMul");
        let op = Op::Contract(ContractSpec {
            a: vec![0, 1],
            b: vec![1, 2],
            out: vec![0, 2],
        });
        x = b
            .node(op, &[x, w], &[&format!("y{i}")], &o)
            .map_err(|e| text(&e))?[0];
    }
    let graph = b.finish(&[x]);
    Model::from_graph("chain", &graph, &ModelOptions::default()).map_err(|e| text(&e))
}

fn input(seed: usize) -> Result<Tensor, String> {
    let value = |i: usize| ((i * 13 + seed * 5) % 64) as f32 / 64.0 - 0.3;
    let values: Vec<f32> = (0..ROWS * WIDTH).map(value).collect();
    Tensor::from_f32(&[ROWS, WIDTH], &values).map_err(|e| e.to_string())
}

fn session(e: &Arc<Engine>, m: Model) -> Result<Session, String> {
    let b = Session::builder().with_engine(e.clone());
    b.commit(m).map_err(|e| e.to_string())
}

fn run_on(s: &Session, x: &Tensor) -> Result<Vec<u8>, String> {
    let out = s.run(&[("x", x)]).map_err(|e| e.to_string())?;
    let mut all = out.into_vec();
    all.pop()
        .map(|o| o.1.bytes().to_vec())
        .ok_or("there is no output".into())
}

/// What is wrong where `got` is not `want`.
fn same(got: &[u8], want: &[u8], when: &str) -> Result<(), String> {
    match got == want {
        true => Ok(()),
        false => Err(format!("{when}: other bits than step by step")),
    }
}

struct Both {
    stays: Arc<Engine>,
    steps: Arc<Engine>,
    /// Times that requests are repeated.
    turns: usize,
    emulated: bool,
}

impl Both {
    fn want(&self, nodes: usize, x: &Tensor) -> Result<Vec<u8>, String> {
        run_on(&session(&self.steps, model(nodes, false)?)?, x)
    }

    fn answers(&self) -> Result<String, String> {
        let s = session(&self.stays, model(3, false)?)?;
        let mut all = vec![];
        for i in 0..3 {
            let x = input(i)?;
            all.push((self.want(3, &x)?, x));
        }
        for turn in 0..self.turns {
            let (want, x) = &all[turn % 3];
            same(&run_on(&s, x)?, want, &format!("request {turn}"))?;
        }
        Ok(format!("{} requests", self.turns))
    }

    fn round_trips(&self) -> Result<String, String> {
        let s = session(&self.stays, model(2, false)?)?;
        run_on(&s, &input(0)?)?;
        let d = self.stays.device();
        let mut all = vec![];
        let count = if self.emulated { 5 } else { 2000 };
        for n in 0..count + 20 {
            let ns = d.round_trip_ns().map_err(|e| e.to_string())?;
            let ns = ns.ok_or("no kernel answered within the watchdog's time")?;
            if n >= 20 || self.emulated {
                all.push(ns as f64 * 1e-9);
            }
        }
        all.sort_by(f64::total_cmp);
        let at = |share: f64| units::seconds(all[((all.len() - 1) as f64 * share) as usize]);
        let median = at(0.5);
        row(vec![
            format!("acknowledged round trip, median of {}", all.len()),
            median.clone(),
        ]);
        row(vec!["the same, 99 of 100 within".into(), at(0.99)]);
        row(vec!["the same, at best".into(), at(0.0)]);
        row(vec![
            "what is aimed at on an H100, median".into(),
            units::seconds(report::ROUND_TRIP_AIM_US * 1e-6),
        ]);
        Ok(format!("{median} in the median"))
    }

    fn idles(&self) -> Result<String, String> {
        let x = input(0)?;
        let s = session(&self.stays, model(2, false)?)?;
        let want = self.want(2, &x)?;
        same(&run_on(&s, &x)?, &want, "before")?;
        let pause = Duration::from_millis(if self.emulated { 100 } else { 2000 });
        std::thread::sleep(pause);
        same(&run_on(&s, &x)?, &want, "after it idled")?;
        Ok(format!(
            "{} without a request",
            units::seconds(pause.as_secs_f64())
        ))
    }

    fn full_ring(&self) -> Result<String, String> {
        let s = session(&self.stays, model(2, false)?)?;
        let mut all = vec![];
        for i in 0..9 {
            let x = input(i)?;
            all.push((self.want(2, &x)?, x));
        }
        let turns = self.turns.div_ceil(9);
        let came: Vec<Result<(), String>> = std::thread::scope(|scope| {
            let each = all.iter().map(|(want, x)| {
                let s = &s;
                scope.spawn(move || {
                    (0..turns).try_for_each(|n| same(&run_on(s, x)?, want, &format!("turn {n}")))
                })
            });
            let each: Vec<_> = each.collect();
            let joined = each.into_iter().map(|h| h.join());
            joined
                .map(|r| r.unwrap_or(Err("a caller panicked".into())))
                .collect()
        });
        came.into_iter().collect::<Result<Vec<()>, String>>()?;
        Ok(format!("9 callers at once, {} requests", 9 * turns))
    }

    fn failed_task(&self) -> Result<String, String> {
        let s = session(&self.stays, model(2, true)?)?;
        let x = input(0)?;
        let run = |index: [i64; 4]| {
            let index = Tensor::from_i64(&[4], &index).map_err(|e| e.to_string())?;
            let out = s.run(&[("x", &x), ("index", &index)]);
            let mut all = out.map_err(|e| e.to_string())?.into_vec();
            let last = all.pop().ok_or("there is no output")?;
            Ok::<_, String>(last.1.bytes().to_vec())
        };
        let well = run([1, 0, 95, 7])?;
        for _ in 0..3 {
            match run([0, 1, 2, ROWS as i64]) {
                Ok(_) => return Err("an index past the end gave a result".into()),
                Err(e) if e.contains("pick") => {}
                Err(e) => return Err(format!("the error does not name the step: {e}")),
            }
            same(&run([1, 0, 95, 7])?, &well, "after the failed request")?;
        }
        Ok("the request's error, and the next one works".into())
    }

    fn swap(&self) -> Result<String, String> {
        let x = input(0)?;
        let one = session(&self.stays, model(2, false)?)?;
        let two = session(&self.stays, model(4, false)?)?;
        let (first, second) = (self.want(2, &x)?, self.want(4, &x)?);
        let turns = self.turns.div_ceil(6).max(2);
        // What is compiled before counts as no swap.
        same(&run_on(&one, &x)?, &first, "the first plan")?;
        same(&run_on(&two, &x)?, &second, "the second plan")?;
        let began = Instant::now();
        for _ in 0..turns {
            same(&run_on(&one, &x)?, &first, "the first plan, again")?;
            same(&run_on(&two, &x)?, &second, "the second plan, again")?;
        }
        let each = began.elapsed().as_secs_f64() / (2 * turns) as f64;
        if !self.emulated {
            row(vec![
                "a request that swaps the plan: drain, exit, launch".into(),
                units::seconds(each),
            ]);
        }
        drop(two);
        same(&run_on(&one, &x)?, &first, "after the other plan went")?;
        Ok(format!("{} swaps", 2 * turns))
    }
}

/// Everything of an engine goes while its kernel runs, and another one starts.
fn drain_and_stop(o: &Options) -> Result<String, String> {
    let x = input(0)?;
    let steps = device::engine(o, Launch::Steps)?;
    let want = run_on(&session(&steps, model(2, false)?)?, &x)?;
    for turn in 0..3 {
        let stays = device::engine(o, Launch::Resident)?;
        let s = session(&stays, model(2, false)?)?;
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..3).map(|_| scope.spawn(|| run_on(&s, &x))).collect();
            all.into_iter().try_for_each(|h| {
                let got = h.join().unwrap_or(Err("a caller panicked".into()))?;
                same(&got, &want, &format!("start {turn}"))
            })
        })?;
    }
    Ok("3 engines, one after the other".into())
}

/// The textbook case: many batches of a short kernel, launched one by one and by a kernel that stays.
fn textbook(o: &Options) -> Result<String, String> {
    let with = |launch: Launch| {
        Ok::<_, String>(Session::builder().with_engine(device::engine(o, launch)?))
    };
    let (launched, stays) = (with(Launch::Steps)?, with(Launch::Resident)?);
    let r =
        shopfloor_tools::persistent(launched, stays, None, &|_| {}).map_err(|e| e.to_string())?;
    let us = |v: f64| units::seconds(v * 1e-6);
    let what = format!(
        "{} batches of {} ({})",
        r.batches,
        r.kernel,
        us(r.kernel_us)
    );
    row(vec![format!("{what}, copy-launch-copy"), us(r.launched_us)]);
    row(vec!["the same, predicted".into(), us(r.predicted_us.0)]);
    row(vec![
        "the same, by a kernel that stays".into(),
        us(r.resident_us),
    ]);
    row(vec!["the same, predicted".into(), us(r.predicted_us.1)]);
    Ok(format!(
        "{:.2} times as fast when it stays",
        r.launched_us / r.resident_us
    ))
}

/// All of it.
pub fn run(o: &Options) -> Result<(), String> {
    let both = || {
        Ok::<_, String>(Both {
            stays: device::engine(o, Launch::Resident)?,
            steps: device::engine(o, Launch::Steps)?,
            turns: if o.emulated() { 6 } else { 300 },
            emulated: o.emulated(),
        })
    };
    let b = both()?;
    type Item<'a> = (&'a str, Box<dyn Fn() -> Result<String, String> + 'a>);
    let items: [Item<'_>; 8] = [
        ("it starts and answers", Box::new(|| b.answers())),
        (
            "a request without work comes back",
            Box::new(|| b.round_trips()),
        ),
        ("it idles and goes on", Box::new(|| b.idles())),
        (
            "more requests than the ring holds",
            Box::new(|| b.full_ring()),
        ),
        (
            "a failed task is its request's error",
            Box::new(|| b.failed_task()),
        ),
        ("plans take turns", Box::new(|| b.swap())),
        (
            "it drains and stops, and another one starts",
            Box::new(|| drain_and_stop(o)),
        ),
        ("the textbook case", Box::new(|| textbook(o))),
    ];
    for (n, (what, run)) in items.iter().enumerate() {
        if (n as u64) < o.past {
            continue;
        }
        if o.rest().is_zero() {
            left(*what, "there was no time left");
            continue;
        }
        item(n as u64, *what);
        if !check(*what, caught(run)) && !device::sound(o) {
            std::process::exit(i32::from(BROKEN));
        }
    }
    left(
        "a wait that never ends, made on purpose",
        "it takes a compiler that is made to err, which only the emulated driver has; crates/check/testkit/tests/resident_life.rs",
    );
    Ok(())
}
