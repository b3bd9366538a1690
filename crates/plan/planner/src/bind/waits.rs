//! What a step waits for: everything earlier that touches the same bytes, one of the two a write.
use super::memory::Life;
use plan::{BufferId, MAX_NODES, MAX_PAIRS, Pieces, StepSet, TileMap, Wait};
use std::collections::{BTreeMap, BTreeSet};

/// Buffers that a step reads and writes.
#[derive(Clone, Debug, Default)]
pub struct Touch {
    /// Read.
    pub reads: Vec<BufferId>,
    /// Written.
    pub writes: Vec<BufferId>,
}

/// First and last step that touches each buffer.
pub fn lives(touches: &[Touch]) -> BTreeMap<BufferId, (u32, u32)> {
    let mut out: BTreeMap<BufferId, (u32, u32)> = BTreeMap::new();
    for (i, t) in touches.iter().enumerate() {
        for &b in t.reads.iter().chain(&t.writes) {
            out.entry(b)
                .and_modify(|l| l.1 = i as u32)
                .or_insert((i as u32, i as u32));
        }
    }
    out
}

/// Where buffers lie that may share bytes with others: device, first byte, and the one behind the last.
#[derive(Clone, Debug, Default)]
pub struct Bytes(BTreeMap<BufferId, (u32, u64, u64)>);

impl Bytes {
    /// Adds the arena buffers of device `place`, given with offset and life.
    pub fn add(&mut self, place: u32, arena: &[(BufferId, u64, Life)]) {
        let some = arena.iter().filter(|a| a.2.bytes > 0);
        let each = some.map(|&(b, at, life)| (b, (place, at, at + life.bytes)));
        self.0.extend(each);
    }

    /// Whether two buffers share bytes.
    pub fn meet(&self, x: BufferId, y: BufferId) -> bool {
        let both = self.0.get(&x).zip(self.0.get(&y));
        x == y || both.is_some_and(|(x, y)| x.0 == y.0 && x.1 < y.2 && y.1 < x.2)
    }
}

/// What says that writers of one buffer write different bytes of it.
pub trait DisjointWrites {
    /// Whether steps `j` and `i` are known to write different bytes of buffer `b`.
    fn pair(&self, j: usize, i: usize, b: BufferId) -> bool;
    /// Adds step `i` to the pieces of buffer `b`; gives those that it is apart from.
    fn piece(&self, pieces: &mut Pieces, i: usize, b: BufferId) -> StepSet;
}

/// More waits than this one step does not get where another one had them all.
const MANY: usize = 1024;

/// Steps that others wait for together.
#[derive(Default)]
struct Users {
    steps: StepSet,
    count: usize,
    /// A step that waited for all of them.
    hub: Option<usize>,
}

impl Users {
    fn add(&mut self, i: usize) {
        self.steps.add(i);
        self.count += 1;
        self.hub = None;
    }

    fn join(&mut self, o: &Users) {
        self.steps.join(&o.steps);
        self.count += o.count;
        self.hub = None;
    }

    /// Step `i` waits for all of them.
    fn ask(&mut self, i: usize, need: &mut Need) {
        need.all.join(&self.steps);
        match self.hub.filter(|&hub| hub < i) {
            Some(hub) => need.direct.add(hub),
            None => _ = need.direct.join(&self.steps),
        }
        if self.count > MANY && self.hub.is_none() {
            self.hub = Some(i);
        }
    }
}

/// What a step needs to be over, and of what it waits itself for.
#[derive(Default)]
struct Need {
    all: StepSet,
    direct: StepSet,
}

/// What was done with a buffer so far.
#[derive(Default)]
struct Used {
    readers: Users,
    writers: Users,
    pieces: Pieces,
    /// Those that used its bytes before it did; who writes it comes after them.
    before: Users,
}

/// Who has which bytes of an arena: first byte to (the one behind the last, buffer).
type Owners = BTreeMap<u64, (u64, BufferId)>;

/// Takes the bytes of `b`, which is met for the first time: the users of what lay there are those that its
/// own come after. They came after who was there before them.
fn take(
    b: BufferId,
    bytes: &Bytes,
    owners: &mut BTreeMap<u32, Owners>,
    used: &BTreeMap<BufferId, Used>,
) -> Used {
    let mut new = Used::default();
    let Some(&(place, lo, hi)) = bytes.0.get(&b) else {
        return new;
    };
    let owner = owners.entry(place).or_default();
    let there = owner.range(..hi).rev().take_while(|(_, o)| o.0 > lo);
    let there: Vec<(u64, u64, BufferId)> = there.map(|(&at, o)| (at, o.0, o.1)).collect();
    let mut met = BTreeSet::new();
    for (start, end, who) in there {
        if let Some(u) = used.get(&who).filter(|_| met.insert(who)) {
            new.before.join(&u.readers);
            new.before.join(&u.writers);
            // Its readers came after nobody.
            if u.writers.count == 0 {
                new.before.join(&u.before);
            }
        }
        owner.remove(&start);
        if start < lo {
            owner.insert(start, (lo, who));
        }
        if end > hi {
            owner.insert(hi, (end, who));
        }
    }
    owner.insert(lo, (hi, b));
    new
}

