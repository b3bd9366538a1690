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
