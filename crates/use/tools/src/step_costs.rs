//! What steps cost beside their arithmetic and their bytes on this CPU: a step, a statement on a tile, a row, a
//! call of a micro-kernel. Nothing measures them by themselves; they follow from whole steps that run alone.
use crate::op_model;
use machine::{Measurements, Sourced};
use shopfloor::{Error, Machine, Model, ModelOptions, Session, Timeline, inputs};
use std::time::{Duration, Instant};

/// Products, convolutions and elementwise functions, from small ones up to some that fill a cache.
const OPS: [&str; 9] = [
    "matmul:16x64x384:f32",
    "matmul:16x16x64:f32",
    "matmul:64x128x64:f32",
    "matmul:128x256x256:f32",
    "conv:8,1,8,8,24,3,3,1,1",
    "conv:8,24,4,4,48,3,3,1,1",
    "conv:1,16,28,28,32,3,3,1,1",
    "map:4096:f32:add",
    "map:2048:f32:relu",
];

/// A pool of `c` channels that lie next to each other: rows as short as they are.
fn pool(images: usize, side: usize, c: usize) -> String {
    let (row, out) = (side * c, side / 2);
    format!(
        "kernel pool (pool)\nspace  n: {}  x: {out}  i: 2  j: 2  c: {c}\n\
         read  a f32 = n*({}) + x*({}) + i*({row}) + j*({c}) + c*(1)\n\
         write  b f32 = n*({}) + x*({c}) + c*(1)\n\
         most : f32 [n,x,c] = -inf\nv : f32 [n,x,i,j,c] = load a\n\
         most = fold max of v over i,j\nstore b = most\n",
        images * out,
        2 * row,
        2 * c,
        out * c
    )
}

/// A softmax of `rows` rows.
fn softmax(rows: usize, n: usize) -> String {
    format!(
        "kernel softmax (row)\nspace  r: {rows}  c: {n}\nread  a f32 = r*({n}) + c*(1)\nwrite  b f32 = r*({n}) + c*(1)\n\
         most : f32 [r] = -inf\nv : f32 [r,c] = load a\nmost = fold max of v over c\n\
         e : f32 [r,c] = exp(v - most)\nsum : f32 [r] = 0\nsum = fold sum of e over c\n\
         y : f32 [r,c] = e/sum\nstore b = y\n"
    )
}

/// Models of one step each.
pub fn models() -> Vec<Result<Model, Error>> {
    let texts = [
        pool(16, 8, 24),
        pool(16, 4, 48),
        pool(1, 16, 64),
        softmax(16, 10),
        softmax(64, 16),
        softmax(8, 128),
    ];
    let of_text = |t: &String| Model::from_kernel(t, &[], &ModelOptions::default());
    let ops = OPS.iter().map(|op| op_model(op));
    ops.chain(texts.iter().map(of_text)).collect()
}

/// A step that ran alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Seconds that it took.
    pub took_s: f64,
    /// Seconds that it is predicted to take without the costs that are sought.
    pub rest_s: f64,
    /// Steps, statements, rows and calls.
    pub counts: [f64; 4],
}

/// Requests of a model at most.
const REQUESTS: usize = 60;
/// Requests before those.
const WARM: usize = 5;

/// Runs the steps of `model` alone, for at most `budget`.
fn samples(model: Model, machine: &Machine, budget: Duration) -> Result<Vec<Sample>, Error> {
    let session = Session::builder()
        .with_threads(1)
        .with_machine(machine.clone())
        .commit(model)?;
    let sizes = inputs::sizes(session.model()).0;
    let named = inputs::random_inputs(session.model(), &sizes)?;
    let borrowed = inputs::borrowed(&named);
    for _ in 0..WARM {
        session.run(&borrowed)?;
    }
    let (mut names, mut walls) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while walls.len() < REQUESTS && (walls.is_empty() || began.elapsed() < budget) {
        let mut t = Timeline::default();
        session.run_timed(&borrowed, &mut t)?;
        walls.push(t.step_wall_ns());
        names = t.steps;
    }
    let own = costs(machine);
    let mut out = Vec::new();
    for plan in session.runtime().plans() {
        for step in plan.plan().blocks().flat_map(|b| &b.steps) {
            let Some(at) = names.iter().position(|n| *n == step.name) else {
                continue;
            };
            let mut each: Vec<u64> = walls.iter().filter_map(|w| w.get(at).copied()).collect();
            each.sort_unstable();
            let w = &step.cost_work;
            let counts = [w.steps as f64, w.statements as f64, w.rows, w.calls];
            let of: f64 = counts.iter().zip(own).map(|(n, c)| n * c).sum();
            out.push(Sample {
                // Whoever else ran meanwhile only made it longer.
                took_s: each.get(each.len() / 4).copied().unwrap_or(0) as f64 * 1e-9,
                rest_s: step.predicted.time_s - of,
                counts,
            });
        }
    }
    Ok(out)
}

