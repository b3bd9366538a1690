//! What would help a model on a machine, each gain planned or predicted again.
use crate::fleet::{batch_of, dims_with};
use crate::planview;
use crate::targets::Planning;
use kernel::{Family, Role, Target};
use layout::{Arrange, DimBox};
use machine::{MachineKind, NumType, Phase, UnitClass, WayTime, Work, predict_phases};
use plan::{Block, BufferKind, Plan, Step, StepWork};
use planview::Whole;
use report::{Advice, AdviceView, Computed, bounds_of, units};
use shopfloor::{Error, Machine, Model, ModelOptions, Precision, inputs};
use std::path::Path;

/// Batches that are tried.
const BATCHES: [i64; 2] = [8, 64];

struct Subject<'a> {
    machine: &'a Machine,
    target: Target,
    /// The plan, and those of branches and loop bodies.
    plans: Vec<&'a Plan>,
    now_s: f64,
}

impl Subject<'_> {
    fn advice(
        &self,
        kind: &str,
        what: impl Into<String>,
        new_s: Option<f64>,
        computed: Computed,
        reason: impl Into<String>,
    ) -> Advice {
        Advice {
            kind: kind.into(),
            what: what.into(),
            new_s,
            gain: match new_s {
                Some(s) if s > 0.0 => self.now_s / s,
                _ => 1.0,
            },
            computed,
            reason: reason.into(),
        }
    }

    /// Blocks with the steps that run on the machine itself.
    fn own(&self) -> impl Iterator<Item = (&Block, usize, &Step)> {
        let blocks = self.plans.iter().flat_map(|p| {
            let place = p.devices.len().saturating_sub(1) as u32;
            p.blocks().map(move |b| (b, place))
        });
        blocks.flat_map(|(b, place)| {
            b.steps
                .iter()
                .enumerate()
                .filter(move |(_, s)| s.device == place && !b.is_transfer(s))
                .map(move |(i, s)| (b, i, s))
        })
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.plans.iter().flat_map(|p| p.blocks())
    }

    fn predicted(&self, phases: &[(&Work, Family)], whole: &Work) -> f64 {
        let table = &self.target.efficiencies;
        let phases: Vec<Phase> = phases
            .iter()
            .map(|(w, f)| (*w, table.family(&format!("{f:?}").to_lowercase())))
            .collect();
        let workers = self.machine.worker_count();
        predict_phases(self.machine, &phases, whole, workers).time_s
    }
}

fn name(s: &Step) -> &str {
    s.nodes.first().unwrap_or(&s.name)
}

fn family(s: &Step) -> Option<Family> {
    match &s.work {
        StepWork::Kernel { kernel, .. } => Some(kernel.family),
        StepWork::Host { .. } => None,
    }
}

/// Buffers that a kernel step reads and writes.
fn touches(s: &Step) -> (Vec<u32>, Vec<u32>) {
    let StepWork::Kernel { kernel, args, .. } = &s.work else {
        return (vec![], vec![]);
    };
    let of = |role: Role| {
        let both = kernel.operands.iter().zip(args);
        both.filter(|(o, _)| o.role == role)
            .map(|(_, b)| *b)
            .collect()
    };
    (of(Role::Read), of(Role::Write))
}

/// A step's work without `bytes` of traffic at every level but the nearest: what stays on the chip.
fn without(w: &Work, bytes: f64, stored: bool) -> Work {
    let mut out = w.clone();
    let first = out.traffic.iter().position(|t| t.loaded + t.stored > 0.0);
    for (i, t) in out.traffic.iter_mut().enumerate() {
        if first.is_none_or(|f| i > f) {
            match stored {
                true => t.stored = (t.stored - bytes).max(0.0),
                false => t.loaded = (t.loaded - bytes).max(0.0),
            }
        }
    }
    out
}

