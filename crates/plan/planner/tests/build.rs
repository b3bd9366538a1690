//! Programs and a target for tests.
use expr::{Expr, ExprBuilder, Monoid, Unary};
use graph::Graph;
use kernel::{
    Access, Axis, AxisId, Bound, Family, Kernel, MicroShape, Operand, Role, Stmt, Target,
    TargetKind, Term, Tile, TileId,
};
use layout::{DType, Dim, DimBox, Layout};
use machine::EfficiencyTable;
use plan::{
    Allotment, Item, ItemWork, Plan, Planner as _, Program, ProgramValue, Segment, ValueIx,
    ValueOrigin,
};
use shopfloor_planner::{PlanOptions, Planner};
use std::sync::Arc;
use tensor::WeightId;

pub fn target() -> Target {
    let shape = |mr, nr, efficiency| MicroShape { mr, nr, efficiency };
    Target {
        name: "cpu-avx512".into(),
        kind: TargetKind::Cpu,
        families: vec![],
        dtypes: vec![DType::F32],
        lacks: Default::default(),
        vector_bytes: 64,
        micro: vec![
            shape(14, 32, 0.95),
            shape(8, 48, 0.95),
            shape(6, 64, 0.93),
            shape(14, 16, 0.8),
        ],
        gpu: None,
        tile_waits: false,
        bf16_dots: false,
        efficiencies: EfficiencyTable::default(),
    }
}

pub fn planner() -> Planner {
    Planner::new(
        vec![(machine::lookup("zen5-2core").unwrap(), target())],
        PlanOptions::default(),
    )
}

/// The plan of `p` for a box.
pub fn bind(p: &Program, dims: &DimBox) -> Plan {
    planner()
        .bind(p, dims, &Allotment::default())
        .unwrap_or_else(|e| panic!("{e}"))
}

/// The program of a graph in text.
pub fn parsed(text: &str) -> Program {
    let graph = Graph::parse(text).unwrap();
    graph.verify().unwrap();
    shopfloor_planner::program(&graph, &Default::default()).unwrap()
}

/// A kernel under construction.
pub struct K {
    pub kernel: Kernel,
    pub args: Vec<ValueIx>,
}

pub fn kernel(name: &str, family: Family, axes: &[(&str, Dim)]) -> K {
    let axes = axes
        .iter()
        .map(|(n, e)| Axis {
            name: (*n).into(),
            extent: e.clone(),
        })
        .collect();
    K {
        kernel: Kernel {
            name: name.into(),
            family,
            axes,
            operands: vec![],
            tiles: vec![],
            body: vec![],
        },
        args: vec![],
    }
}

impl K {
    pub fn access(&self, terms: &[(AxisId, Dim)]) -> Access {
        let t = |(a, s): &(AxisId, Dim)| {
            Term::flat(*a, self.kernel.axes[*a as usize].extent.clone(), s.clone())
        };
        Access::strided(Dim::ZERO, terms.iter().map(t).collect())
    }
    pub fn operand(&mut self, name: &str, role: Role, access: Access, value: ValueIx) -> u16 {
        let elements = Dim::product(
            access
                .terms
                .iter()
                .map(|t| &self.kernel.axes[t.axis as usize].extent),
        );
        self.kernel.operands.push(Operand {
            name: name.into(),
            dtype: DType::F32,
            role,
            access,
            elements,
        });
        self.args.push(value);
        (self.kernel.operands.len() - 1) as u16
    }
    pub fn tile(&mut self, name: &str, axes: &[AxisId]) -> TileId {
        self.kernel.tiles.push(Tile {
            name: name.into(),
            dtype: DType::F32,
            axes: axes.to_vec(),
        });
        (self.kernel.tiles.len() - 1) as TileId
    }
    pub fn load(&mut self, name: &str, access: Access, value: ValueIx) -> TileId {
        let axes: Vec<AxisId> = access.terms.iter().map(|t| t.axis).collect();
        let operand = self.operand(name, Role::Read, access, value);
        let dst = self.tile(name, &axes);
        self.kernel.body.push(Stmt::Load { dst, operand });
        dst
    }
    pub fn map(&mut self, name: &str, axes: &[AxisId], expr: Expr, args: &[TileId]) -> TileId {
        let dst = self.tile(name, axes);
        self.kernel.body.push(Stmt::Map {
            dst,
            expr,
            args: args.to_vec(),
        });
        dst
    }
    pub fn fill(&mut self, name: &str, axes: &[AxisId], v: f64) -> TileId {
        let mut b = ExprBuilder::new();
        let c = b.constant(v, DType::F32);
        self.map(name, axes, b.finish(&[c]), &[])
    }
    /// The product of two tiles, summed over axes; its tile has the axes `axes`.
    pub fn contract(&mut self, axes: &[AxisId], a: TileId, b: TileId, over: &[AxisId]) -> TileId {
        let acc = self.fill("acc", axes, 0.0);
        let over = over.to_vec();
        self.kernel.body.push(Stmt::Contract { acc, a, b, over });
        acc
    }
    pub fn store(&mut self, name: &str, access: Access, value: ValueIx, src: TileId) {
        let operand = self.operand(name, Role::Write, access, value);
        self.kernel.body.push(Stmt::Store { operand, src });
    }
    pub fn item(self) -> Item {
        Item {
            name: self.kernel.name.clone(),
            work: ItemWork::Kernel {
                kernel: self.kernel.into(),
                args: self.args,
            },
            nodes: vec![],
            given: None,
        }
    }
}

