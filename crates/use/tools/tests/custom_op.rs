//! Kernels as text, bound to operators: nodes of models that run them, and what is refused.
use shopfloor::{Cache, Model, ModelOptions, Session, Tensor, inputs};
use std::path::{Path, PathBuf};

/// A protobuf field of bytes.
fn field(number: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut n = body.len();
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out.extend(body);
    out
}

/// A tensor of f32 (`kind` 1) or another type; extents are numbers or names.
fn value(name: &str, kind: u8, shape: &[&str]) -> Vec<u8> {
    let extent = |d: &&str| match d.parse::<u8>() {
        Ok(n) => field(1, &[0x08, n]),
        Err(_) => field(1, &field(2, d.as_bytes())),
    };
    let shape: Vec<u8> = shape.iter().flat_map(extent).collect();
    let tensor = [vec![0x08, kind], field(2, &shape)].concat();
    [field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat()
}

enum A {
    Float(f32),
    Int(u8),
    Text(&'static str),
    Ints(Vec<u8>),
}

fn node(domain: &str, op: &str, ins: &[&str], outs: &[&str], attrs: &[(&str, A)]) -> Vec<u8> {
    let mut n = vec![];
    ins.iter().for_each(|i| n.extend(field(1, i.as_bytes())));
    outs.iter().for_each(|o| n.extend(field(2, o.as_bytes())));
    n.extend(field(3, format!("the_{}", op.to_lowercase()).as_bytes()));
    n.extend(field(4, op.as_bytes()));
    for (name, a) in attrs {
        let (body, kind) = match a {
            A::Float(x) => ([vec![2 << 3 | 5], x.to_le_bytes().to_vec()].concat(), 1),
            A::Int(i) => (vec![3 << 3, *i], 2),
            A::Text(t) => (field(4, t.as_bytes()), 3),
            A::Ints(v) => (v.iter().flat_map(|i| [8 << 3, *i]).collect(), 7),
        };
        let attribute = [field(1, name.as_bytes()), body, vec![0xa0, 0x01, kind]].concat();
        n.extend(field(5, &attribute));
    }
    n.extend(field(7, domain.as_bytes()));
    n
}

fn model(nodes: &[Vec<u8>], ins: &[Vec<u8>], outs: &[Vec<u8>]) -> Vec<u8> {
    let mut graph: Vec<u8> = nodes.iter().flat_map(|n| field(1, n)).collect();
    graph.extend(field(2, b"g"));
    ins.iter().for_each(|v| graph.extend(field(11, v)));
    outs.iter().for_each(|v| graph.extend(field(12, v)));
    let own = [field(1, b"my.co"), vec![0x10, 1]].concat();
    [
        vec![0x08, 8],
        field(7, &graph),
        field(8, &[0x10, 17]),
        field(8, &own),
    ]
    .concat()
}

fn write(dir: &Path, model: Vec<u8>) -> PathBuf {
    let path = dir.join("m.onnx");
    std::fs::write(&path, model).unwrap();
    path
}

const CLIP: &str = "
    # Any shape: n elements.
    attribute low = 0
    attribute high
    kernel clip2 (map)
    space  i: n
    read   x f32 [n..] = i*(1)
    write  y f32 [n..] = i*(1)
    v : f32 [i] = load x
    c : f32 [i] = max($low, min(v, $high))
    store y = c";

/// Relu, a transposition, Clip2 of what comes out, twice that.
fn clip_model() -> Vec<u8> {
    let attrs = [("low", A::Float(0.25)), ("high", A::Float(1.5))];
    let perm = [("perm", A::Ints(vec![1, 0]))];
    model(
        &[
            node("", "Relu", &["x"], &["r"], &[]),
            node("", "Transpose", &["r"], &["t"], &perm),
            node("my.co", "Clip2", &["t"], &["c"], &attrs),
            node("", "Add", &["c", "c"], &["y"], &[]),
        ],
        &[value("x", 1, &["batch", "24"])],
        &[value("y", 1, &["24", "batch"])],
    )
}

fn numbers(rows: usize, columns: usize) -> Tensor {
    let value = |i: usize| (i * 37 % 101) as f32 / 25.0 - 2.0;
    let values: Vec<f32> = (0..rows * columns).map(value).collect();
    Tensor::from_f32(&[rows, columns], &values).unwrap()
}

fn check_clip(session: &Session, low: f32, high: f32) {
    for rows in [1, 3, 8] {
        let x = numbers(rows, 24);
        let out = session.run(inputs!["x" => &x]).unwrap();
        let (got, x) = (out["y"].to_f32().unwrap(), x.to_f32().unwrap());
        assert_eq!(out["y"].shape(), [24, rows]);
        for r in 0..rows {
            for c in 0..24 {
                let want = 2.0 * x[r * 24 + c].max(0.0).min(high).max(low);
                assert_eq!(got[c * rows + r], want, "row {r} column {c}");
            }
        }
    }
}

#[test]
fn a_node_runs_the_kernel_that_is_bound_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), clip_model());
    for device in ["cpu", "emulated:t4"] {
        if device != "cpu" && !cfg!(feature = "cuda") {
            continue;
        }
        let session = Session::builder()
            .with_device(device)
            .with_threads(2)
            .with_dim("batch", 1, 8)
            .with_kernel("my.co", "Clip2", CLIP)
            .commit_from_file(&path)
            .unwrap();
        check_clip(&session, 0.25, 1.5);
    }
    // The graph has a text form with it, and the account of nodes its step.
    let options = ModelOptions::default().with_kernel("my.co", "Clip2", CLIP);
    let model = Model::open(&path, &options).unwrap();
    let graph = model.graph().unwrap();
    let back = graph::Graph::parse(&graph.to_text()).unwrap();
    assert_eq!(back.to_text(), graph.to_text());
    let fates = format!("{:?}", model.program().fates);
    assert!(fates.contains("the_clip2"), "{fates}");
    let found = shopfloor_tools::inspect(&path, &options).unwrap();
    assert!(found.unsupported.is_empty());
}