/// Two steps as one whose intermediate of `bytes` never leaves the chip: seconds before and after.
fn fused(subject: &Subject, a: &Step, b: &Step, bytes: f64) -> Option<(f64, f64)> {
    let (fa, fb) = (family(a)?, family(b)?);
    let one = |w: &Work, f: Family| subject.predicted(&[(w, f)], w);
    let before = one(&a.cost_work, fa) + one(&b.cost_work, fb);
    let (wa, wb) = (
        without(&a.cost_work, bytes, true),
        without(&b.cost_work, bytes, false),
    );
    let mut w = wa.clone() + wb.clone();
    // One kernel: one step, and the grid of the larger.
    w.tasks = wa.tasks.max(wb.tasks);
    w.waves = wa.waves.max(wb.waves);
    w.steps = 1;
    w.handoffs = wa.handoffs.max(wb.handoffs);
    let both = [wa.ctas_per_worker, wb.ctas_per_worker];
    w.ctas_per_worker = both.into_iter().filter(|c| *c > 0).min().unwrap_or(0);
    Some((before, subject.predicted(&[(&wa, fa), (&wb, fb)], &w)))
}

/// Neighbours whose intermediate goes through memory.
fn fuse(s: &Subject) -> Advice {
    let mut pairs: Vec<(f64, String, f64)> = Vec::new();
    let mut taken: Vec<(*const Step, f64)> = Vec::new();
    let mut found: Vec<(f64, &Step, &Step, f64)> = Vec::new();
    for block in s.blocks() {
        let own: Vec<&Step> = s
            .own()
            .filter(|(b, ..)| std::ptr::eq(*b, block))
            .map(|x| x.2)
            .collect();
        for (id, buffer) in block.buffers.iter().enumerate() {
            if buffer.kind != BufferKind::Arena {
                continue;
            }
            let id = id as u32;
            let all = |write: bool| -> Vec<&Step> {
                let has = |x: &&Step| {
                    let (r, w) = touches(x);
                    if write {
                        w.contains(&id)
                    } else {
                        r.contains(&id)
                    }
                };
                block.steps.iter().filter(has).collect()
            };
            let (writers, readers) = (all(true), all(false));
            let (&[a], &[b]) = (&writers[..], &readers[..]) else {
                continue;
            };
            let mine = |x: &Step| own.iter().any(|o| std::ptr::eq(*o, x));
            if !mine(a) || !mine(b) || std::ptr::eq(a, b) {
                continue;
            }
            if let Some((before, after)) = fused(s, a, b, buffer.bytes as f64)
                && after < before
            {
                found.push((before - after, a, b, buffer.bytes as f64));
            }
        }
    }
    found.arrange_by(|x, y| y.0.total_cmp(&x.0));
    for (gain, a, b, bytes) in found {
        // A step becomes part of one pair.
        if taken
            .iter()
            .any(|t| std::ptr::eq(t.0, a) || std::ptr::eq(t.0, b))
        {
            continue;
        }
        taken.push((a, gain));
        taken.push((b, gain));
        pairs.push((gain, format!("{} with {}", name(a), name(b)), bytes));
    }
    let gain: f64 = pairs.iter().map(|p| p.0).sum();
    let Some(first) = pairs.first() else {
        return s.advice(
            "fuse",
            "",
            None,
            Computed::Repredicted,
            "no step's only reader could take it over with a gain; what can be fused is.",
        );
    };
    let bytes: f64 = pairs.iter().map(|p| p.2).sum();
    s.advice(
        "fuse",
        format!("fuse {} of steps more", units::plural(pairs.len() as u64, "pair")),
        Some(s.now_s - gain),
        Computed::Repredicted,
        format!(
            "{} of intermediates would stay on the chip and {} fall away, most for {} ({}); an upper bound, as not every pair has tiles that fit one kernel.",
            units::bytes(bytes),
            units::plural(pairs.len() as u64, "step"),
            first.1,
            units::seconds(first.0)
        ),
    )
}

