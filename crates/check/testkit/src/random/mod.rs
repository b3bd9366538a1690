//! Random small graphs over all core ops, run through the whole product and compared with the
//! oracle: [`Case::new`] makes one from a seed, [`check`] runs it.
mod heavy;
mod light;
mod making;
mod quantised;
mod schedules;

use crate::compare::difference;
use graph::{Graph, GraphBuilder, ValueId};
use layout::{DType, Dim, DimBox};
use machine::Machine;
use shopfloor::{Engine, Model, ModelOptions, Session, default_engine};
use std::sync::Arc;

pub use making::Rng;
use making::{Gen, origin};
pub use schedules::check_schedules;
use tensor::{Tensor, WeightStore};

/// A random graph with inputs for it.
pub struct Case {
    /// What it was made from.
    pub seed: u64,
    /// The graph.
    pub graph: Graph,
    /// One tensor for each input.
    pub inputs: Vec<(String, Tensor)>,
    /// The box that its plan is made for.
    pub dims: DimBox,
}

impl Case {
    /// The case of a seed.
    ///
    /// # Errors
    /// The generator made something that the graph's own rules refuse; says what.
    pub fn new(seed: u64) -> Result<Case, String> {
        let mut g = Gen {
            r: Rng::new(seed),
            b: GraphBuilder::new("random", Arc::new(WeightStore::new())),
            pool: vec![],
            names: 0,
        };
        let sizes = [
            ("n", g.r.of(&[0, 1, 1, 2, 3, 5])),
            ("s", g.r.of(&[1, 2, 4, 7, 17])),
        ];
        let size = |d: &Dim| match d.known() {
            Some(n) => n as usize,
            None if *d == Dim::sym("n") => sizes[0].1,
            None => sizes[1].1,
        };
        let (n, s, k) = (Dim::sym("n"), Dim::sym("s"), Dim::Known);
        let t = s.clone();
        let (few, odd) = (g.r.of(&[1, 4, 16, 33]), g.r.of(&[1, 6, 15, 40]));
        let shapes = [
            (DType::F32, vec![n.clone(), k(few)]),
            (DType::F32, vec![n.clone(), s.clone(), k(odd)]),
            (DType::F32, vec![n.clone(), k(4), k(9), s.clone()]),
            (DType::F32, vec![k(2), s.clone(), k(8)]),
            (DType::F32, vec![]),
            (DType::I64, vec![n.clone(), k(3)]),
            (DType::I32, vec![s.clone()]),
            (DType::Bool, vec![n.clone(), s.clone(), k(1)]),
            (DType::U8, vec![s.clone(), k(5)]),
            (DType::F16, vec![n.clone(), k(7)]),
            (DType::U8, vec![n.clone(), k(few * 2), s.clone(), k(6)]),
            (DType::I8, vec![n.clone(), s, k(48)]),
            (DType::U8, vec![n.clone(), k(g.r.of(&[4, 7, 24]))]),
            (
                DType::I8,
                vec![n.clone(), k(g.r.of(&[1, 3, 8, 20])), k(7), t.clone()],
            ),
            (DType::U8, vec![k(2), k(g.r.of(&[3, 12])), t, k(5)]),
            (DType::F32, vec![n, k(32)]),
        ];
        let mut inputs = vec![];
        for (i, (dtype, shape)) in shapes.into_iter().enumerate() {
            if i > 1 && g.r.once_in(2) {
                continue;
            }
            let name = format!("x{i}");
            let extents: Vec<usize> = shape.iter().map(size).collect();
            let t =
                g.r.tensor(dtype, &extents)
                    .ok_or("an input cannot be made")?;
            inputs.push((name.clone(), t));
            let v = g.b.input(&name, dtype, shape);
            g.pool.push(v);
        }
        let steps = 2 + g.r.below(9);
        for _ in 0..steps {
            let made = match g.r.below(5) {
                0 | 1 => light::step(&mut g),
                2 | 3 => heavy::step(&mut g),
                _ => quantised::step(&mut g),
            };
            g.pool.extend(made.unwrap_or_default());
        }
        // What nobody reads is an output, and some values that are read as well.
        let readers = g.b.graph().readers();
        let outputs: Vec<ValueId> = g
            .pool
            .clone()
            .into_iter()
            .filter(|v| g.b.graph().producer(*v).is_some())
            .filter(|v| readers[v.0 as usize].is_empty() || g.r.once_in(6))
            .collect();
        if outputs.is_empty() {
            return Case::new(seed.wrapping_mul(31).wrapping_add(7));
        }
        let mut dims = DimBox::default();
        for (name, size) in sizes {
            match g.r.below(3) {
                0 => dims.insert(name, size as i64, size as i64),
                1 => dims.insert(
                    name,
                    g.r.below(size + 1) as i64,
                    (size + g.r.below(9)) as i64,
                ),
                _ => {}
            }
        }
        let graph = g.b.finish(&outputs);
        graph.verify().map_err(|e| format!("seed {seed}: {e}"))?;
        Ok(Case {
            seed,
            graph,
            inputs,
            dims,
        })
    }
}

/// Engines that cases run on: the best instruction set with one and with two workers, and the
/// portable code; each also with machines whose levels have other sizes, so that the planner picks
/// other schedules.
pub struct Engines(Vec<(String, Arc<Engine>)>);

