//! Shapes and symbolic contents follow from ops.
use expr::{Binary, ExprBuilder, Monoid};
use layout::{DType, Dim};
use shopfloor_graph::*;
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

fn origin() -> Origin {
    Origin {
        name: "n".into(),
        op_type: "T".into(),
    }
}

fn dims(t: &str) -> Vec<Dim> {
    t.split(',')
        .filter(|s| !s.trim().is_empty())
        .map(|s| s.parse().unwrap())
        .collect()
}

struct B(GraphBuilder);

impl B {
    fn new() -> B {
        B(GraphBuilder::new("t", Arc::new(WeightStore::new())))
    }
    fn input(&mut self, d: DType, shape: &str) -> ValueId {
        let name = format!("x{}", self.0.graph().inputs.len());
        self.0.input(&name, d, dims(shape))
    }
    fn ints(&mut self, v: &[i64]) -> ValueId {
        let t = Tensor::from_i64(&[v.len()], v).unwrap();
        self.0.constant("c", t).unwrap()
    }
    fn node(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        self.0.node(op, inputs, &["y"], &origin()).unwrap()[0]
    }
    fn shape(&self, v: ValueId) -> String {
        format!("{:?}", self.0.value(v).shape)
    }
    fn fails(&mut self, op: Op, inputs: &[ValueId]) -> String {
        self.0
            .node(op, inputs, &["y"], &origin())
            .unwrap_err()
            .to_string()
    }
    /// The shape of `v` as a fill, the way an importer lowers it.
    fn shape_of(&mut self, v: ValueId) -> ValueId {
        let shape = self.0.value(v).shape.clone();
        let mut e = ExprBuilder::new();
        let i = e.index(0);
        let mut r = e.int(0, DType::I64);
        for (d, n) in shape.iter().enumerate() {
            let at = e.int(d as i64, DType::I64);
            let c = e.compare(expr::Compare::Eq, i, at);
            let n = e.dim(n);
            r = e.select(c, n, r);
        }
        let len = Some(Dim::from(shape.len()));
        self.0.node_with_shapes(
            Op::Map(e.finish(&[r])),
            &[],
            &[("s", DType::I64, vec![len])],
            &origin(),
        )[0]
    }
}

fn binary(f: Binary, d: DType) -> Op {
    let mut e = ExprBuilder::new();
    let (a, b) = (e.input(0, d), e.input(1, d));
    let r = e.binary(f, a, b);
    Op::Map(e.finish(&[r]))
}

fn prod() -> Monoid {
    let parse = |t: &str| t.parse().unwrap();
    Monoid {
        name: "prod".into(),
        identity: parse("%0 = int 1 i64; out %0"),
        lift: parse("%0 = input 0 i64; out %0"),
        combine: parse("%0 = input 0 i64; %1 = input 1 i64; %2 = mul %0 %1; out %2"),
        finish: parse("%0 = input 0 i64; out %0"),
    }
}

#[test]
fn broadcasts() {
    let mut b = B::new();
    for (x, y, want) in [
        ("n, 3", "1", "[n, 3]"),
        ("n, 3", "5, 1", "[5, 3]"),
        ("1, 3", "n, 1", "[n, 3]"),
        ("n, m", "k, m", "[n, m]"),
        ("", "2, n", "[2, n]"),
    ] {
        let (x, y) = (b.input(DType::F32, x), b.input(DType::F32, y));
        let r = b.node(binary(Binary::Add, DType::F32), &[x, y]);
        assert_eq!(b.shape(r), want);
    }
    let (x, y) = (b.input(DType::F32, "2"), b.input(DType::F32, "3"));
    assert!(
        b.fails(binary(Binary::Add, DType::F32), &[x, y])
            .contains("broadcast")
    );
    assert!(
        b.fails(binary(Binary::Add, DType::F64), &[x, x])
            .contains("f32")
    );
}