/// A program under construction.
pub fn program(name: &str) -> Program {
    Program {
        name: name.into(),
        symbols: vec![],
        values: vec![],
        inputs: vec![],
        outputs: vec![],
        init: vec![],
        segments: vec![],
        states: vec![],
        passed: vec![],
        fates: vec![],
        constraints: vec![],
        batches: vec![],
        savings: vec![],
        precision: plan::Precision::default(),
        whys: vec![],
        weights: Arc::default(),
    }
}

pub fn value(p: &mut Program, name: &str, shape: &[Dim], origin: ValueOrigin) -> ValueIx {
    let ix = p.values.len() as ValueIx;
    p.values.push(ProgramValue {
        name: name.into(),
        dtype: DType::F32,
        shape: shape.to_vec(),
        layout: Layout::row_major(shape, 1),
        storage: Dim::product(shape),
        origin,
    });
    if let ValueOrigin::Input(_) = origin {
        p.inputs.push(ix);
    }
    ix
}

pub fn n(v: i64) -> Dim {
    Dim::Known(v)
}

fn add_gelu() -> Expr {
    let mut b = ExprBuilder::new();
    let (x, y) = (b.input(0, DType::F32), b.input(1, DType::F32));
    let s = b.add(x, y);
    let g = expr::functions::gelu_erf(&mut b, s, DType::F32);
    b.finish(&[g])
}

pub fn weight(p: &mut Program, name: &str, shape: &[Dim]) -> ValueIx {
    let id = p.values.len() as WeightId;
    value(p, name, shape, ValueOrigin::Weight(id))
}

/// y = gelu(x w + c).
pub fn gemm(m: i64, k: i64, w: i64) -> Program {
    let mut p = program("gemm");
    let x = value(&mut p, "x", &[n(m), n(k)], ValueOrigin::Input(0));
    let wt = weight(&mut p, "w", &[n(k), n(w)]);
    let c = weight(&mut p, "c", &[n(w)]);
    let y = value(&mut p, "y", &[n(m), n(w)], ValueOrigin::Made);
    let mut b = kernel(
        "gemm",
        Family::Contract,
        &[("m", n(m)), ("n", n(w)), ("k", n(k))],
    );
    let (aa, ab, ac, ay) = (
        b.access(&[(0, n(k)), (2, n(1))]),
        b.access(&[(1, n(1)), (2, n(w))]),
        b.access(&[(1, n(1))]),
        b.access(&[(0, n(w)), (1, n(1))]),
    );
    let (ta, tb) = (b.load("a", aa, x), b.load("b", ab, wt));
    let acc = b.contract(&[0, 1], ta, tb, &[2]);
    let tc = b.load("c", ac, c);
    let t = b.map("y", &[0, 1], add_gelu(), &[acc, tc]);
    b.store("out", ay, y, t);
    p.segments.push(Segment::Straight(vec![b.item()]));
    p.outputs.push(("y".into(), y));
    p
}

/// Two 3x3 convolutions over channels-last memory, one after the other.
pub fn convs(batch: i64, side: i64, ch: i64) -> Program {
    convs_of(2, batch, side, ch)
}