/// Rearranged memory: steps that only move, and elements that lie apart.
fn layout(s: &Subject) -> Advice {
    let (mut moves, mut apart) = ((0u64, 0.0), (0u64, 0.0));
    for (_, _, step) in s.own() {
        if family(step) == Some(Family::Move) {
            moves = (moves.0 + 1, moves.1 + step.predicted.time_s);
        } else if let Some(f) = family(step)
            && step.cost_work.ops_of(UnitClass::Element) > 0.0
        {
            let mut near = step.cost_work.clone();
            near.ops.retain(|o| o.0 != UnitClass::Element);
            let whole = s.predicted(&[(&step.cost_work, f)], &step.cost_work);
            let gain = whole - s.predicted(&[(&near, f)], &near);
            if gain > 0.0 {
                apart = (apart.0 + 1, apart.1 + gain.min(step.predicted.time_s));
            }
        }
    }
    let gain = moves.1 + apart.1;
    let spent =
        |(n, s): (u64, f64)| format!("{} of {}", units::seconds(s), units::plural(n, "step"));
    if gain <= 0.0 {
        return s.advice(
            "layout",
            "",
            None,
            Computed::Repredicted,
            "no step moves data into another order, and none takes elements one by one.",
        );
    }
    s.advice(
        "layout",
        "lay tensors out as their readers take them",
        Some(s.now_s - gain),
        Computed::Repredicted,
        {
            let mut parts = Vec::new();
            if moves.0 > 0 {
                parts.push(format!(
                    "{} for moving data into another order alone",
                    spent(moves)
                ));
            }
            if apart.0 > 0 {
                parts.push(format!(
                    "{} because elements lie apart and are taken one by one",
                    spent(apart)
                ));
            }
            format!("{}.", parts.join(", "))
        },
    )
}

/// Values that stay where they are made.
fn on_device(s: &Subject, now: Option<WayTime>) -> Advice {
    let transfers: Vec<&Step> = s
        .blocks()
        .flat_map(|b| b.steps.iter().filter(move |x| b.is_transfer(x)))
        .collect();
    let copies: f64 = match now {
        Some(way) => way.copies_s,
        None => transfers.iter().map(|r| r.predicted.time_s).sum(),
    };
    if transfers.is_empty() {
        return s.advice(
            "on device",
            "",
            None,
            Computed::Repredicted,
            "nothing is copied between memories.",
        );
    }
    let bytes: f64 = transfers.iter().map(|r| r.cost_work.unique_read).sum();
    s.advice(
        "on device",
        "keep inputs and outputs on the device",
        Some(s.now_s - copies),
        Computed::Repredicted,
        format!(
            "{} move {} between host and device in {}; bound or unified buffers, and state that stays in place, need none of them.",
            units::plural(transfers.len() as u64, "copy").replace("copys", "copies"),
            units::bytes(bytes),
            units::seconds(copies)
        ),
    )
}

/// Another way of launching steps.
fn launch(s: &Subject, now: Option<WayTime>, ways: &[WayTime]) -> Advice {
    let none = |why: String| s.advice("launch", "", None, Computed::Repredicted, why);
    let (Some(now), Some(best)) = (now, ways.first()) else {
        return none(match s.machine.kind {
            MachineKind::Cpu => "the CPU's workers are resident already.".into(),
            MachineKind::Gpu => "nothing is known of another way than to launch its steps.".into(),
        });
    };
    let n: u64 = s.blocks().map(|b| b.steps.len() as u64).sum();
    let between = |t: &WayTime| {
        let between = (t.seconds - t.bodies_s).max(0.0);
        format!(
            "{} of {}",
            units::seconds(between),
            units::seconds(t.with_copies_s())
        )
    };
    if best.way == now.way {
        let others: Vec<String> = ways
            .iter()
            .filter(|t| t.way != now.way)
            .map(|t| format!("{} would take {}", t.way, units::seconds(t.with_copies_s())))
            .collect();
        return none(format!(
            "{} {} is the shortest way; {}.",
            now.way,
            units::seconds(now.with_copies_s()),
            others.join(" and ")
        ));
    }
    let new_s = s.now_s - now.with_copies_s() + best.with_copies_s();
    s.advice(
        "launch",
        format!("run it by --launch {}", best.way),
        Some(new_s),
        Computed::Repredicted,
        format!(
            "between and around its {} {} a request would be {}, where by {} it is {}.",
            n,
            if n == 1 { "step" } else { "steps" },
            between(best),
            now.way,
            between(&now)
        ),
    )
}