fn costs(m: &Machine) -> [f64; 4] {
    let c = &m.costs;
    [c.step_s, c.tile_s, c.row_s, c.call_s].map(|v| v.value)
}

/// How much less a guess counts than a step that was measured.
const GUESS: f64 = 0.03;

/// The costs, none below 0, under which the predictions of `samples` are nearest to what they took, as shares of that.
/// What no sample tells stays near `guess`.
pub fn fit(samples: &[Sample], guess: [f64; 4]) -> [f64; 4] {
    // Rows of an overdetermined system, in units of the guesses.
    let guess = guess.map(|g| g.max(1e-12));
    let mut rows: Vec<([f64; 4], f64)> = samples
        .iter()
        .filter(|s| s.took_s > 0.0)
        .map(|s| {
            let each = std::array::from_fn(|i| s.counts[i] * guess[i] / s.took_s);
            (each, (s.took_s - s.rest_s) / s.took_s)
        })
        .collect();
    for i in 0..4 {
        let mut own = [0.0; 4];
        own[i] = GUESS;
        rows.push((own, GUESS));
    }
    // Which of them are 0 is tried out: there are sixteen ways.
    let error = |x: &[f64; 4]| -> f64 {
        let off = |(a, b): &([f64; 4], f64)| a.iter().zip(x).map(|(a, x)| a * x).sum::<f64>() - b;
        rows.iter().map(|r| off(r).powi(2)).sum()
    };
    let ways = (1..16u32).filter_map(|used| solve(&rows, used));
    let legal = ways.filter(|x| x.iter().all(|v| *v >= 0.0));
    let best = legal.min_by(|a, b| error(a).total_cmp(&error(b)));
    let x = best.unwrap_or([1.0; 4]);
    std::array::from_fn(|i| x[i] * guess[i])
}

/// Least squares over the unknowns in `used`, the others 0.
fn solve(rows: &[([f64; 4], f64)], used: u32) -> Option<[f64; 4]> {
    let mut m = [[0.0f64; 5]; 4];
    for i in 0..4 {
        let on = used & 1 << i != 0;
        for (a, b) in rows.iter().filter(|_| on) {
            for j in (0..4).filter(|j| used & 1 << j != 0) {
                m[i][j] += a[i] * a[j];
            }
            m[i][4] += a[i] * b;
        }
        if !on {
            m[i][i] = 1.0;
        }
    }
    // Symmetric and positive: no need to exchange rows.
    for i in 0..4 {
        let pivot = m[i][i];
        if pivot.abs() < 1e-30 {
            return None;
        }
        for k in 0..4 {
            if k != i {
                let by = m[k][i] / pivot;
                let row = m[i];
                m[k].iter_mut().zip(row).for_each(|(v, r)| *v -= by * r);
            }
        }
    }
    Some(std::array::from_fn(|i| m[i][4] / m[i][i]))
}

/// Adds to `measured`, of the CPU that was detected as `detected`, what steps cost beside their work, found within
/// about `budget`; `progress` hears the share done.
///
/// # Errors
/// As [`shopfloor::SessionBuilder::commit`].
pub(crate) fn measure(
    detected: &Machine,
    measured: &mut Measurements,
    budget: Duration,
    progress: &mut dyn FnMut(f64),
) -> Result<(), Error> {
    let assumed = costs(detected);
    let mut machine = detected.calibrated(measured);
    // Steps of one worker send no messages.
    machine.costs.step_s = Sourced::assumed(assumed[0]);
    let began = Instant::now();
    let all = models();
    let (count, each) = (all.len(), budget / (2 * all.len()) as u32);
    let mut found = Vec::new();
    for (i, model) in all.into_iter().enumerate() {
        if began.elapsed() > budget {
            break;
        }
        progress(i as f64 / count as f64);
        found.extend(samples(model?, &machine, each)?);
    }
    if found.is_empty() {
        return Ok(());
    }
    let [step, tile, row, call] = fit(&found, assumed);
    measured.step_s = Some(step);
    measured.tile_s = Some(tile);
    measured.row_s = Some(row);
    measured.call_s = Some(call);
    Ok(())
}
