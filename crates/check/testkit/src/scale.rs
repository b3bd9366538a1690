//! Large models of simple shapes, and what it costs to read, plan and run them: twice the nodes take twice
//! the time and memory, or somewhere all is looked at for each.
use crate::onnx_file::{Msg, graph_attribute, int_attribute, node, value};
use serde::{Deserialize, Serialize};
use shopfloor::{Model, ModelOptions, Session, inputs};
use shopfloor_tools::planview;
use std::path::Path;
use std::time::Instant;

const FLOAT: u64 = 1;
const BOOL: u64 = 9;

fn weight(name: &str, dims: &[u64], values: &[f32]) -> Msg {
    let m = dims.iter().fold(Msg::default(), |m, &d| m.int(1, d));
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    m.int(2, FLOAT).text(8, name).bytes(9, &bytes)
}

/// A graph under construction.
#[derive(Default)]
struct Made {
    body: Msg,
    functions: Msg,
}

impl Made {
    fn node(mut self, n: Msg) -> Made {
        self.body = std::mem::take(&mut self.body).sub(1, &n);
        self
    }

    fn op(self, op: &str, inputs: &[&str], outputs: &[&str]) -> Made {
        self.node(node(op, inputs, outputs))
    }

    fn weight(mut self, w: Msg) -> Made {
        self.body = self.body.sub(5, &w);
        self
    }

    fn input(mut self, name: &str, shape: &[&str]) -> Made {
        self.body = self.body.sub(11, &value(name, FLOAT, shape));
        self
    }

    fn output(mut self, name: &str, shape: &[&str]) -> Made {
        self.body = self.body.sub(12, &value(name, FLOAT, shape));
        self
    }

    fn file(self) -> Vec<u8> {
        let opset = |domain: &str| Msg::default().text(1, domain).int(2, 17);
        let m = Msg::default().int(1, 9).sub(7, &self.body.text(2, "scale"));
        let mut m = m.sub(8, &opset("")).sub(8, &opset("own"));
        m.0.extend(self.functions.0);
        m.0
    }
}

const ROWS: &[&str] = &["b", "8"];

/// `n` nodes of `op` after each other, with `more` inputs each.
fn chain(n: usize, op: &str, more: &[&str]) -> Made {
    let made = (0..n).fold(Made::default(), |m, i| {
        let (x, y) = (format!("v{i}"), format!("v{}", i + 1));
        let inputs: Vec<&str> = [x.as_str()]
            .into_iter()
            .chain(more.iter().copied())
            .collect();
        m.op(op, &inputs, &[&y])
    });
    made.input("v0", ROWS).output(&format!("v{n}"), ROWS)
}

fn relu(n: usize) -> Vec<u8> {
    chain(n, "Relu", &[]).file()
}

fn softmax(n: usize) -> Vec<u8> {
    chain(n, "Softmax", &[]).file()
}

fn matmul(n: usize) -> Vec<u8> {
    let values: Vec<f32> = (0..64).map(|i| f32::from(u8::from(i % 9 == 0))).collect();
    let w = weight("w", &[8, 8], &values);
    chain(n, "MatMul", &["w"]).weight(w).file()
}

fn weights(n: usize) -> Vec<u8> {
    let made = (0..n).fold(Made::default(), |m, i| {
        let (x, w, y) = (format!("v{i}"), format!("w{i}"), format!("v{}", i + 1));
        m.op("Add", &[&x, &w], &[&y])
            .weight(weight(&w, &[8], &[0.5; 8]))
    });
    made.input("v0", ROWS).output(&format!("v{n}"), ROWS).file()
}

fn one_name(n: usize) -> Vec<u8> {
    let made = (0..n).fold(Made::default(), |m, i| {
        let (x, y) = (format!("v{i}"), format!("v{}", i + 1));
        m.node(node("Relu", &[&x], &[&y]).text(3, "node"))
    });
    made.input("v0", ROWS).output(&format!("v{n}"), ROWS).file()
}

fn long_names(n: usize) -> Vec<u8> {
    let name = |i: usize| format!("{}{i}", "long".repeat(100));
    let made = (0..n).fold(Made::default(), |m, i| {
        m.op("Softmax", &[&name(i)], &[&name(i + 1)])
    });
    made.input(&name(0), ROWS).output(&name(n), ROWS).file()
}

fn outputs(n: usize) -> Vec<u8> {
    let made = (0..n).fold(Made::default(), |m, i| {
        let y = format!("y{i}");
        m.op("Softmax", &["x"], &[&y]).output(&y, ROWS)
    });
    made.input("x", ROWS).file()
}