/// How a node's kernel runs: behind the statements of [`CLIP`], with the numbers of [`clip_model`] in the PTX.
const HOW: &str = "
    schedule
    grid  i by 16
    mapping  rows by vectors, rows , lanes i
    in place  v
    ptx clip
    grid  ceildiv(n, 32)
    threads  32
    sizes  n
    text
.version 7.0
.target sm_75
.address_size 64
.visible .entry clip(.param .u64 x, .param .u64 y, .param .s64 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<5>;
    .reg .f32 %f<3>;
    .reg .b64 %d<6>;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [y];
    ld.param.s64 %d3, [n];
    cvta.to.global.u64 %d1, %d1;
    cvta.to.global.u64 %d2, %d2;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    cvt.u64.u32 %d4, %r4;
    setp.ge.s64 %p1, %d4, %d3;
    @%p1 bra $low;
    shl.b64 %d5, %d4, 2;
    add.s64 %d1, %d1, %d5;
    add.s64 %d2, %d2, %d5;
    ld.global.f32 %f1, [%d1];
    min.f32 %f1, %f1, 0f3FC00000;
    max.f32 %f1, %f1, 0f3E800000;
    st.global.f32 [%d2], %f1;
$low:
    ret;
}
    end";

#[test]
fn a_node_runs_as_the_text_of_its_kernel_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), clip_model());
    let own = [
        ("cpu", "as the kernel's text says"),
        ("emulated:a100,checks", "entry 'clip'"),
    ];
    for (device, said) in own {
        if device != "cpu" && !cfg!(feature = "cuda") {
            continue;
        }
        let session = Session::builder()
            .with_device(device)
            .with_threads(2)
            .with_dim("batch", 1, 8)
            .with_kernel("my.co", "Clip2", &format!("{CLIP}{HOW}"))
            .commit_from_file(&path)
            .unwrap();
        check_clip(&session, 0.25, 1.5);
        let plans = session.runtime().plans();
        let mut whys = plans.iter().flat_map(|p| &p.plan().whys);
        let found = whys.any(|w| w.subject.contains("the_clip2") && w.choice.contains(said));
        let all: Vec<_> = plans.iter().map(|p| &p.plan().whys).collect();
        assert!(found, "{device}: {all:?}");
    }
}

