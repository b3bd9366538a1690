//! A block's steps as the tables that resident workers read.
use layout::Dim;
use plan::{TileMap, Wait};
use std::collections::BTreeSet;
use std::mem::{offset_of, size_of};
use workers::ring::abi::{PayloadHead, SlotHead, StepRecord, WaitRecord};

/// Counters per step at most, for groups of its tasks.
const MAX_GROUPS: u64 = 1024;
/// Bytes of a slot's tables at most.
const MAX_BYTES: u64 = 1 << 30;

/// Why steps do not fit into tables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Too much of something.
    #[error(
        "the tables of a resident plan take {bytes} bytes, {MAX_BYTES} are the most; use fewer steps"
    )]
    Size {
        /// Bytes.
        bytes: u64,
    },
    /// A step waits for one that is not before it.
    #[error("step {step} waits for step {other}, which is not before it; verify the plan first")]
    Order {
        /// Step.
        step: usize,
        /// What it waits for.
        other: u32,
    },
    /// A request's numbers do not fit the tables.
    #[error("step {step}: {what} does not fit what the tables were made for")]
    Call {
        /// Step.
        step: usize,
        /// What.
        what: &'static str,
    },
}

/// What is known of a step before any request.
#[derive(Clone, Debug, PartialEq)]
pub struct StepShape {
    /// Which body runs it.
    pub body: u32,
    /// Parameters of the body.
    pub params: u32,
    /// Tasks at the top of the box.
    pub top_tasks: u64,
    /// Earlier steps of this list that it waits for.
    pub waits: Vec<Wait>,
    /// Whether its body has a fault word.
    pub faults: bool,
}

/// A step of one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Call<'a> {
    /// Tasks.
    pub tasks: u64,
    /// The body's parameters.
    pub params: &'a [u64],
}

/// What a step waits for.
#[derive(Clone, Debug, PartialEq)]
enum Need {
    Whole(u32),
    Some(u32, TileMap),
}

#[derive(Clone, Debug, Default)]
struct Places {
    params: u32,
    waits: u32,
    total: u32,
    groups: u32,
    group_counters: u32,
    fault: u32,
}

/// Where everything of a slot lies, for one list of steps. Sizes are those of the top of the box, so
/// that a slot serves every request.
#[derive(Clone, Debug)]
pub struct Tables {
    shapes: Vec<StepShape>,
    needs: Vec<Vec<Need>>,
    places: Vec<Places>,
    records: u32,
    payload_bytes: u32,
    fault_from: u32,
    zero_from: u32,
    zero_to: u32,
}

/// Steps that are over when step `i` is: itself, and those of which its tasks waited for tiles.
fn closure(shapes: &[StepShape], i: u32, out: &mut BTreeSet<u32>) {
    if !out.insert(i) {
        return;
    }
    for w in &shapes[i as usize].waits {
        if let Wait::Tiles { step, .. } = w {
            closure(shapes, *step, out);
        }
    }
}