/// Operations of f32 products.
fn products(s: &Subject) -> f64 {
    s.own()
        .flat_map(|(_, _, step)| &step.cost_work.ops)
        .filter(|o| o.1 == NumType::F32 && matches!(o.0, UnitClass::Fma | UnitClass::Tensor))
        .map(|o| o.2)
        .sum()
}

/// Rates of products in a type and, as now, in f32.
fn rates(m: &Machine, t: NumType) -> (Option<f64>, f64) {
    let unit = |class| m.unit(class, t).map(|u| u.all.value);
    let fma = m.unit(UnitClass::Fma, NumType::F32);
    (
        unit(UnitClass::Tensor).or(unit(UnitClass::Fma)),
        fma.map_or(0.0, |u| u.all.value),
    )
}

/// Products of rounded factors.
fn precision(
    s: &Subject,
    model: &Model,
    again: &dyn Fn(Precision) -> Result<Whole, Error>,
) -> Advice {
    let flop = products(s);
    let none = |why: String| s.advice("precision", "", None, Computed::Replanned, why);
    if flop <= 0.0 {
        return none(
            "its products are in a narrower type than f32 already, or it has none.".into(),
        );
    }
    let (rate, now) = rates(s.machine, NumType::Bf16);
    let Some(rate) = rate else {
        return none(format!(
            "{} has no units for bf16: products would be as exact, and take as long, as now.",
            s.machine.name
        ));
    };
    let new_s = match again(Precision::Bf16) {
        Ok(p) => p.seconds(),
        Err(e) => return none(format!("it cannot be planned in bf16: {e}.")),
    };
    let reason = match new_s > 0.99 * s.now_s {
        true => format!(
            "planned again with products in bf16 a request takes {}: its time is not in multiplying, or no step multiplies f32 faster.",
            units::seconds(new_s)
        ),
        false => format!(
            "{} of f32 products would be rounded to bf16, which {} multiplies at {} where f32 is done at {}; outputs of '{}' keep two to three digits.",
            units::flop(flop),
            s.machine.name,
            units::flop_rate(rate),
            units::flop_rate(now),
            model.program().name
        ),
    };
    s.advice(
        "precision",
        "multiply in bf16 (--precision bf16)",
        Some(new_s),
        Computed::Replanned,
        reason,
    )
}

/// Weights and everything between steps in f16.
fn storage(s: &Subject, model: &Model, again: &dyn Fn(&Model) -> Result<Whole, Error>) -> Advice {
    let none = |why: String| s.advice("precision", "", None, Computed::Replanned, why);
    let halved = match crate::half::halved(model) {
        Ok(Some(h)) => h,
        Ok(None) => return none("nothing of it is stored as f32.".into()),
        Err(e) => return none(format!("it cannot be stored as f16: {e}.")),
    };
    let whole = match again(&halved) {
        Ok(w) => w,
        Err(e) => return none(format!("it cannot be planned with f16 storage: {e}.")),
    };
    let new_s = whole.seconds();
    let bytes = |plans: &[&Plan]| -> f64 {
        let blocks = plans.iter().flat_map(|p| p.blocks());
        let steps = blocks.flat_map(|b| &b.steps);
        steps.map(|s| s.cost_work.unique_bytes()).sum()
    };
    let (was, is) = (bytes(&s.plans), bytes(&whole.plans()));
    let units = match rates(s.machine, NumType::F16) {
        (Some(r), now) if r > now && products(s) > 0.0 => format!(
            "products run at {} where f32 is done at {}, with sums in f32",
            units::flop_rate(r),
            units::flop_rate(now)
        ),
        _ if products(s) <= 0.0 => "it has no products of f32".into(),
        _ => format!("{} multiplies f16 no faster than f32", s.machine.name),
    };
    s.advice(
        "precision",
        "store weights and activations as f16 (export the model so)",
        Some(new_s),
        Computed::Replanned,
        format!(
            "steps would read and write {} where they do {}, and {units}; outputs of '{}' keep about three digits, and what is above 65504 overflows.",
            units::bytes(is),
            units::bytes(was),
            model.program().name
        ),
    )
}