impl Engines {
    /// Starts them.
    ///
    /// # Errors
    /// Threads cannot be started.
    pub fn start() -> Result<Engines, String> {
        let e = |x: shopfloor::Error| x.to_string();
        let one = default_engine(Some(1), None, None).map_err(e)?;
        let mut list = vec![("1 worker".to_string(), one.clone())];
        list.push((
            "2 workers".into(),
            default_engine(Some(2), None, None).map_err(e)?,
        ));
        list.push((
            "portable".into(),
            default_engine(Some(1), Some(cpu::isa::Isa::Portable), None).map_err(e)?,
        ));
        let machine = one.device().machine().clone();
        for (name, divisor) in [("small levels", 64), ("smaller levels", 1024)] {
            let m = shrunk(&machine, divisor);
            list.push((
                name.into(),
                default_engine(Some(2), None, Some(m)).map_err(e)?,
            ));
        }
        Ok(Engines(list))
    }

    /// The engine that `case` runs on, with its name.
    pub fn of(&self, case: &Case) -> (&str, &Arc<Engine>) {
        let (name, engine) = &self.0[(case.seed % self.0.len() as u64) as usize];
        (name, engine)
    }
}

/// The machine with levels of a part of their size, and hand-offs for nothing.
fn shrunk(m: &Machine, divisor: u64) -> Machine {
    let mut m = m.clone();
    m.name = format!("{} / {divisor}", m.name);
    let last = m.levels.len().saturating_sub(1);
    for l in m.levels.iter_mut().take(last) {
        l.bytes.value = (l.bytes.value / divisor as f64).max(512.0);
        l.usable = None;
    }
    // Hand-offs that cost nothing make every wait for tiles worth its while that can be proved.
    m.costs.handoff_s.value = 1e-15;
    m
}

/// How a case that is as it should be came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every output agrees.
    Agrees,
    /// The oracle and the engine both refuse it: an index out of bounds, a size that does not fit.
    Refused,
}

/// Runs a case on one of the engines and compares every output with the oracle's.
///
/// # Errors
/// What differs, or what failed where the oracle did not, with the seed and the engine.
pub fn check(case: &Case, engines: &Engines) -> Result<Outcome, String> {
    let (how, engine) = engines.of(case);
    let fail = |what: &dyn std::fmt::Display| {
        Err(format!(
            "seed {} ({how}, box {}): {what}",
            case.seed, case.dims
        ))
    };
    let plain: Vec<Tensor> = case.inputs.iter().map(|(_, t)| t.clone()).collect();
    let expected = reference::run_graph(&case.graph, &plain);
    let options = ModelOptions {
        dims: case.dims.clone(),
        ..Default::default()
    };
    let got = Model::from_graph("random", &case.graph, &options).and_then(|m| {
        let session: Session = Session::builder()
            .with_engine(engine.clone())
            .with_model_options(options)
            .commit(m)?;
        let named: Vec<(&str, &Tensor)> =
            case.inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
        session.run(&named)
    });
    let (expected, got) = match (expected, got) {
        (Ok(e), Ok(g)) => (e, g.into_vec()),
        (Err(_), Err(_)) => return Ok(Outcome::Refused),
        (Err(e), Ok(_)) => {
            return fail(&format!("the oracle refuses it ({e}), the engine does not"));
        }
        (Ok(_), Err(e)) => return fail(&format!("the engine refuses it: {e}")),
    };
    match agreement(&case.graph, &expected, &got) {
        Ok(()) => Ok(Outcome::Agrees),
        Err(why) => fail(&why),
    }
}

/// Whether every output is the oracle's.
fn agreement(graph: &Graph, expected: &[Tensor], got: &[(String, Tensor)]) -> Result<(), String> {
    for ((want, (name, have)), &id) in expected.iter().zip(got).zip(&graph.outputs) {
        let apart = difference(have, want) * scale(want);
        // A node that reads a narrow float gives back how that was rounded, in whatever type: where
        // the value lay between two, sums in another order rounded it the other way.
        let made = graph.nodes.iter().find(|n| n.outputs.contains(&id));
        let read = made.into_iter().flat_map(|n| &n.inputs);
        let read = read.map(|&v| graph.value(v).dtype);
        let read = read.filter(|d| want.dtype().is_float() && d.is_float());
        let most = read.map(tolerance).fold(tolerance(want.dtype()), f64::max);
        if apart > most {
            return Err(format!("output {name} is {apart:e} off"));
        }
    }
    Ok(())
}

/// Values that cancelled to almost nothing are judged as if their largest were 1, which is the scale
/// of what they were made from.
fn scale(t: &Tensor) -> f64 {
    if !t.dtype().is_float() {
        return 1.0;
    }
    let top = (0..t.len()).map(|i| t.get_f64(i).abs());
    let top = top.filter(|v| v.is_finite()).fold(0.0, f64::max);
    if top < 1.0 { top } else { 1.0 }
}

/// Largest [`difference`]: sums in another order for f32, and one rounding of the type more for
/// narrower floats, each through a few nodes. An f64 here is an f32 that was widened on the way.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1e-2,
        DType::BF16 => 6e-2,
        _ => 2e-4,
    }
}