/// So many of them.
pub fn convs_of(layers: usize, batch: i64, side: i64, ch: i64) -> Program {
    let mut p = program("convs");
    let shape = [n(batch), n(side), n(side), n(ch)];
    let mut from = value(&mut p, "x", &shape, ValueOrigin::Input(0));
    let mut items = vec![];
    for i in 0..layers {
        let w = weight(&mut p, &format!("w{i}"), &[n(ch), n(ch), n(3), n(3)]);
        let to = value(&mut p, &format!("y{i}"), &shape, ValueOrigin::Made);
        let axes = [
            ("b", n(batch)),
            ("oh", n(side)),
            ("ow", n(side)),
            ("oc", n(ch)),
            ("r", n(3)),
            ("s", n(3)),
            ("c", n(ch)),
        ];
        let mut b = kernel(&format!("conv{i}"), Family::Conv, &axes);
        let (rs, im) = (side * ch, side * side * ch);
        let mut ax = b.access(&[
            (0, n(im)),
            (1, n(rs)),
            (2, n(ch)),
            (4, n(rs)),
            (5, n(ch)),
            (6, n(1)),
        ]);
        ax.offset = n(-rs - ch);
        for (o, t) in [(1, 4), (2, 5)] {
            ax.bounds.push(Bound {
                terms: vec![(o, n(1)), (t, n(1))],
                base: n(-1),
                extent: n(side),
            });
        }
        let aw = b.access(&[(3, n(ch * 9)), (4, n(3)), (5, n(1)), (6, n(9))]);
        let ay = b.access(&[(0, n(im)), (1, n(rs)), (2, n(ch)), (3, n(1))]);
        let (tx, tw) = (b.load("x", ax, from), b.load("w", aw, w));
        let acc = b.contract(&[0, 1, 2, 3], tx, tw, &[4, 5, 6]);
        b.store("y", ay, to, acc);
        items.push(b.item());
        from = to;
    }
    p.segments.push(Segment::Straight(items));
    p.outputs.push(("y".into(), from));
    p
}

/// Softmax over the last of [128, 12, 384].
pub fn softmax() -> Program {
    softmax_of(128 * 12, 384)
}

/// Sums of exp(tanh(x)) over rows of `cols`, the function in the fold as lowering leaves it.
pub fn sums(rows: i64, cols: i64) -> Program {
    let mut p = program("sums");
    let x = value(&mut p, "x", &[n(rows), n(cols)], ValueOrigin::Input(0));
    let y = value(&mut p, "y", &[n(rows)], ValueOrigin::Made);
    let mut b = kernel("sums", Family::Row, &[("r", n(rows)), ("c", n(cols))]);
    let (ax, ay) = (b.access(&[(0, n(cols)), (1, n(1))]), b.access(&[(0, n(1))]));
    let tx = b.load("x", ax, x);
    let s = b.fill("sum", &[0], 0.0);
    let mut monoid = Monoid::sum(DType::F32, DType::F32);
    let mut e = ExprBuilder::new();
    let i = e.input(0, DType::F32);
    let t = e.unary(Unary::Tanh, i);
    let t = e.unary(Unary::Exp, t);
    monoid.lift = e.finish(&[t]);
    b.kernel.body.push(Stmt::Fold {
        monoid,
        state: vec![s],
        args: vec![tx],
        over: vec![1],
        rescale: None,
    });
    b.store("out", ay, y, s);
    p.segments.push(Segment::Straight(vec![b.item()]));
    p.outputs.push(("y".into(), y));
    p
}

/// Softmax over the last of [rows, cols].
pub fn softmax_of(rows: i64, cols: i64) -> Program {
    let mut p = program("softmax");
    let shape = [n(rows), n(cols)];
    let x = value(&mut p, "x", &shape, ValueOrigin::Input(0));
    let y = value(&mut p, "y", &shape, ValueOrigin::Made);
    let mut b = kernel(
        "softmax",
        Family::Row,
        &[("r", shape[0].clone()), ("c", shape[1].clone())],
    );
    let both = b.access(&[(0, n(cols)), (1, n(1))]);
    let tx = b.load("x", both.clone(), x);
    let fold = |b: &mut K, m: Monoid, s: TileId, a: TileId| {
        b.kernel.body.push(Stmt::Fold {
            monoid: m,
            state: vec![s],
            args: vec![a],
            over: vec![1],
            rescale: None,
        });
    };
    let m = b.fill("m", &[0], f64::NEG_INFINITY);
    fold(&mut b, Monoid::max(DType::F32, DType::F32), m, tx);
    let mut e = ExprBuilder::new();
    let (i0, i1) = (e.input(0, DType::F32), e.input(1, DType::F32));
    let d = e.sub(i0, i1);
    let d = e.unary(Unary::Exp, d);
    let te = b.map("e", &[0, 1], e.finish(&[d]), &[tx, m]);
    let l = b.fill("l", &[0], 0.0);
    fold(&mut b, Monoid::sum(DType::F32, DType::F32), l, te);
    let mut e = ExprBuilder::new();
    let (i0, i1) = (e.input(0, DType::F32), e.input(1, DType::F32));
    let q = e.div(i0, i1);
    let ty = b.map("y", &[0, 1], e.finish(&[q]), &[te, l]);
    b.store("out", both, y, ty);
    p.segments.push(Segment::Straight(vec![b.item()]));
    p.outputs.push(("y".into(), y));
    p
}

