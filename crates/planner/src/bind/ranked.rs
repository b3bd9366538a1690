//! Sorting on a GPU: every element's place is how many come before it, and every place takes the element
//! whose place it is. Two kernels instead of a step of the host; all elements are compared with all, at once.
//! A CPU sorts by plain code, which compares far fewer.
use super::why;
use crate::kernels::builder::KernelBuilder;
use expr::{Binary, Compare, Expr, ExprBuilder, Monoid, Unary};
use graph::Op;
use kernel::{AxisId, Family};
use layout::{DType, Dim, DimBox, Layout};
use plan::{Item, ItemWork, Program, ProgramValue, Segment, ValueIx, ValueOrigin, Why};
use std::sync::Arc;
use tensor::Attr;

/// Comparisons at most: a GPU makes some 10^12 in a second, and beyond some milliseconds the way to the
/// host and back costs less.
const MOST: f64 = 4e9;

/// The program with kernels for what a GPU can sort, `None` where there is nothing of the kind.
pub(super) fn ranked(program: &Program, dims: &DimBox, whys: &mut Vec<Why>) -> Option<Program> {
    let of = |i: &Item| Sorted::of(program, i, dims).is_some();
    let straight = |s: &Segment| matches!(s, Segment::Straight(items) if items.iter().any(of));
    if !program.segments.iter().any(straight) {
        return None;
    }
    let mut out = program.clone();
    for s in &mut out.segments {
        let Segment::Straight(items) = s else {
            continue;
        };
        let mut all = Vec::with_capacity(items.len() + 1);
        for item in items.drain(..) {
            let made = Sorted::of(program, &item, dims).and_then(|s| {
                let next = out.values.len() as ValueIx;
                s.kernels(program, &item, next)
            });
            match made {
                Some((value, kernels)) => {
                    out.values.push(value);
                    whys.push(why(
                        "rank",
                        &item.name,
                        "two kernels instead of a host step",
                        "a GPU counts for every element how many come before it",
                    ));
                    all.extend(kernels);
                }
                None => all.push(item),
            }
        }
        *items = all;
    }
    Some(out)
}

/// A step that sorts along an axis.
struct Sorted {
    axis: usize,
    largest: bool,
    x: ValueIx,
    values: ValueIx,
    indices: ValueIx,
}

impl Sorted {
    /// What `item` sorts, where kernels can.
    fn of(program: &Program, item: &Item, dims: &DimBox) -> Option<Sorted> {
        let ItemWork::Host {
            op,
            inputs,
            outputs,
        } = &item.work
        else {
            return None;
        };
        let (true, Some(Attr::Str(spec))) = (op.name == "core.sort", op.attrs.get("spec")) else {
            return None;
        };
        let Ok(Op::Sort {
            axis, descending, ..
        }) = serde_json::from_str(spec)
        else {
            return None;
        };
        let (&[Some(x)], &[values, indices]) = (inputs.as_slice(), outputs.as_slice()) else {
            return None;
        };
        let value = |v: ValueIx| program.value(v);
        let made = |v: ValueIx| value(v).origin == ValueOrigin::Made;
        let n = dims.at_top(value(x).shape.get(axis)?)? as f64;
        let all = dims.at_top(&Dim::product(&value(x).shape))? as f64;
        let orders = matches!(
            value(x).dtype,
            DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::I64
        );
        let few = all * n <= MOST && n < f64::from(i32::MAX);
        let orders = orders && !value(x).shape[axis].is_one();
        (orders && few && made(values) && made(indices)).then_some(Sorted {
            axis,
            largest: descending,
            x,
            values,
            indices,
        })
    }

    /// The kernels, and the value between them, which is to be number `ranks`.
    fn kernels(
        &self,
        program: &Program,
        item: &Item,
        ranks: ValueIx,
    ) -> Option<(ProgramValue, [Item; 2])> {
        let x = program.value(self.x);
        let mut name = format!("{} places", item.name);
        while program.values.iter().any(|v| v.name == name) {
            name.push('\'');
        }
        let value = ProgramValue {
            name,
            dtype: DType::I32,
            shape: x.shape.clone(),
            layout: Layout::row_major(&x.shape, 1),
            storage: Dim::product(&x.shape),
            origin: ValueOrigin::Made,
        };
        let count = self.count(program, item, &value, ranks)?;
        let pick = self.pick(program, item, &value, ranks)?;
        let named = |what: &str, b: KernelBuilder| {
            let (kernel, args) = b.finish();
            Item {
                name: format!("{} {what}", item.name),
                work: ItemWork::Kernel {
                    kernel: Arc::new(kernel),
                    args,
                },
                nodes: item.nodes.clone(),
            }
        };
        Some((value, [named("places", count), named("sorted", pick)]))
    }

    /// Axes of `shape`, none for an extent of one; those along the sorted axis are `along`.
    fn axes(&self, b: &mut KernelBuilder, shape: &[Dim], along: &[&str]) -> Axes {
        let mut dims: Vec<Vec<AxisId>> = vec![];
        let mut own = vec![];
        for (d, e) in shape.iter().enumerate() {
            dims.push(match d == self.axis {
                true => {
                    own = along.iter().map(|n| b.axis(n, e)).collect();
                    vec![]
                }
                false if e.is_one() => vec![],
                false => vec![b.axis(&format!("d{d}"), e)],
            });
        }
        Axes { dims, own }
    }