impl Tables {
    /// Lays out tables for `shapes`, in plan order.
    ///
    /// # Errors
    /// They are too large, or a wait does not point backwards.
    pub fn new(shapes: Vec<StepShape>) -> Result<Tables, TableError> {
        let mut needs = Vec::with_capacity(shapes.len());
        let mut counted: Vec<(bool, bool)> = vec![(false, false); shapes.len()];
        for (i, s) in shapes.iter().enumerate() {
            let (mut whole, mut list) = (BTreeSet::new(), vec![]);
            for w in &s.waits {
                let (Wait::Step(other) | Wait::Tiles { step: other, .. }) = *w;
                if other as usize >= i {
                    return Err(TableError::Order { step: i, other });
                }
                match w {
                    Wait::Step(j) => closure(&shapes, *j, &mut whole),
                    Wait::Tiles { step, map } => list.push(Need::Some(*step, map.clone())),
                }
            }
            list.retain(|n| !matches!(n, Need::Some(j, _) if whole.contains(j)));
            for n in &list {
                if let Need::Some(j, _) = n {
                    counted[*j as usize].1 = true;
                }
            }
            for j in whole {
                counted[j as usize].0 = true;
                list.push(Need::Whole(j));
            }
            needs.push(list);
        }
        let mut at = (size_of::<SlotHead>() + size_of::<PayloadHead>()) as u64
            + (shapes.len() * size_of::<StepRecord>()) as u64;
        let mut take = |bytes: u64| {
            let from = at;
            at = at.saturating_add(bytes);
            match u32::try_from(from) {
                Ok(v) if at <= MAX_BYTES => Ok(v),
                _ => Err(TableError::Size { bytes: at }),
            }
        };
        let mut places = vec![Places::default(); shapes.len()];
        // What every worker reads of every step lies together: it keeps a copy of its own.
        for (p, n) in places.iter_mut().zip(&needs) {
            p.waits = take((n.len() * size_of::<WaitRecord>()) as u64)?;
        }
        let head = size_of::<SlotHead>() + size_of::<PayloadHead>();
        let records = take(0)? - head as u32;
        for (p, s) in places.iter_mut().zip(&shapes) {
            p.params = take(8 * u64::from(s.params))?;
        }
        let end = take(0)?;
        take(u64::from(end.next_multiple_of(16) - end))?;
        let zero_from = take(0)?;
        for ((p, s), c) in places.iter_mut().zip(&shapes).zip(&counted) {
            if c.0 {
                p.total = take(4)?;
            }
            if c.1 {
                p.group_counters = s.top_tasks.clamp(1, MAX_GROUPS) as u32;
                p.groups = take(4 * u64::from(p.group_counters))?;
            }
        }
        // Fault words last: those are cleared for every request, counters with fresh tables only.
        let fault_from = take(0)?;
        for (p, s) in places.iter_mut().zip(&shapes) {
            if s.faults {
                p.fault = take(4)?;
            }
        }
        let zero_to = take(0)?;
        Ok(Tables {
            shapes,
            needs,
            places,
            records,
            payload_bytes: zero_from - size_of::<SlotHead>() as u32,
            fault_from,
            zero_from,
            zero_to,
        })
    }

    /// Tables for several lists, each for a slot of its own, that one kernel reads: slots and payloads of
    /// all are equally long, and what is cleared lies at the same place.
    ///
    /// # Errors
    /// As [`Tables::new`].
    pub fn together(lists: Vec<Vec<StepShape>>) -> Result<Vec<Tables>, TableError> {
        let all = lists.into_iter().map(Tables::new);
        let mut all = all.collect::<Result<Vec<Tables>, _>>()?;
        let most = |f: fn(&Tables) -> u32| all.iter().map(f).max().unwrap_or(0);
        let payload = most(|t| t.payload_bytes);
        let counters = most(|t| t.fault_from - t.zero_from);
        let faults = most(|t| t.zero_to - t.fault_from);
        let zero_from = payload + size_of::<SlotHead>() as u32;
        let end = [counters, faults].into_iter();
        let end = end.fold(u64::from(zero_from), |n, x| n + u64::from(x));
        if end > MAX_BYTES {
            return Err(TableError::Size { bytes: end });
        }
        for t in &mut all {
            let (by, faults_by) = (zero_from - t.zero_from, zero_from + counters - t.fault_from);
            for p in &mut t.places {
                // 0 is none.
                for at in [&mut p.total, &mut p.groups] {
                    *at += if *at == 0 { 0 } else { by };
                }
                p.fault += if p.fault == 0 { 0 } else { faults_by };
            }
            t.payload_bytes = payload;
            t.zero_from = zero_from;
            t.fault_from = zero_from + counters;
            t.zero_to = end as u32;
        }
        Ok(all)
    }