/// A copy of [rows, cols] elements between two accesses.
pub fn moved(
    name: &str,
    rows: Dim,
    cols: Dim,
    read: (Dim, Dim, Dim),
    write: (Dim, Dim, Dim),
    from: ValueIx,
    to: ValueIx,
) -> Item {
    let mut b = kernel(name, Family::Move, &[("r", rows), ("c", cols)]);
    let mut a = b.access(&[(0, read.1), (1, read.2)]);
    a.offset = read.0;
    let t = b.load("x", a, from);
    let mut a = b.access(&[(0, write.1), (1, write.2)]);
    a.offset = write.0;
    b.store("y", a, to, t);
    b.item()
}

/// z = relu of [x | y], joined along the columns, with the joined value passed on too.
pub fn concat() -> Program {
    let mut p = program("concat");
    let (r, a, c) = (Dim::sym("rows"), n(48), n(80));
    let w = a.clone() + c.clone();
    symbol(&mut p, "rows", 0, 0);
    let x = value(&mut p, "x", &[r.clone(), a.clone()], ValueOrigin::Input(0));
    let y = value(&mut p, "y", &[r.clone(), c.clone()], ValueOrigin::Input(1));
    let j = value(&mut p, "joined", &[r.clone(), w.clone()], ValueOrigin::Made);
    let z = value(&mut p, "z", &[r.clone(), w.clone()], ValueOrigin::Made);
    let mut items = vec![
        moved(
            "part 0",
            r.clone(),
            a.clone(),
            (n(0), a.clone(), n(1)),
            (n(0), w.clone(), n(1)),
            x,
            j,
        ),
        moved(
            "part 1",
            r.clone(),
            c.clone(),
            (n(0), c, n(1)),
            (a, w.clone(), n(1)),
            y,
            j,
        ),
    ];
    let mut b = kernel("relu", Family::Map, &[("r", r), ("c", w.clone())]);
    let access = b.access(&[(0, w), (1, n(1))]);
    let t = b.load("x", access.clone(), j);
    let mut e = ExprBuilder::new();
    let i = e.input(0, DType::F32);
    let o = expr::functions::relu(&mut e, i, DType::F32);
    let t = b.map("y", &[0, 1], e.finish(&[o]), &[t]);
    b.store("out", access, z, t);
    items.push(b.item());
    p.segments.push(Segment::Straight(items));
    p.outputs.push(("z".into(), z));
    p
}

pub fn symbol(p: &mut Program, name: &str, input: u32, axis: u32) {
    p.symbols.push(plan::ProgramSymbol {
        name: name.into(),
        origin: plan::SymbolOrigin::Input { input, axis },
    });
}

/// The box of all symbols that these programs have.
pub fn dims() -> DimBox {
    let mut d = DimBox::new();
    d.insert("rows", 1, 256);
    d.insert("past", 0, 96);
    d.insert("new", 1, 32);
    d
}

/// present [4, past + new, 64] = past with new behind it; y = relu(present).
pub fn state() -> Program {
    let mut p = program("state");
    let (past, new) = (Dim::sym("past"), Dim::sym("new"));
    let all = past.clone() + new.clone();
    let shape = |t: &Dim| [n(4), t.clone(), n(64)];
    let vp = value(&mut p, "past", &shape(&past), ValueOrigin::Input(0));
    let vn = value(&mut p, "new", &shape(&new), ValueOrigin::Input(1));
    let vq = value(&mut p, "present", &shape(&all), ValueOrigin::Made);
    let vy = value(&mut p, "y", &shape(&all), ValueOrigin::Made);
    symbol(&mut p, "past", 0, 1);
    symbol(&mut p, "new", 1, 1);
    let row = |t: &Dim| t.clone() * n(64);
    // Positions and channels joined, as lowering joins what lies side by side.
    let part = |name: &str, t: &Dim, at: Dim, from: ValueIx| {
        moved(
            name,
            n(4),
            row(t),
            (n(0), row(t), n(1)),
            (at, row(&all), n(1)),
            from,
            vq,
        )
    };
    let mut items = vec![
        part("part 0", &past, n(0), vp),
        part("part 1", &new, row(&past), vn),
    ];
    let mut b = kernel("relu", Family::Map, &[("i", n(4) * row(&all))]);
    let access = b.access(&[(0, n(1))]);
    let t = b.load("x", access.clone(), vq);
    let mut e = ExprBuilder::new();
    let i = e.input(0, DType::F32);
    let o = expr::functions::relu(&mut e, i, DType::F32);
    let t = b.map("y", &[0], e.finish(&[o]), &[t]);
    b.store("out", access, vy, t);
    items.push(b.item());
    p.segments.push(Segment::Straight(items));
    p.outputs = vec![("y".into(), vy), ("present".into(), vq)];
    p.states.push(plan::StatePair {
        input: 0,
        output: 1,
    });
    p
}