/// `n` values joined, each made by `op` of an input of its own, or the inputs themselves.
fn join(n: usize, op: Option<&str>, rows: &dyn Fn(usize) -> String) -> Vec<u8> {
    let mut all = Vec::new();
    let mut made = (0..n).fold(Made::default(), |m, i| {
        let x = format!("x{i}");
        let m = m.input(&x, &[&rows(i), "8"]);
        match op {
            Some(op) => {
                all.push(format!("y{i}"));
                m.op(op, &[&x], &[&format!("y{i}")])
            }
            None => {
                all.push(x);
                m
            }
        }
    });
    let inputs: Vec<&str> = all.iter().map(String::as_str).collect();
    made = made.node(node("Concat", &inputs, &["z"]).sub(5, &int_attribute("axis", 0)));
    made.op("Neg", &["z"], &["out"])
        .output("out", &["rows", "8"])
        .file()
}

fn inputs_joined(n: usize) -> Vec<u8> {
    join(n, None, &|_| "2".into())
}

fn made_and_joined(n: usize) -> Vec<u8> {
    join(n, Some("Softmax"), &|_| "2".into())
}

fn symbols_joined(n: usize) -> Vec<u8> {
    join(n, None, &|i| format!("s{i}"))
}

fn symbols(n: usize) -> Vec<u8> {
    let made = (0..n).fold(Made::default(), |m, i| {
        let (x, y, s) = (format!("x{i}"), format!("y{i}"), format!("s{i}"));
        m.op("Relu", &[&x], &[&y])
            .input(&x, &[&s, "8"])
            .output(&y, &[&s, "8"])
    });
    made.file()
}

fn diamonds(n: usize) -> Vec<u8> {
    let made = (0..n.div_ceil(3)).fold(Made::default(), |m, i| {
        let name = |s: &str, i: usize| format!("{s}{i}");
        let (x, a, b, y) = (name("v", i), name("a", i), name("b", i), name("v", i + 1));
        let m = m.op("Softmax", &[&x], &[&a]).op("Sigmoid", &[&x], &[&b]);
        m.op("Add", &[&a, &b], &[&y])
    });
    made.input("v0", ROWS)
        .output(&format!("v{}", n.div_ceil(3)), ROWS)
        .file()
}

/// Down and up again: every step up reads what was made as many steps before the turn.
fn mirror(n: usize) -> Vec<u8> {
    let half = n / 3;
    let down = (0..half).fold(Made::default(), |m, i| {
        m.op("Softmax", &[&format!("v{i}")], &[&format!("v{}", i + 1)])
    });
    let up = (0..half).rev().fold(down, |m, i| {
        let last = match i + 1 == half {
            true => format!("v{half}"),
            false => format!("w{}", i + 1),
        };
        let m = m.op("Add", &[&last, &format!("v{i}")], &[&format!("u{i}")]);
        m.op("Softmax", &[&format!("u{i}")], &[&format!("w{i}")])
    });
    up.input("v0", ROWS).output("w0", ROWS).file()
}

fn tree(n: usize) -> Vec<u8> {
    let mut level: Vec<String> = (0..n.div_ceil(2)).map(|i| format!("x{i}")).collect();
    let mut made = level.iter().fold(Made::default(), |m, x| m.input(x, ROWS));
    let mut made_so_far = 0;
    while level.len() > 1 {
        let mut next = Vec::new();
        for pair in level.chunks(2) {
            let [a, b] = pair else {
                next.extend(pair.iter().cloned());
                continue;
            };
            let y = format!("t{made_so_far}");
            made_so_far += 1;
            made = made.op("Add", &[a, b], &[&y]);
            next.push(y);
        }
        level = next;
    }
    made.output(&level[0], ROWS).file()
}

/// Nodes whose sizes only the data gives.
fn late(n: usize) -> Vec<u8> {
    let made = (0..n / 2).fold(Made::default(), |m, i| {
        let (z, y) = (format!("z{i}"), format!("y{i}"));
        let cast = node("Cast", &[&z], &[&y]).sub(5, &int_attribute("to", FLOAT));
        m.op("NonZero", &["x"], &[&z])
            .node(cast)
            .output(&y, &["2", &format!("k{i}")])
    });
    made.input("x", ROWS).file()
}

/// Branches after each other, and in each other: `n` in all.
fn branches(n: usize) -> Vec<u8> {
    fn body(depth: usize, number: &mut usize) -> Msg {
        *number += 1;
        let out = format!("r{number}");
        let inner = match depth {
            0 => node(
                if (*number).is_multiple_of(2) {
                    "Relu"
                } else {
                    "Neg"
                },
                &["x"],
                &[&out],
            ),
            _ => choice(depth - 1, number, &out),
        };
        Msg::default()
            .sub(1, &inner)
            .text(2, &out)
            .sub(12, &value(&out, FLOAT, ROWS))
    }
    fn choice(depth: usize, number: &mut usize, out: &str) -> Msg {
        let (yes, no) = (body(depth, number), body(depth, number));
        let branches = [("then_branch", yes), ("else_branch", no)];
        branches
            .iter()
            .fold(node("If", &["c"], &[out]), |m, (name, g)| {
                m.sub(5, &graph_attribute(name, g))
            })
    }
    let mut number = 0;
    let depth = n.max(2).ilog2() as usize - 1;
    let made = Made::default()
        .node(choice(depth, &mut number, "y"))
        .input("x", ROWS);
    let mut made = made.output("y", ROWS);
    made.body = made.body.sub(11, &value("c", BOOL, &[]));
    made.file()
}