/// Waits of every step, without those that others imply, and the steps that each needs.
pub fn waits(
    touches: &[Touch],
    bytes: &Bytes,
    apart: &dyn DisjointWrites,
) -> (Vec<Vec<Wait>>, Vec<StepSet>) {
    let mut needs: Vec<StepSet> = Vec::with_capacity(touches.len());
    let mut before: Vec<StepSet> = Vec::with_capacity(touches.len());
    let mut used: BTreeMap<BufferId, Used> = BTreeMap::new();
    let mut owners: BTreeMap<u32, Owners> = BTreeMap::new();
    let mut pairs = MAX_PAIRS;
    let (mut nodes, mut step_by_step) = (0, false);
    let mut written: BTreeMap<BufferId, usize> = BTreeMap::new();
    for b in touches.iter().flat_map(|t| &t.writes) {
        *written.entry(*b).or_insert(0) += 1;
    }
    let mut out = Vec::with_capacity(touches.len());
    for (i, t) in touches.iter().enumerate() {
        let mut need = Need::default();
        for &b in t.reads.iter().chain(&t.writes) {
            if !used.contains_key(&b) {
                let new = take(b, bytes, &mut owners, &used);
                used.insert(b, new);
            }
        }
        for b in &t.reads {
            if let Some(u) = used.get_mut(b) {
                u.writers.ask(i, &mut need);
            }
        }
        for b in &t.writes {
            let Some(u) = used.get_mut(b) else { continue };
            u.readers.ask(i, &mut need);
            u.before.ask(i, &mut need);
            let several = written[b] > 1;
            let mut clear = match several {
                true => apart.piece(&mut u.pieces, i, *b),
                false => StepSet::new(),
            };
            while let Some(j) = u.writers.steps.last_outside(&clear) {
                // Where too many would have to be looked at, all of them are waited for.
                let fine = pairs > 0 && apart.pair(j, i, *b);
                pairs = pairs.saturating_sub(1);
                if !fine {
                    need.all.add(j);
                    need.direct.add(j);
                }
                clear.add(j);
            }
        }
        // Where they wait for each other in too many ways, the rest goes step by step.
        if nodes > MAX_NODES / 2 {
            match step_by_step {
                true => need.direct = StepSet::new(),
                false => (0..i).for_each(|j| need.direct.add(j)),
            }
            need.direct.add(i - 1);
            step_by_step = true;
        }
        // Latest first: whatever a kept step waits for is implied.
        let mut reach = StepSet::new();
        let mut kept = Vec::new();
        while let Some(j) = need.direct.last_outside(&reach) {
            kept.push(Wait::Step(j as u32));
            nodes += reach.join(&before[j]);
            reach.add(j);
        }
        kept.reverse();
        needs.push(need.all);
        before.push(reach);
        out.push(kept);
        for b in &t.reads {
            used.entry(*b).or_default().readers.add(i);
        }
        for b in &t.writes {
            used.entry(*b).or_default().writers.add(i);
        }
    }
    (out, needs)
}

/// Turns waits for whole steps into waits for tiles where `map` gives one and nothing that a step
/// needs besides is lost: such a wait no longer says that the step waited for is over.
pub(crate) fn tiled(
    waits: &mut [Vec<Wait>],
    needs: &[StepSet],
    map: &dyn Fn(usize, usize) -> Option<TileMap>,
) {
    let n = waits.len();
    let mut before: Vec<StepSet> = Vec::with_capacity(n);
    let mut done: Vec<StepSet> = Vec::with_capacity(n);
    for i in 0..n {
        let start = |list: &[Wait]| {
            let mut s = StepSet::new();
            for w in list {
                s.join(match w {
                    Wait::Step(j) => &done[*j as usize],
                    Wait::Tiles { step, .. } => &before[*step as usize],
                });
            }
            s
        };
        for at in 0..waits[i].len() {
            let Wait::Step(j) = waits[i][at] else {
                continue;
            };
            // Only neighbours: whoever is further away is over long before.
            if j as usize + 1 != i {
                continue;
            }
            let Some(map) = map(j as usize, i) else {
                continue;
            };
            let mut list = waits[i].clone();
            list[at] = Wait::Tiles { step: j, map };
            let mut reach = start(&list);
            reach.add(j as usize);
            if needs[i].within(&reach) {
                waits[i] = list;
            }
        }
        let mut end = start(&waits[i]);
        before.push(end.clone());
        for w in &waits[i] {
            if let Wait::Tiles { step, .. } = w {
                end.join(&done[*step as usize]);
            }
        }
        end.add(i);
        done.push(end);
    }
}