#[test]
fn another_text_is_another_model_to_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), clip_model());
    let cache = Cache::new(dir.path().join("cache"));
    let session = |text: &str| {
        Session::builder()
            .with_threads(1)
            .with_dim("batch", 1, 8)
            .with_cache(cache.clone())
            .with_kernel("my.co", "Clip2", text)
            .commit_from_file(&path)
            .unwrap()
    };
    for _ in 0..2 {
        check_clip(&session(CLIP), 0.25, 1.5);
        check_clip(
            &session(&CLIP.replace("min(v, $high)", "min(v, $high + 1.0)")),
            0.25,
            2.5,
        );
    }
}

/// `y[r, c] = x[r, c] * s[r]`, with the number of columns in a word of its own.
const SCALE: &str = "
    kernel scale_rows (map)
    space  r: rows  c: cols
    read   x f32 [rows, cols] = r*(cols) + c*(1)
    read   s f32 = r*(1)
    write  y f32 [rows, cols] = r*(cols) + c*(1)
    v : f32 [r,c] = load x
    w : f32 [r] = load s
    p : f32 [r,c] = v*w
    store y = p";

fn scale_model(s: &[&str], kind: u8, ins: &[&str], attrs: &[(&str, A)]) -> Vec<u8> {
    model(
        &[node("my.co", "ScaleRows", ins, &["y"], attrs)],
        &[value("x", 1, &["batch", "6"]), value("s", kind, s)],
        &[value("y", 1, &["batch", "6"])],
    )
}

#[test]
fn sizes_come_from_the_inputs_and_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    // That 'other' is 'batch' nothing says: each request is asked.
    let path = write(dir.path(), scale_model(&["other"], 1, &["x", "s"], &[]));
    let session = Session::builder()
        .with_threads(2)
        .with_kernel("my.co", "ScaleRows", SCALE)
        .commit_from_file(&path)
        .unwrap();
    let (x, s) = (numbers(4, 6), numbers(1, 5));
    let s4 = Tensor::from_f32(&[4], &s.to_f32().unwrap()[..4]).unwrap();
    let out = session.run(inputs!["x" => &x, "s" => &s4]).unwrap();
    for (i, y) in out["y"].to_f32().unwrap().iter().enumerate() {
        assert_eq!(*y, x.to_f32().unwrap()[i] * s4.to_f32().unwrap()[i / 6]);
    }
    let s5 = Tensor::from_f32(&[5], &s.to_f32().unwrap()).unwrap();
    let e = session
        .run(inputs!["x" => &x, "s" => &s5])
        .err()
        .unwrap()
        .to_string();
    assert!(
        e.contains("'s'") && e.contains("rows = 4") && e.contains("finds 5"),
        "{e}"
    );
}

/// The sentence with which a model is refused, or with which every size of it would be.
fn refused(bytes: Vec<u8>, op: &str, text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), bytes);
    let options = ModelOptions::default().with_kernel("my.co", op, text);
    match Model::open(&path, &options) {
        Ok(m) => m
            .refusal()
            .unwrap_or_else(|| panic!("this was taken:\n{text}")),
        Err(e) => e.to_string(),
    }
}

/// A refusal of `ScaleRows` is one sentence that names the node, and has all `words`.
fn says(refusal: String, words: &[&str]) {
    for w in words.iter().chain(&["the_scalerows"]) {
        assert!(refusal.contains(w), "'{w}' is not in: {refusal}");
    }
    assert!(!refusal.trim().contains('\n'), "{refusal}");
}

