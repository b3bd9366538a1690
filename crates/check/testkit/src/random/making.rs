//! A graph being made.

use expr::{ExprBuilder, Ref};
use graph::{GraphBuilder, Op, Origin, ValueId, View};
use layout::{DType, Dim};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

/// A small generator of random numbers (splitmix64): seeds that tests and failures name stay the same cases.
pub struct Rng(u64);

impl Rng {
    /// A generator that starts at `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// True once in `n`.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of a list that is not empty.
    pub fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    /// Between -1 and 1, away from 0, where a quotient's rounding would drown everything.
    pub fn float(&mut self) -> f32 {
        let x = (self.bits() % 951 + 50) as f32 / 1000.0;
        if self.once_in(2) { x } else { -x }
    }

    /// A tensor with small values of any type.
    pub fn tensor(&mut self, dtype: DType, shape: &[usize]) -> Option<Tensor> {
        let n: usize = shape.iter().product();
        let values: Vec<f32> = (0..n)
            .map(|_| match dtype {
                DType::Bool => self.below(2) as f32,
                DType::U8 | DType::U4 => self.below(9) as f32,
                d if d.is_float() => self.float(),
                _ => self.below(15) as f32 - 7.0,
            })
            .collect();
        let wide = Tensor::from_f32(shape, &values).ok()?;
        if dtype == DType::F32 {
            return Some(wide);
        }
        let mut e = ExprBuilder::new();
        let x = e.input(0, DType::F32);
        let r = e.cast(x, dtype);
        let program = e.finish(&[r]);
        let mut b = GraphBuilder::new("cast", Arc::new(WeightStore::new()));
        let dims = shape.iter().map(|&d| Dim::from(d)).collect();
        let x = b.input("x", DType::F32, dims);
        let y = b
            .node(Op::Map(program), &[x], &["y"], &origin("cast"))
            .ok()?;
        reference::run_graph(&b.finish(&y), &[wide]).ok()?.pop()
    }
}

pub(super) fn origin(name: &str) -> Origin {
    Origin {
        name: name.into(),
        op_type: "Random".into(),
    }
}

/// A graph being made.
pub(crate) struct Gen {
    pub r: Rng,
    pub b: GraphBuilder,
    /// Values that later nodes may read.
    pub pool: Vec<ValueId>,
    pub(super) names: u32,
}

impl Gen {
    pub fn shape(&self, v: ValueId) -> Vec<Dim> {
        self.b.value(v).shape.clone()
    }

    pub fn dtype(&self, v: ValueId) -> DType {
        self.b.value(v).dtype
    }

    /// Later values more often, so that chains grow.
    pub fn pick(&mut self) -> ValueId {
        let n = self.pool.len();
        let i = self.r.below(n).max(self.r.below(n));
        self.pool[i]
    }

    /// A float value of at least `rank` dimensions.
    pub fn pick_float(&mut self, rank: usize) -> Option<ValueId> {
        self.find(|dtype, shape| dtype == DType::F32 && shape.len() >= rank)
    }

    /// A value whose type and shape suit.
    pub fn find(&mut self, suits: impl Fn(DType, &[Dim]) -> bool) -> Option<ValueId> {
        for _ in 0..12 {
            let v = self.pick();
            if suits(self.dtype(v), &self.shape(v)) {
                return Some(v);
            }
        }
        None
    }

    pub fn weight(&mut self, dtype: DType, shape: &[usize]) -> Option<ValueId> {
        let t = self.r.tensor(dtype, shape)?;
        self.constant(t)
    }

    /// A constant.
    pub fn constant(&mut self, t: Tensor) -> Option<ValueId> {
        self.names += 1;
        let name = format!("w{}", self.names);
        self.b.constant(&name, t).ok()
    }

    /// The constant `true`.
    pub fn weight_true(&mut self) -> Option<ValueId> {
        let t = Tensor::from_bytes(DType::Bool, &[], vec![1]).ok()?;
        self.b.constant("true", t).ok()
    }

    pub fn nodes(&mut self, op: Op, inputs: &[ValueId], outputs: usize) -> Option<Vec<ValueId>> {
        self.names += 1;
        let o = origin(&format!("node{}", self.names));
        let names: Vec<String> = (0..outputs)
            .map(|i| format!("v{}_{i}", self.names))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.b.node(op, inputs, &names, &o).ok()
    }

    pub fn node(&mut self, op: Op, inputs: &[ValueId]) -> Option<ValueId> {
        self.nodes(op, inputs, 1).map(|v| v[0])
    }

    pub fn map(
        &mut self,
        inputs: &[ValueId],
        f: impl FnOnce(&mut ExprBuilder, &[Ref]) -> Ref,
    ) -> Option<ValueId> {
        let mut e = ExprBuilder::new();
        let args: Vec<Ref> = inputs
            .iter()
            .enumerate()
            .map(|(i, v)| e.input(i as u32, self.b.value(*v).dtype))
            .collect();
        let r = f(&mut e, &args);
        self.node(Op::Map(e.finish(&[r])), inputs)
    }

    pub fn view(&mut self, v: ValueId, view: View) -> Option<ValueId> {
        self.node(Op::View(view), &[v])
    }
}