/// More items at once.
fn batch(
    s: &Subject,
    (model, options): (&Model, &ModelOptions),
    again: &dyn Fn(&DimBox) -> Result<Whole, Error>,
) -> Vec<Advice> {
    let Some(dim) = batch_of(model) else {
        let why = match options.dims.iter().find(|(_, r)| r.lo == r.hi) {
            Some((name, r)) => format!(
                "{name} is {} as it was asked for; without that other batches are tried.",
                r.lo
            ),
            None => {
                "the batch is fixed, by the model or by --inputs; with an open one (--dim in place of --inputs, or exported so) it could be tried.".into()
            }
        };
        return vec![s.advice("batch", "", None, Computed::Replanned, why)];
    };
    let (sizes, _) = inputs::sizes(model);
    let now = sizes.get(&dim).copied().unwrap_or(1).max(1);
    let mut out = Vec::new();
    for b in BATCHES.into_iter().filter(|b| *b > now) {
        match again(&dims_with(model, Some(b))) {
            Ok(p) => {
                let request_s = p.seconds();
                let each = request_s * now as f64 / b as f64;
                out.push(s.advice(
                    "batch",
                    match now {
                        1 => format!("batches of {b} (--dim {dim}={b}), per item"),
                        _ => format!("batches of {b} (--dim {dim}={b}), per {now} items"),
                    },
                    Some(each),
                    Computed::Replanned,
                    format!(
                        "a request of {b} would take {} where {} of {now} take {}: weights are read once for all of them and workers have more to share out; each waits {} longer.",
                        units::seconds(request_s),
                        b / now,
                        units::seconds(s.now_s * (b / now) as f64),
                        units::seconds((request_s - s.now_s).max(0.0))
                    ),
                ));
            }
            Err(e) => out.push(s.advice(
                "batch",
                "",
                None,
                Computed::Replanned,
                format!("{dim}={b} cannot be planned: {e}."),
            )),
        }
    }
    out
}

/// What would help the model at `path` on `machine`, ranked by what is predicted to be gained.
///
/// # Errors
/// As [`Model::open`] and [`planview::plan_for`].
pub fn advise(
    path: impl AsRef<Path>,
    options: &ModelOptions,
    machine: &Machine,
    planning: &Planning,
) -> Result<(Model, AdviceView), Error> {
    let model = Model::open(&path, options)?;
    let dims = inputs::box_of(&model, &inputs::sizes(&model).0);
    let target = planning.target(machine)?;
    let plan_of = |model: &Model, dims: &DimBox| {
        planview::whole_with(model, (machine, target.clone()), planning, dims)
    };
    let whole = plan_of(&model, &dims)?;
    let (bounds, notes) = (bounds_of(&whole.plan, &whole.bodies), whole.notes());
    // A step more or less costs what lies between steps by the way that they go.
    let mut priced = machine.clone();
    if let (Some(way), Some(ways)) = (&whole.way, machine.way_costs()) {
        priced.costs.step_s = ways.edge_s(way.way);
    }
    let s = Subject {
        machine: &priced,
        target: target.clone(),
        now_s: whole.seconds(),
        plans: whole.plans(),
    };
    let mut advice = vec![
        precision(&s, &model, &|precision| {
            let options = ModelOptions {
                precision,
                ..options.clone()
            };
            plan_of(&Model::open(&path, &options)?, &dims)
        }),
        storage(&s, &model, &|halved| plan_of(halved, &dims)),
        fuse(&s),
        layout(&s),
        on_device(&s, whole.way),
        launch(&s, whole.way, &whole.ways),
    ];
    advice.extend(batch(&s, (&model, options), &|dims| plan_of(&model, dims)));
    if machine.kind == MachineKind::Cpu {
        advice.retain(|a| a.kind != "on device");
    }
    advice.arrange_by(|a, b| b.gain.total_cmp(&a.gain));
    let view = AdviceView {
        model: model.program().name.clone(),
        dims: inputs::dims_text(&model, &dims),
        machine: machine.name.clone(),
        how: whole.how.clone(),
        kernels: planning.kernels.label().into(),
        unvalidated: planning.kernels.unvalidated(machine),
        target: target.name,
        now_s: s.now_s,
        bounds,
        advice,
        notes,
    };
    Ok((model, view))
}