#[test]
fn a_node_that_does_not_fit_is_one_sentence_with_node_and_remedy() {
    type Case<'a> = (
        &'a [&'a str],
        u8,
        &'a [&'a str],
        &'a [(&'a str, A)],
        &'a [&'a str],
    );
    let cases: [Case; 6] = [
        (&["batch"], 1, &["x"], &[], &["1 inputs", "reads 2 (x, s)"]),
        (
            &["batch"],
            11,
            &["x", "s"],
            &[],
            &["f64", "'s' as f32", "Cast"],
        ),
        (
            &["batch", "1"],
            1,
            &["x", "s"],
            &[],
            &["[batch, 1]", "[rows]"],
        ),
        (&["batch"], 1, &["x", ""], &[], &["input 1 is missing"]),
        (
            &["batch"],
            1,
            &["x", "s"],
            &[("gain", A::Int(3))],
            &["'gain'", "attribute gain"],
        ),
        (
            &["batch"],
            1,
            &["x", "s"],
            &[("gain", A::Text("much"))],
            &["'gain'", "neither an integer nor a float"],
        ),
    ];
    for (shape, kind, inputs, attributes, words) in cases {
        let model = scale_model(shape, kind, inputs, attributes);
        says(refused(model, "ScaleRows", SCALE), words);
    }
    // Sizes that contradict each other.
    let four = model(
        &[node("my.co", "ScaleRows", &["x", "s"], &["y"], &[])],
        &[value("x", 1, &["4", "6"]), value("s", 1, &["7"])],
        &[value("y", 1, &["4", "6"])],
    );
    says(refused(four, "ScaleRows", SCALE), &["[7]", "rows = 4"]);
}

#[test]
fn a_text_that_does_not_fit_is_one_sentence_with_node_and_remedy() {
    let cases: [(&str, &str, &[&str]); 6] = [
        // A shape that the strides do not say.
        (
            "read   s f32 = r*(1)",
            "read   s f32 = 1 + r*(1)",
            &["'s'", "read s f32 [rows, cols]"],
        ),
        // More than there is.
        (
            "read   s f32 = r*(1)",
            "read   s f32 [rows] = 1 + r*(1)",
            &["'s'", "[batch]"],
        ),
        // A size that no input gives, a text that cannot be read, one that breaks a rule.
        (
            "p : f32 [r,c] = v*w",
            "p : f32 [r,c] = v*w*f32({taps})",
            &["'taps'", "attribute taps"],
        ),
        ("v*w", "v**w", &["line 9"]),
        ("    store y = p", "", &["rule"]),
        // Two positions that may write one element, though not where a size is known to be small enough.
        (
            "write  y f32 [rows, cols] = r*(cols) + c*(1)",
            "write  y f32 [rows, cols] = r*(5) + c*(1) of rows*cols",
            &["my.co:ScaleRows", "along 'r'", "operand 'y'", "stride"],
        ),
    ];
    for (from, to, words) in cases {
        let model = scale_model(&["batch"], 1, &["x", "s"], &[]);
        let text = SCALE.replace(from, to);
        says(refused(model, "ScaleRows", &text), words);
    }
}

#[test]
fn attributes_that_do_not_fit_are_named_with_the_node() {
    let cases = [
        ("attribute low = 0", "", ["the_clip2", "'low'"]),
        ("$low", "$lowest", ["the_clip2", "$lowest"]),
        (
            "attribute high",
            "attribute high x",
            ["my.co:Clip2", "line 4"],
        ),
    ];
    for (from, to, words) in cases {
        let e = refused(clip_model(), "Clip2", &CLIP.replace(from, to));
        assert!(words.iter().all(|w| e.contains(w)), "{e}");
    }
    // Nothing is bound: the error says what can be.
    let e = refused(clip_model(), "Clip3", CLIP);
    assert!(
        e.contains("--kernel my.co:Clip2=FILE") && e.contains("the_clip2"),
        "{e}"
    );
}