    /// Bytes that the host writes with fresh tables.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes as usize
    }

    /// Bytes of a slot in device memory, which begin as zeros.
    pub fn slot_bytes(&self) -> usize {
        (self.zero_to as usize).next_multiple_of(256)
    }

    /// Offsets in a slot of what fresh tables clear: first, first of every request, end.
    pub fn cleared(&self) -> (usize, usize, usize) {
        (
            self.zero_from as usize,
            self.fault_from as usize,
            self.zero_to as usize,
        )
    }

    /// Offset in a slot of the fault word of `step`.
    pub fn fault(&self, step: usize) -> Option<usize> {
        let p = self.places.get(step)?;
        (p.fault != 0).then_some(p.fault as usize)
    }

    /// `(offset, number, step)` of every run of counters, for [`workers::ring::Dump`].
    pub fn counters(&self) -> Vec<(u32, u32, u32)> {
        let mut out = vec![];
        for (i, p) in self.places.iter().enumerate() {
            if p.total != 0 {
                out.push((p.total, 1, i as u32));
            }
            if p.groups != 0 {
                out.push((p.groups, p.group_counters, i as u32));
            }
        }
        out
    }

    /// Says in a payload where workers write their times: an address that they see.
    pub fn timed(payload: &mut [u8], address: u64) {
        let at = offset_of!(PayloadHead, times);
        if let Some(b) = payload.get_mut(at..at + 8) {
            b.copy_from_slice(&address.to_le_bytes());
        }
    }

    /// Tasks per group, of steps that are waited for by tiles.
    fn groups(&self, calls: &[Call<'_>], value: &dyn Fn(&Dim) -> Option<i64>) -> Vec<u64> {
        let mut group: Vec<u64> = calls.iter().map(|c| c.tasks.max(1)).collect();
        for need in self.needs.iter().flatten() {
            if let Need::Some(j, map) = need {
                let natural = match map {
                    TileMap::Interleaved | TileMap::Clusters { .. } => None,
                    TileMap::Range { ratio } => value(ratio),
                    TileMap::Spans { earlier_tasks, .. } => value(earlier_tasks),
                };
                let g = &mut group[*j as usize];
                *g = (*g).min(natural.unwrap_or(1).max(1) as u64);
            }
        }
        group
    }

    /// Writes the payload of one request: `calls` in the order of the steps, `value` evaluates
    /// dimensions of waits.
    ///
    /// # Errors
    /// Numbers beyond the top of the box.
    pub fn fill(
        &self,
        calls: &[Call<'_>],
        value: &dyn Fn(&Dim) -> Option<i64>,
        payload: &mut Vec<u8>,
    ) -> Result<(), TableError> {
        let bad = |step: usize, what: &'static str| Err(TableError::Call { step, what });
        if calls.len() != self.shapes.len() {
            return bad(calls.len(), "the number of steps");
        }
        payload.clear();
        payload.resize(self.payload_bytes(), 0);
        let mut put = |at: usize, v: u32| {
            if let Some(b) = payload.get_mut(at..at + 4) {
                b.copy_from_slice(&v.to_le_bytes());
            }
        };
        let head = size_of::<SlotHead>();
        let turns = |i: usize| calls[i].tasks.max(1);
        let mut group = self.groups(calls, value);
        let mut first = 0u64;
        for (i, call) in calls.iter().enumerate() {
            let (shape, place) = (&self.shapes[i], &self.places[i]);
            if call.tasks > shape.top_tasks.max(1) {
                return bad(i, "the number of tasks");
            }
            if call.params.len() != shape.params as usize {
                return bad(i, "the number of parameters");
            }
            if place.groups != 0 {
                let least = turns(i).div_ceil(u64::from(place.group_counters));
                group[i] = group[i].max(least);
            }
            let fits = |v: u64| u32::try_from(v).ok().filter(|v| *v < 1 << 31);
            let (Some(start), Some(all)) = (fits(first), fits(turns(i))) else {
                return bad(i, "the number of tasks");
            };
            let base = size_of::<PayloadHead>() + i * size_of::<StepRecord>();
            for (field, v) in [
                (offset_of!(StepRecord, body), shape.body),
                (offset_of!(StepRecord, first), start),
                (offset_of!(StepRecord, turns), all),
                (offset_of!(StepRecord, tasks), call.tasks as u32),
                (offset_of!(StepRecord, params), place.params),
                (offset_of!(StepRecord, waits), place.waits),
                (
                    offset_of!(StepRecord, wait_count),
                    self.needs[i].len() as u32,
                ),
                (offset_of!(StepRecord, total), place.total),
                (offset_of!(StepRecord, groups), place.groups),
                (offset_of!(StepRecord, group), group[i].min(1 << 31) as u32),
                (offset_of!(StepRecord, fault), place.fault),
            ] {
                put(base + field, v);
            }
            for (n, need) in self.needs[i].iter().enumerate() {
                let at = place.waits as usize - head + n * size_of::<WaitRecord>();
                let (kind, counters, per, earlier, map) = match need {
                    Need::Whole(j) => {
                        let j = *j as usize;
                        (0, self.places[j].total, turns(j), turns(j), [0; 6])
                    }
                    Need::Some(j, map) => {
                        let j = *j as usize;
                        let (kind, numbers) = numbers(map, call.tasks, turns(j), value);
                        (kind, self.places[j].groups, group[j], turns(j), numbers)
                    }
                };
                put(at + offset_of!(WaitRecord, kind), kind);
                put(at + offset_of!(WaitRecord, counters), counters);
                put(at + offset_of!(WaitRecord, group), per as u32);
                put(at + offset_of!(WaitRecord, turns), earlier as u32);
                for (k, v) in map.iter().enumerate() {
                    put(at + offset_of!(WaitRecord, map) + 4 * k, *v);
                }
            }
            for (k, v) in call.params.iter().enumerate() {
                let at = place.params as usize - head + 8 * k;
                put(at, *v as u32);
                put(at + 4, (*v >> 32) as u32);
            }
            first += u64::from(all);
        }
        put(offset_of!(PayloadHead, steps), calls.len() as u32);
        let Ok(all) = u32::try_from(first) else {
            return bad(calls.len(), "the number of tasks");
        };
        put(offset_of!(PayloadHead, tasks), all);
        put(offset_of!(PayloadHead, records), self.records);
        Ok(())
    }
}

/// Kind and numbers of a map; the whole step where the worker's 32 bits would not do.
fn numbers(
    map: &TileMap,
    tasks: u64,
    earlier: u64,
    value: &dyn Fn(&Dim) -> Option<i64>,
) -> (u32, [u32; 6]) {
    let whole = (0, [0; 6]);
    let small = |v: i64| (0..1 << 31).contains(&v);
    let all: Option<Vec<i64>> = map.dims().into_iter().map(value).collect();
    let last = tasks.saturating_sub(1) as i64;
    let checked = || -> Option<(u32, [u32; 6])> {
        let all = all?;
        let mut out = [0u32; 6];
        for (o, v) in out.iter_mut().zip(&all) {
            *o = u32::try_from(*v).ok()?;
        }
        match all.as_slice() {
            [ratio] => small(last.checked_add(1)?.checked_mul(*ratio)?).then_some((1, out)),
            &[per, span, before, after, earlier_tasks, earlier_span] => {
                if per < 1 || earlier_span < 1 || !small(before) || !small(earlier as i64) {
                    return None;
                }
                let end = (last / per).checked_mul(span)?.checked_add(span)?;
                let end = end.checked_add(after)?.checked_add(earlier_span)?;
                let tasks = (end / earlier_span)
                    .checked_add(1)?
                    .checked_mul(earlier_tasks)?;
                (small(end) && small(tasks)).then_some((2, out))
            }
            _ => None,
        }
    };
    checked().unwrap_or(whole)
}