#[test]
fn windows() {
    let mut b = B::new();
    let x = b.input(DType::F32, "n, 8, h, 33");
    let w = b.input(DType::F32, "16, 4, 3, 3");
    let spec = |transposed, stride| {
        Op::Conv(ConvSpec {
            kernel: vec![3, 3],
            strides: vec![stride; 2],
            dilations: vec![1, 1],
            before: vec![Dim::ONE; 2],
            after: vec![Dim::ONE; 2],
            groups: 2,
            transposed,
            outside: 0,
        })
    };
    let y = b.node(spec(false, 2), &[x, w]);
    assert_eq!(b.shape(y), "[n, 16, floordiv(h + 1, 2), 17]");
    let y = b.node(spec(false, 1), &[x, w]);
    assert_eq!(b.shape(y), "[n, 16, h, 33]");
    let w = b.input(DType::F32, "8, 4, 3, 3");
    let y = b.node(spec(true, 2), &[x, w]);
    assert_eq!(b.shape(y), "[n, 8, 2*h - 1, 65]");
    let pool = Op::Pool(PoolSpec {
        kind: PoolKind::Max,
        kernel: vec![2, 2],
        strides: vec![2, 2],
        dilations: vec![1, 1],
        before: vec![Dim::ZERO; 2],
        after: vec![Dim::ZERO; 2],
    });
    let y = b.node(pool, &[x]);
    assert_eq!(b.shape(y), "[n, 8, floordiv(h, 2), 16]");
    let up = Op::Resample(ResampleSpec {
        mode: ResampleMode::Linear,
        coordinates: "half_pixel".into(),
        scales: vec![1.0, 1.0, 2.0, 0.5],
        antialias: false,
        exclude_outside: false,
    });
    let y = b.node(up, &[x]);
    assert_eq!(b.shape(y), "[n, 8, 2*h, 16]");
}

#[test]
fn products_and_views() {
    let mut b = B::new();
    let q = b.input(DType::F32, "b, h, s, 64");
    let k = b.input(DType::F32, "b, h, t, 64");
    let spec = ContractSpec {
        a: b"bhsd".to_vec(),
        b: b"bhtd".to_vec(),
        out: b"bhst".to_vec(),
    };
    let p = b.node(Op::Contract(spec), &[q, k]);
    assert_eq!(b.shape(p), "[b, h, s, t]");
    let y = b.node(Op::View(View::Permute(vec![0, 2, 1, 3])), &[p]);
    assert_eq!(b.shape(y), "[b, s, h, t]");
    let y = b.node(Op::View(View::Reshape(dims("b, s, h*t"))), &[y]);
    assert_eq!(b.shape(y), "[b, s, h*t]");
    let six = b.input(DType::F32, "2, 3");
    assert!(
        b.fails(Op::View(View::Reshape(dims("7"))), &[six])
            .contains("elements")
    );
    assert!(
        b.fails(Op::View(View::Permute(vec![0, 0, 1])), &[y])
            .contains("permutation")
    );
    let i = b.input(DType::I64, "3, s");
    let y = b.node(Op::Gather { axis: 1, batch: 0 }, &[q, i]);
    assert_eq!(b.shape(y), "[b, 3, s, s, 64]");
    let mean = Op::Reduce {
        monoid: prod(),
        axes: vec![1],
        keep: true,
    };
    assert!(b.fails(mean, &[q]).contains("lift"));
}

/// A reshape's target computed as exporters do: Shape, Gather, Mul, Concat.
#[test]
fn shape_arithmetic() {
    let mut b = B::new();
    let x = b.input(DType::F32, "batch, seq, 64");
    let s = b.shape_of(x);
    assert_eq!(format!("{:?}", b.0.value(s).ints), "Some([batch, seq, 64])");
    let first = b.ints(&[0, -2]);
    let picked = b.node(Op::Gather { axis: 0, batch: 0 }, &[s, first]);
    let two = b.ints(&[2]);
    let doubled = b.node(binary(Binary::Mul, DType::I64), &[picked, two]);
    let all = b.node(Op::Concat { axis: 0 }, &[doubled, two]);
    assert_eq!(
        format!("{:?}", b.0.value(all).ints),
        "Some([2*batch, 2*seq, 2])"
    );
    let total = Op::Reduce {
        monoid: prod(),
        axes: vec![0],
        keep: false,
    };
    let total = b.node(total, &[s]);
    assert_eq!(
        format!("{:?}", b.0.value(total).ints),
        "Some([64*batch*seq])"
    );
    let cut = Op::View(View::Slice {
        starts: vec![Dim::Known(2)],
        steps: vec![-1],
        extents: vec![Dim::Known(3)],
    });
    let cut = b.node(cut, &[s]);
    assert_eq!(
        format!("{:?}", b.0.value(cut).ints),
        "Some([64, seq, batch])"
    );
    let scan = Op::Scan {
        monoid: prod(),
        axis: 0,
        exclusive: true,
        reverse: true,
    };
    let scan = b.node(scan, &[s]);
    assert_eq!(
        format!("{:?}", b.0.value(scan).ints),
        "Some([64*seq, 64, 1])"
    );
    let g = b.0.finish(&[all, total, cut, scan]);
    g.verify().unwrap();
}

