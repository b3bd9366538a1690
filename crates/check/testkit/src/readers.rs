//! Everything that reads bytes from outside, under one roof: the campaign of damaged files
//! (`cargo xtask fuzz --readers`) and the targets in `fuzz/` run the same entry points.
//!
//! A reader may refuse what it is given, in a sentence; it may not panic, hang, take memory without
//! end, or let what it took for sound do harm later: a plan that passes is run, a cache that was
//! touched has to give the same answer.
use crate::mutate::{damaged, damaged_proto, damaged_text, stored, unstored};
use crate::random::Rng;
use crate::zoo;
use machine::Machine;
use shopfloor::{Cache, Engine, Model, ModelOptions, Session, Tensor, default_engine, inputs};
use shopfloor_tools::planview;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Models up to this size are damaged, in bytes.
const MOST: u64 = 64 << 10;

/// What readers stand on: an engine, a scratch folder, a small model with its answer.
pub struct Bench {
    engine: Arc<Engine>,
    folder: tempfile::TempDir,
    model: PathBuf,
    session: Session,
    named: Vec<(String, Tensor)>,
    want: Vec<(String, Tensor)>,
    /// A sound cache's files.
    cache: Vec<(PathBuf, Vec<u8>)>,
}

/// One reader.
pub struct Reader {
    /// Its name on the command line and in `fuzz/`.
    pub name: &'static str,
    /// What it reads.
    pub what: &'static str,
    /// Sound inputs to start from.
    pub seeds: fn(&Bench) -> Result<Vec<Vec<u8>>, String>,
    /// A damaged copy that gets past the first check.
    pub damage: fn(&[u8], &mut Rng) -> Vec<u8>,
    /// Reads, and uses what it read; `Ok(true)` when it was taken for sound. An error is a broken
    /// promise, not a refusal.
    pub read: fn(&Bench, &[u8]) -> Result<bool, String>,
}

/// All readers.
pub const READERS: &[Reader] = &[
    Reader {
        name: "model",
        what: "ONNX models, read, lowered and planned",
        seeds: models,
        damage: model_damage,
        read: read_model,
    },
    Reader {
        name: "npz",
        what: "archives of arrays",
        seeds: npzs,
        damage: npz_damage,
        read: |_, b| Ok(data::npz_from_bytes("x.npz", b).is_ok()),
    },
    Reader {
        name: "npy",
        what: "arrays",
        seeds: |_| Ok(tensors().iter().map(data::npy_to_bytes).collect()),
        damage: damaged,
        read: |_, b| Ok(data::npy_from_bytes("x.npy", b).is_ok()),
    },
    Reader {
        name: "pb",
        what: "ONNX tensors",
        seeds: |_| {
            Ok(tensors()
                .iter()
                .map(|t| data::pb_to_bytes("x", t))
                .collect())
        },
        damage: damaged_proto,
        read: |_, b| Ok(data::pb_from_bytes("x.pb", b).is_ok()),
    },
    Reader {
        name: "plan",
        what: "plan files, verified and run",
        seeds: plans,
        damage: damaged_text,
        read: read_plan,
    },
    Reader {
        name: "machine",
        what: "machine descriptions and measurements, planned for",
        seeds: machines,
        damage: damaged_text,
        read: read_machine,
    },
    Reader {
        name: "cache",
        what: "files of the cache: first byte which one, then what it holds",
        seeds: caches,
        damage: cache_damage,
        read: read_cache,
    },
    Reader {
        name: "graph",
        what: "graphs as text",
        seeds: graphs,
        damage: damaged_text,
        read: |_, b| Ok(text(b).is_some_and(|t| graph::Graph::parse(t).is_ok())),
    },
    Reader {
        name: "words",
        what: "dims, layouts, expressions and monoids as text",
        seeds: |_| {
            Ok([
                "batch*(past+new)-3",
                "(4,(2,3)):(24,(12,4))+0",
                "%0 = input 0 f32; %1 = const 0.5 f32; %2 = mul %0 %1; out %2",
            ]
            .map(|s| s.as_bytes().to_vec())
            .to_vec())
        },
        damage: damaged_text,
        read: |_, b| {
            let Some(t) = text(b) else { return Ok(false) };
            let dim = t.parse::<layout::Dim>().is_ok();
            let other = t.parse::<layout::Layout>().is_ok()
                || t.parse::<expr::Expr>().is_ok()
                || t.parse::<expr::Monoid>().is_ok();
            Ok(dim || other)
        },
    },
];