    /// How many come before every element.
    fn count(
        &self,
        program: &Program,
        item: &Item,
        ranks: &ProgramValue,
        to: ValueIx,
    ) -> Option<KernelBuilder> {
        let x = program.value(self.x);
        let mut b = KernelBuilder::new(&format!("{} places", item.name), Family::Select);
        let axes = self.axes(&mut b, &x.shape, &["own", "other"]);
        let (own, other) = (axes.own[0], axes.own[1]);
        let load = |b: &mut KernelBuilder, name: &str, axis: AxisId| {
            let access = b.access(&x.layout, &axes.with(self.axis, axis))?;
            Some(b.load(name, x.dtype, access, x.storage.clone(), self.x))
        };
        let (mine, theirs) = (load(&mut b, "x", own)?, load(&mut b, "y", other)?);
        let mut all = axes.kept();
        all.extend([own, other]);
        let before = before(x.dtype, self.largest, own, other);
        let before = b.map("before", DType::I32, &all, before, &[mine, theirs]);
        let sum = Monoid::sum(DType::I32, DType::I32);
        let place = b.reduce(&sum, &[before], &[other]).ok()?;
        let access = b.access(&ranks.layout, &axes.with(self.axis, own))?;
        b.store("place", access, ranks.storage.clone(), to, place[0]);
        Some(b)
    }

    /// Every place takes the element whose place it is.
    fn pick(
        &self,
        program: &Program,
        item: &Item,
        ranks: &ProgramValue,
        from: ValueIx,
    ) -> Option<KernelBuilder> {
        let x = program.value(self.x);
        let mut b = KernelBuilder::new(&format!("{} sorted", item.name), Family::Select);
        let axes = self.axes(&mut b, &x.shape, &["own"]);
        let own = axes.own[0];
        let places = &program.value(self.values).shape[self.axis];
        // A single place is no axis.
        let place = (!places.is_one()).then(|| b.axis("place", places));
        let access = b.access(&ranks.layout, &axes.with(self.axis, own))?;
        let at = b.load("at", DType::I32, access, ranks.storage.clone(), from);
        let access = b.access(&x.layout, &axes.with(self.axis, own))?;
        let own_x = b.load("x", x.dtype, access, x.storage.clone(), self.x);
        let mut all = axes.kept();
        all.extend(place);
        all.push(own);
        for (out, dtype, is_value) in [
            (self.values, x.dtype, true),
            (self.indices, DType::I64, false),
        ] {
            let max = Monoid::max(dtype, dtype);
            let e = chosen(&max, is_value.then_some(x.dtype), place, own);
            let args = [at, own_x];
            let args = if is_value { &args[..] } else { &args[..1] };
            let one = b.map(
                ["index", "value"][usize::from(is_value)],
                dtype,
                &all,
                e,
                args,
            );
            let got = b.reduce(&max, &[one], &[own]).ok()?;
            let y = program.value(out);
            let mut to = axes.dims.clone();
            to[self.axis].extend(place);
            let access = b.access(&y.layout, &to)?;
            b.store("y", access, y.storage.clone(), out, got[0]);
        }
        Some(b)
    }
}

/// Axes of a kernel.
struct Axes {
    /// By dimension; none along the sorted one.
    dims: Vec<Vec<AxisId>>,
    /// Those along the sorted one.
    own: Vec<AxisId>,
}

impl Axes {
    /// With `axis` along dimension `d`.
    fn with(&self, d: usize, axis: AxisId) -> Vec<Vec<AxisId>> {
        let mut dims = self.dims.clone();
        dims[d] = vec![axis];
        dims
    }

    fn kept(&self) -> Vec<AxisId> {
        self.dims.iter().flatten().copied().collect()
    }
}

/// 1 where the second element, at the coordinate along `other`, comes before the first, at that along
/// `own`: ties keep their order, a NaN is larger than every number.
fn before(d: DType, largest: bool, own: AxisId, other: AxisId) -> Expr {
    let mut b = ExprBuilder::new();
    let (x, y) = (b.input(0, d), b.input(1, d));
    let better = if largest { Compare::Gt } else { Compare::Lt };
    let mut first = b.compare(better, y, x);
    let mut equal = b.compare(Compare::Eq, y, x);
    if d.is_float() {
        let (nan_x, nan_y) = (b.unary(Unary::IsNan, x), b.unary(Unary::IsNan, y));
        // Comparisons with a NaN are false.
        let (one, not) = if largest {
            (nan_y, nan_x)
        } else {
            (nan_x, nan_y)
        };
        let number = b.unary(Unary::Not, not);
        let by_nan = b.binary(Binary::And, one, number);
        first = b.binary(Binary::Or, first, by_nan);
        let both = b.binary(Binary::And, nan_x, nan_y);
        equal = b.binary(Binary::Or, equal, both);
    }
    let (i, j) = (b.index(own.into()), b.index(other.into()));
    let lower = b.compare(Compare::Lt, j, i);
    let tie = b.binary(Binary::And, equal, lower);
    first = b.binary(Binary::Or, first, tie);
    let (one, none) = (b.int(1, DType::I32), b.int(0, DType::I32));
    let out = b.select(first, one, none);
    b.finish(&[out])
}

/// The element, or its coordinate along `own`, where its place is the coordinate along `place`; else what
/// `max` begins with.
fn chosen(max: &Monoid, value: Option<DType>, place: Option<AxisId>, own: AxisId) -> Expr {
    let mut b = ExprBuilder::new();
    let at = b.input(0, DType::I32);
    let at = b.cast(at, DType::I64);
    let p = match place {
        Some(place) => b.index(place.into()),
        None => b.int(0, DType::I64),
    };
    let here = b.compare(Compare::Eq, at, p);
    let own = match value {
        Some(d) => b.input(1, d),
        None => b.index(own.into()),
    };
    let none = b.inline(&max.identity, &[], None)[0];
    let out = b.select(here, own, none);
    b.finish(&[out])
}