/// The assumptions of `op` on inputs of these shapes, as text.
fn assumed(op: Op, shapes: &[&[&str]]) -> Vec<String> {
    let mut b = GraphBuilder::new("g", Arc::default());
    let inputs: Vec<_> = shapes
        .iter()
        .enumerate()
        .map(|(i, s)| {
            let dims = s.iter().map(|d| d.parse().expect("a dimension")).collect();
            b.input(&format!("x{i}"), DType::F32, dims)
        })
        .collect();
    let origin = Origin {
        name: "n".into(),
        op_type: "Test".into(),
    };
    let out = b.node(op, &inputs, &["y"], &origin).expect("it fits");
    let g = b.finish(&out);
    g.verify().expect("a valid graph");
    let again = Graph::parse(&g.to_text()).expect("its text is read");
    assert_eq!(again.assumptions, g.assumptions);
    let text = |a: &Assumption| format!("{}: {} = {}", a.node, a.left, a.right);
    g.assumptions.iter().map(text).collect()
}

#[test]
fn choices_between_symbols_are_assumptions() {
    let add = || {
        let mut e = expr::ExprBuilder::new();
        let (a, b) = (e.input(0, DType::F32), e.input(1, DType::F32));
        let r = e.add(a, b);
        Op::Map(e.finish(&[r]))
    };
    assert_eq!(assumed(add(), &[&["a", "1"], &["b", "4"]]), ["n: b = a"]);
    assert_eq!(assumed(add(), &[&["a"], &["4"]]), ["n: a = 4"]);
    assert!(assumed(add(), &[&["a", "3"], &["a", "1"]]).is_empty());
    let slice = |start: &str, extent: &str| {
        Op::View(View::Slice {
            starts: vec![start.parse().expect("a dimension")],
            steps: vec![1],
            extents: vec![extent.parse().expect("a dimension")],
        })
    };
    assert!(assumed(slice("0", "a"), &[&["a"]]).is_empty());
    assert_eq!(assumed(slice("0", "8"), &[&["a"]]), ["n: max(8, a) = a"]);
    assert_eq!(
        assumed(slice("a - 5", "5"), &[&["a"]]),
        ["n: max(0, a - 5) = a - 5"]
    );
    let reshape = Op::View(View::Reshape(vec![
        "2".parse().expect("2"),
        "3".parse().expect("3"),
    ]));
    assert_eq!(assumed(reshape, &[&["a"]]), ["n: a = 6"]);
}

#[test]
fn no_two_symbols_stand_for_each_other() {
    // mask[total] is added to a value of extent past + new, and ids[new] to one of total - past.
    let mut b = GraphBuilder::new("g", Arc::default());
    let dim = |t: &str| vec![t.parse::<Dim>().expect("a dimension")];
    let past = b.input("past", DType::F32, dim("past"));
    let ids = b.input("ids", DType::F32, dim("new"));
    let mask = b.input("mask", DType::F32, dim("total"));
    let origin = Origin {
        name: "n".into(),
        op_type: "Test".into(),
    };
    let concat = Op::Concat { axis: 0 };
    let all = b
        .node(concat, &[past, ids], &["all"], &origin)
        .expect("a join")[0];
    let tail = Op::View(View::Slice {
        starts: dim("past"),
        steps: vec![1],
        extents: dim("total - past"),
    });
    let tail = b.node(tail, &[mask], &["tail"], &origin).expect("a slice")[0];
    let mut e = expr::ExprBuilder::new();
    let (p, q) = (e.input(0, DType::F32), e.input(1, DType::F32));
    let r = e.add(p, q);
    let add = Op::Map(e.finish(&[r]));
    let x = b
        .node(add.clone(), &[ids, tail], &["x"], &origin)
        .expect("a sum")[0];
    let y = b.node(add, &[all, mask], &["y"], &origin).expect("a sum")[0];
    let g = b.finish(&[x, y]);
    let equal = g.symbol_equalities();
    let replaced: Vec<&str> = equal.iter().map(|(s, _)| &**s).collect();
    for (name, by) in &equal {
        let mut used = std::collections::BTreeSet::new();
        by.symbols(&mut used);
        assert!(
            used.iter().all(|s| !replaced.contains(&&**s)),
            "{name} stands for {by}, of which a symbol is replaced itself"
        );
    }
    assert!(!equal.is_empty());
}