fn functions(n: usize) -> Vec<u8> {
    let mut made = (0..n / 2).fold(Made::default(), |m, i| {
        let (x, y) = (format!("v{i}"), format!("v{}", i + 1));
        m.node(node(&format!("F{i}"), &[&x], &[&y]).text(7, "own"))
    });
    for i in 0..n / 2 {
        let f = Msg::default()
            .text(1, &format!("F{i}"))
            .text(4, "a")
            .text(5, "c");
        let f = f
            .sub(7, &node("Relu", &["a"], &["b"]))
            .sub(7, &node("Neg", &["b"], &["c"]));
        let f = f
            .sub(9, &Msg::default().text(1, "").int(2, 17))
            .text(10, "own");
        made.functions = made.functions.sub(25, &f);
    }
    made.input("v0", ROWS)
        .output(&format!("v{}", n / 2), ROWS)
        .file()
}

/// A shape of models: its name, how many nodes it is looked at with, and a file with that many.
pub struct Kind {
    /// Name.
    pub name: &'static str,
    /// Nodes (inputs, symbols) that it is tried with, and twice as many.
    pub nodes: usize,
    /// The file.
    pub file: fn(usize) -> Vec<u8>,
}

const fn kind(name: &'static str, nodes: usize, file: fn(usize) -> Vec<u8>) -> Kind {
    Kind { name, nodes, file }
}

/// All of them.
pub const KINDS: &[Kind] = &[
    kind("relu", 50_000, relu),
    kind("softmax", 10_000, softmax),
    kind("matmul", 10_000, matmul),
    kind("weights", 20_000, weights),
    kind("one-name", 20_000, one_name),
    kind("long-names", 5_000, long_names),
    kind("outputs", 5_000, outputs),
    kind("inputs-joined", 2_000, inputs_joined),
    kind("made-and-joined", 2_000, made_and_joined),
    kind("symbols-joined", 250, symbols_joined),
    kind("symbols", 2_000, symbols),
    kind("diamonds", 15_000, diamonds),
    kind("mirror", 6_000, mirror),
    kind("tree", 10_000, tree),
    kind("late", 1_000, late),
    kind("branches", 2_048, branches),
    kind("functions", 10_000, functions),
];

/// What it cost one process to read, plan and run a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// Seconds to read and import.
    pub load_s: f64,
    /// Seconds to plan and verify.
    pub plan_s: f64,
    /// Seconds of the first request, with all that it makes ready.
    pub run_s: f64,
    /// Highest resident bytes above those before.
    pub bytes: u64,
}

impl Cost {
    /// All of it.
    pub fn seconds(&self) -> f64 {
        self.load_s + self.plan_s + self.run_s
    }
}

/// Reads, plans and runs the model in `bytes`, which is written to `folder`, on one thread.
///
/// # Errors
/// When it is refused, as a text.
pub fn cost(bytes: &[u8], folder: &Path) -> Result<Cost, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let path = folder.join("scale.onnx");
    std::fs::write(&path, bytes).map_err(|e| text(&e))?;
    let before = shopfloor_tools::peak_rss().unwrap_or_default();
    let began = Instant::now();
    let model = Model::open(&path, &ModelOptions::default()).map_err(|e| text(&e))?;
    let load_s = began.elapsed().as_secs_f64();
    let session = Session::builder()
        .with_threads(1)
        .commit(model)
        .map_err(|e| text(&e))?;
    let (sizes, _) = inputs::sizes(session.model());
    let dims = inputs::box_of(session.model(), &sizes);
    let plan = session.plan(&dims).map_err(|e| text(&e))?;
    planview::view(&session, &plan);
    let plan_s = began.elapsed().as_secs_f64() - load_s;
    session.swap_plan(plan).map_err(|e| text(&e))?;
    let named = inputs::random_inputs(session.model(), &sizes).map_err(|e| text(&e))?;
    session
        .run(&inputs::borrowed(&named))
        .map_err(|e| text(&e))?;
    // The kernel's count is not exact to the page, and other tests run in this process.
    let peak = shopfloor_tools::peak_rss().unwrap_or_default();
    Ok(Cost {
        load_s,
        plan_s,
        run_s: began.elapsed().as_secs_f64() - load_s - plan_s,
        bytes: peak.saturating_sub(before),
    })
}
