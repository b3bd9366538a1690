//! Recurrent layers apart from their inputs: what W makes of X depends on no state, so it is one
//! product for all positions of the sequence, with the biases added, and only what is left goes
//! from position to position.
use crate::edit::Edit;
use crate::{Error, Fuel, Rewritten};
use expr::ExprBuilder;
use graph::{ContractSpec, Graph, NodeId, Op, Origin, RecurrentKind, RecurrentSpec, ValueId, View};
use layout::{DType, Dim};

/// ONNX inputs by their places.
const X: usize = 0;
const W: usize = 1;
const R: usize = 2;
const B: usize = 3;
const LENS: usize = 4;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let mut e = Edit::new("recurrent", graph, fuel);
    for n in e.live() {
        let Op::Recurrent(spec) = e.node(n).op.clone() else {
            continue;
        };
        if e.is_dead(n) || !spec.present[W] {
            continue;
        }
        if let Err(why) = fits(&e, n, &spec) {
            e.why_not(e.title(n), why);
            continue;
        }
        if !e.may(
            e.title(n),
            "one product computes its inputs for all positions",
        ) {
            break;
        }
        Split {
            hint: e.title(n),
            origins: e.node(n).origins.clone(),
            e: &mut e,
        }
        .build(n, spec)?;
    }
    Ok(e.finish())
}

/// Whether the inputs have the shapes that the standard says.
fn fits(e: &Edit, n: NodeId, spec: &RecurrentSpec) -> Result<(), String> {
    let value = |slot: usize| {
        let at = spec.input(slot)?;
        Some(e.value(*e.node(n).inputs.get(at)?))
    };
    let (dirs, gates) = (Dim::from(spec.directions()), spec.gates());
    let rows = Dim::Known(gates) * Dim::Known(spec.hidden);
    let (Some(x), Some(w)) = (value(X), value(W)) else {
        return Err("X and W are not given".into());
    };
    if !x.dtype.is_float() || x.dtype != w.dtype {
        return Err(format!("X is {} and W is {}", x.dtype, w.dtype));
    }
    if w.shape.len() != 3 || w.shape[0] != dirs || w.shape[1] != rows {
        return Err(format!(
            "W has {:?} where {dirs} x {rows} rows are needed",
            w.shape
        ));
    }
    match value(B) {
        Some(b) if b.shape != [dirs.clone(), rows.clone() + rows.clone()] => {
            Err(format!("B has {:?}", b.shape))
        }
        _ => Ok(()),
    }
}

struct Split<'e, 'f> {
    e: &'e mut Edit<'f>,
    hint: String,
    origins: Vec<Origin>,
}

impl Split<'_, '_> {
    fn add(&mut self, op: Op, inputs: &[ValueId], what: &str) -> Result<ValueId, Error> {
        let hint = format!("{}.{what}", self.hint);
        self.e.add(op, inputs, &hint, &self.origins)
    }

    fn cast(&mut self, v: ValueId, to: DType, what: &str) -> Result<ValueId, Error> {
        let from = self.e.value(v).dtype;
        if from == to {
            return Ok(v);
        }
        let mut b = ExprBuilder::new();
        let x = b.input(0, from);
        let y = b.cast(x, to);
        self.add(Op::Map(b.finish(&[y])), &[v], what)
    }

    fn sum(&mut self, a: ValueId, b: ValueId, what: &str) -> Result<ValueId, Error> {
        let d = self.e.value(a).dtype;
        let mut e = ExprBuilder::new();
        let (x, y) = (e.input(0, d), e.input(1, d));
        let z = e.add(x, y);
        self.add(Op::Map(e.finish(&[z])), &[a, b], what)
    }

    /// Columns `from..to` of a matrix of `rows` rows.
    fn columns(&mut self, v: ValueId, rows: i64, from: i64, to: i64) -> Result<ValueId, Error> {
        let view = View::Slice {
            starts: vec![Dim::ZERO, Dim::Known(from)],
            steps: vec![1, 1],
            extents: vec![Dim::Known(rows), Dim::Known(to - from)],
        };
        self.add(Op::View(view), &[v], "bias")
    }

    fn build(&mut self, n: NodeId, spec: RecurrentSpec) -> Result<(), Error> {
        let given = self.e.node(n).inputs.clone();
        let own = self.e.value(given[0]).dtype;
        // Layers of 16 bits are computed in f32, as their products are.
        let dtype = match own {
            DType::F64 => DType::F64,
            _ => DType::F32,
        };
        let mut slots: Vec<Option<ValueId>> = Vec::new();
        for slot in 0..spec.present.len() {
            let v = spec.input(slot).map(|i| given[i]);
            slots.push(match v {
                Some(v) if slot != LENS => Some(self.cast(v, dtype, "wide")?),
                v => v,
            });
        }
        let (Some(x), Some(w)) = (slots[X], slots[W].take()) else {
            return Ok(());
        };
        let (dirs, rows) = (spec.directions() as i64, spec.gates() * spec.hidden);
        let width = self.e.value(w).shape[2].clone();
        let flat = View::Reshape(vec![Dim::Known(dirs * rows), width]);
        let w = self.add(Op::View(flat), &[w], "w")?;
        let product = Op::Contract(ContractSpec {
            a: b"sbi".to_vec(),
            b: b"gi".to_vec(),
            out: b"sbg".to_vec(),
        });
        let mut parts = self.add(product, &[x, w], "parts")?;
        let scaled = spec.kind == RecurrentKind::Gru && spec.linear_before_reset;
        if let Some(b) = slots[B].take() {
            // The reset gate scales the last gate's own bias: that one stays apart.
            let both = if scaled { rows - spec.hidden } else { rows };
            let input = self.columns(b, dirs, 0, both)?;
            let carried = self.columns(b, dirs, rows, rows + both)?;
            let mut bias = self.sum(input, carried, "bias")?;
            if scaled {
                let last = self.columns(b, dirs, both, rows)?;
                bias = self.add(Op::Concat { axis: 1 }, &[bias, last], "bias")?;
                slots[B] = Some(self.columns(b, dirs, rows + both, 2 * rows)?);
            }
            let flat = View::Reshape(vec![Dim::Known(dirs * rows)]);
            let bias = self.add(Op::View(flat), &[bias], "bias")?;
            parts = self.sum(parts, bias, "parts")?;
        }
        slots[X] = Some(parts);
        debug_assert!(slots[R].is_some());
        let rest = RecurrentSpec {
            present: slots.iter().map(Option::is_some).collect(),
            ..spec
        };
        let inputs: Vec<ValueId> = slots.into_iter().flatten().collect();
        let op = Op::Recurrent(rest);
        if dtype == own {
            self.e.set(n, op, &inputs);
            return Ok(());
        }
        let y = self.add(op, &inputs, "wide")?;
        let Some(made) = self.e.writer(y) else {
            return Ok(());
        };
        let (old, new) = (
            self.e.node(n).outputs.clone(),
            self.e.node(made).outputs.clone(),
        );
        for (old, new) in old.into_iter().zip(new) {
            let narrow = self.cast(new, own, "narrow")?;
            if self.e.can_replace(old, narrow) {
                self.e.replace(old, narrow);
            }
        }
        Ok(())
    }
}