/// The reader called `name`.
pub fn find(name: &str) -> Option<&'static Reader> {
    READERS.iter().find(|r| r.name == name)
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn say(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn files(folder: &Path, out: &mut Vec<(PathBuf, Vec<u8>)>) -> Result<(), String> {
    for e in std::fs::read_dir(folder).map_err(say)?.flatten() {
        match e.path().is_dir() {
            true => files(&e.path(), out)?,
            false => out.push((e.path(), std::fs::read(e.path()).map_err(say)?)),
        }
    }
    out.sort();
    Ok(())
}

impl Bench {
    /// Starts an engine with one worker and answers the small model once.
    ///
    /// # Errors
    /// As one text; nothing in it depends on what will be read.
    pub fn new() -> Result<Bench, String> {
        let engine = default_engine(Some(1), None, None).map_err(say)?;
        let folder = tempfile::tempdir().map_err(say)?;
        let model = zoo::bundled().join("digits_cnn/model.onnx");
        let session = Session::builder()
            .with_engine(engine.clone())
            .commit_from_file(&model)
            .map_err(say)?;
        let (sizes, _) = inputs::sizes(session.model());
        let named = inputs::random_inputs(session.model(), &sizes).map_err(say)?;
        let mut bench = Bench {
            want: answer(&session, &named)?,
            engine,
            folder,
            model,
            session,
            named,
            cache: vec![],
        };
        let cached = bench.cached()?;
        answer(&cached, &bench.named)?;
        files(&bench.cache_folder(), &mut bench.cache)?;
        Ok(bench)
    }

    fn cache_folder(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn cached(&self) -> Result<Session, String> {
        Session::builder()
            .with_engine(self.engine.clone())
            .with_cache(Cache::new(self.cache_folder()))
            .commit_from_file(&self.model)
            .map_err(say)
    }
}

fn answer(s: &Session, named: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>, String> {
    let out = s.run(&inputs::borrowed(named)).map_err(say)?;
    Ok(out.into_vec())
}

/// Small arrays of several types and ranks.
fn tensors() -> Vec<Tensor> {
    let mut rng = Rng::new(1);
    let mut out = Vec::new();
    for dtype in layout::DType::ALL {
        for shape in [&[][..], &[3], &[2, 0], &[2, 1, 4]] {
            out.extend(rng.tensor(dtype, shape));
        }
    }
    out
}

fn models(_: &Bench) -> Result<Vec<Vec<u8>>, String> {
    let mut out = Vec::new();
    for m in zoo::names().iter().filter_map(|n| zoo::find(n)) {
        let path = m.folder().join("model.onnx");
        // Weights beside the file are not there for a copy: those models are refused too early.
        let small = std::fs::metadata(&path).is_ok_and(|x| x.len() <= MOST);
        if small && !m.is_generated() {
            out.push(std::fs::read(path).map_err(say)?);
        }
    }
    Ok(out)
}

fn model_damage(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    match rng.once_in(4) {
        true => damaged(bytes, rng),
        false => damaged_proto(bytes, rng),
    }
}

/// Opens a model, makes a session of it and plans it.
fn read_model(bench: &Bench, bytes: &[u8]) -> Result<bool, String> {
    let path = bench.folder.path().join("damaged.onnx");
    std::fs::write(&path, bytes).map_err(say)?;
    let planned = || -> Result<(), shopfloor::Error> {
        let model = Model::open(&path, &ModelOptions::default())?;
        let (sizes, _) = inputs::sizes(&model);
        let dims = inputs::box_of(&model, &sizes);
        let session = Session::builder()
            .with_engine(bench.engine.clone())
            .commit(model)?;
        session.plan(&dims)?;
        Ok(())
    };
    Ok(planned().is_ok())
}

fn npzs(_: &Bench) -> Result<Vec<Vec<u8>>, String> {
    let mut out = vec![data::npz_to_bytes(&[]).map_err(say)?];
    let all: Vec<(String, Tensor)> = tensors()
        .into_iter()
        .enumerate()
        .map(|(i, t)| (format!("x{i}"), t))
        .collect();
    let npy = |(n, t): &(String, Tensor)| (format!("{n}.npy"), data::npy_to_bytes(t));
    out.push(stored(&all.iter().map(npy).collect::<Vec<_>>()));
    // Compressed ones, as numpy writes them.
    for name in ["digits_cnn", "silero_vad"] {
        if let Some(m) = zoo::find(name) {
            out.extend(std::fs::read(m.folder().join("outputs.npz")));
        }
    }
    Ok(out)
}

fn npz_damage(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    match unstored(bytes) {
        // What an entry holds, with the check sum that belongs to it.
        Some(mut entries) if !entries.is_empty() && !rng.once_in(3) => {
            let at = rng.below(entries.len());
            let head = entries[at].1.len().min(128);
            let bad = damaged(&entries[at].1[..head], rng);
            entries[at].1.splice(..head, bad);
            stored(&entries)
        }
        _ => damaged(bytes, rng),
    }
}

fn plans(bench: &Bench) -> Result<Vec<Vec<u8>>, String> {
    let path = bench.folder.path().join("plan.json");
    let (sizes, _) = inputs::sizes(bench.session.model());
    let dims = inputs::box_of(bench.session.model(), &sizes);
    let plan = bench.session.plan(&dims).map_err(say)?;
    planview::save(&plan, &path).map_err(say)?;
    Ok(vec![std::fs::read(path).map_err(say)?])
}

/// A plan that is taken has to run without harm; what it computes is its own affair.
fn read_plan(bench: &Bench, bytes: &[u8]) -> Result<bool, String> {
    let path = bench.folder.path().join("damaged.json");
    std::fs::write(&path, bytes).map_err(say)?;
    let Ok(plan) = planview::load(&path) else {
        return Ok(false);
    };
    if bench.session.swap_plan(plan).is_err() {
        return Ok(false);
    }
    let _ = bench.session.run(&inputs::borrowed(&bench.named));
    Ok(true)
}

fn machines(_: &Bench) -> Result<Vec<Vec<u8>>, String> {
    let mut out = Vec::new();
    for m in machine::catalog() {
        out.push(m.machine.to_toml().map_err(say)?.into_bytes());
    }
    Ok(out)
}

/// A machine that is taken can be planned for: a CPU with the small model's session.
fn read_machine(bench: &Bench, bytes: &[u8]) -> Result<bool, String> {
    let Some(t) = text(bytes) else {
        return Ok(false);
    };
    let _ = machine::Measurements::from_toml(t, "x.toml");
    let Ok(m) = Machine::from_toml(t, "x.toml") else {
        return Ok(false);
    };
    let target = bench.engine.device().target().clone();
    let planner = planner::Planner::new(vec![(m, target)], planner::PlanOptions::default());
    let model = bench.session.model();
    let (sizes, _) = inputs::sizes(model);
    let allotment = plan::Allotment {
        workers: vec![],
        memory: None,
        goal: plan::Goal::default(),
    };
    let dims = inputs::box_of(model, &sizes);
    Ok(plan::Planner::bind(&planner, model.program(), &dims, &allotment).is_ok())
}

fn caches(bench: &Bench) -> Result<Vec<Vec<u8>>, String> {
    let one = |(i, f): (usize, &(PathBuf, Vec<u8>))| {
        let mut v = vec![i as u8];
        v.extend(&f.1);
        v
    };
    Ok(bench.cache.iter().enumerate().map(one).collect())
}

fn cache_damage(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let Some((&which, rest)) = bytes.split_first() else {
        return vec![0];
    };
    let mut out = vec![which];
    let is_text = rest.starts_with(b"{");
    out.extend(match is_text {
        true => damaged_text(rest, rng),
        false => damaged(rest, rng),
    });
    out
}

/// One of a sound cache's files is replaced; the answer stays what it was.
fn read_cache(bench: &Bench, bytes: &[u8]) -> Result<bool, String> {
    for (path, sound) in &bench.cache {
        std::fs::write(path, sound).map_err(say)?;
    }
    if let (Some((&which, rest)), false) = (bytes.split_first(), bench.cache.is_empty()) {
        let (path, _) = &bench.cache[usize::from(which) % bench.cache.len()];
        std::fs::write(path, rest).map_err(say)?;
    }
    let got = answer(&bench.cached()?, &bench.named)?;
    match got == bench.want {
        true => Ok(true),
        false => Err("a damaged cache changed an answer".into()),
    }
}

fn graphs(_: &Bench) -> Result<Vec<Vec<u8>>, String> {
    let cases = (1..60).filter_map(|s| crate::random::Case::new(s).ok());
    Ok(cases
        .map(|c| c.graph.to_text().into_bytes())
        .take(30)
        .collect())
}
