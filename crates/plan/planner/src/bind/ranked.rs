//! Sorting on a GPU: every element's place is how many come before it, and every place takes the element
//! whose place it is. Two kernels instead of a step of the host, where these are predicted to take less than
//! the way to the host, its plain code, and the way back: all elements are compared with all, at once, where
//! plain code compares far fewer, one after the other.
use super::ctx::Ctx;
use super::places::transfer_cost;
use super::{schedule, why};
use crate::kernels::builder::KernelBuilder;
use expr::{Binary, Compare, Expr, ExprBuilder, Monoid, Unary};
use graph::HostSpec;
use kernel::{AxisId, Family};
use layout::{DType, Dim, DimBox, Layout};
use machine::MachineKind;
use plan::{
    Alternative, Item, ItemWork, Program, ProgramValue, Segment, ValueIx, ValueOrigin, Why,
};
use std::sync::Arc;
use tensor::Attr;

/// Seconds that a comparison takes on a host that no description is given of: a load from a CPU's second
/// cache, some 4 ns on those of the catalog.
const COMPARISON_S: f64 = 4e-9;

/// The program with kernels for what a GPU sorts sooner than the host, `None` where there is nothing of the
/// kind.
pub(super) fn ranked(program: &Program, ctxs: &[Ctx], whys: &mut Vec<Why>) -> Option<Program> {
    let far = ctxs.len().checked_sub(1)?;
    let gpu = ctxs[far];
    gpu.target.gpu.as_ref()?;
    let of = |i: &Item| Sorted::of(program, i, gpu.dims);
    let straight = |s: &Segment| matches!(s, Segment::Straight(items) if items.iter().any(|i| of(i).is_some()));
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
            let made = of(&item).and_then(|s| {
                let next = out.values.len() as ValueIx;
                let (value, kernels) = s.kernels(program, &item, next)?;
                let gpu_s: Option<f64> = kernels.iter().map(|i| seconds(gpu, i)).sum();
                Some((s.on_host(program, ctxs), gpu_s?, value, kernels))
            });
            let Some((host_s, gpu_s, value, kernels)) = made else {
                all.push(item);
                continue;
            };
            let other = |what: &str, predicted_s: f64| Alternative {
                what: what.into(),
                predicted_s,
            };
            let (choice, alternative) = match gpu_s < host_s {
                true => ("two kernels", other("a host step", host_s)),
                false => ("a host step", other("two kernels", gpu_s)),
            };
            whys.push(Why {
                alternatives: vec![alternative],
                ..why(
                    "rank",
                    &item.name,
                    choice,
                    format!(
                        "a GPU counts for every element how many come before it, predicted {:.3} ms; the host \
                         sorts, copies included, in {:.3} ms",
                        1e3 * gpu_s,
                        1e3 * host_s
                    ),
                )
            });
            if gpu_s < host_s {
                out.values.push(value);
                all.extend(kernels);
            } else {
                all.push(item);
            }
        }
        *items = all;
    }
    Some(out)
}

/// What the kernel of `item` is predicted to take on a device, by the schedule it would get; `None` where
/// it has none.
fn seconds(ctx: Ctx, item: &Item) -> Option<f64> {
    let ItemWork::Kernel { kernel, .. } = &item.work else {
        return None;
    };
    let chosen = schedule::choose(ctx, kernel, &schedule::Facts::NONE, &mut Vec::new());
    chosen.ok().map(|c| c.cost.time_s)
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
        let Ok(HostSpec::Sort {
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
        let orders = matches!(
            value(x).dtype,
            DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::I64
        );
        // Places are counted in 32 bits.
        let counted = n < f64::from(i32::MAX);
        let orders = orders && !value(x).shape[axis].is_one();
        (orders && counted && made(values) && made(indices)).then_some(Sorted {
            axis,
            largest: descending,
            x,
            values,
            indices,
        })
    }

    /// Seconds until the device has what the host sorted: the copies both ways, and the comparisons. Each
    /// decides what is read next, so that it waits for the cache that holds elements and their numbers.
    fn on_host(&self, program: &Program, ctxs: &[Ctx]) -> f64 {
        let gpu = &ctxs[ctxs.len() - 1];
        let count = |v: ValueIx| gpu.top(&Dim::product(&program.value(v).shape)) as f64;
        let bytes = |v: ValueIx| count(v) * program.value(v).dtype.bits() as f64 / 8.0;
        let host = ctxs[0].machine;
        let described = host.kind == MachineKind::Cpu;
        let held = count(self.x) * 8.0 + bytes(self.x);
        let comparison = match described {
            true => host.nearest_holding(held).latency_s.value,
            false => COMPARISON_S,
        };
        let n = gpu.top(&program.value(self.x).shape[self.axis]).max(2) as f64;
        let link = |from: u32, to: u32, bytes: f64| {
            let on = |p: u32| (p, if p == 0 { host } else { gpu.machine });
            transfer_cost(on(from), on(to), bytes).time_s
        };
        link(1, 0, bytes(self.x))
            + count(self.x) * n.log2() * comparison
            + link(0, 1, bytes(self.values))
            + link(0, 1, bytes(self.indices))
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
                given: None,
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
        let mut all = axes.axes();
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
        let mut all = axes.axes();
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

    fn axes(&self) -> Vec<AxisId> {
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
