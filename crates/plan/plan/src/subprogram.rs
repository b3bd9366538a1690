//! Subprograms: a program is cut before sizes that only the data gives, and each part is planned once those are
//! known. The runtime runs them one after the other; planning them is the planner's.
use crate::{Item, ItemWork, Program, ProgramSymbol, Segment, SymbolOrigin, ValueIx, ValueOrigin};
use layout::{Inserted, Sym, Symbols};
use std::collections::{BTreeMap, BTreeSet};

/// Segments of a program between two sizes that only the data gives, as a program that holds
/// nothing else: planning all stretches of a program costs about as much as planning it once.
#[derive(Clone, Debug)]
pub struct Subprogram {
    /// The stretch.
    pub program: Program,
    /// Values of the whole program that its inputs stand for, in order.
    pub inputs: Vec<ValueIx>,
    /// Values of the whole program that its outputs stand for, in order.
    pub outputs: Vec<ValueIx>,
    /// Values of the whole program that nobody needs once it has run.
    pub spent: Vec<ValueIx>,
    /// Segment of the whole program behind it.
    pub end: usize,
}

/// Where a program's values and symbols are used: asked for once, each stretch takes as long as what it holds.
#[derive(Clone, Debug)]
pub struct Cuts {
    /// Symbols that each value gives.
    late: BTreeMap<ValueIx, Vec<Sym>>,
    /// The segment behind the last one that reads each value; the end, and one more, for what is given back.
    read: BTreeMap<ValueIx, usize>,
    /// The same for symbols in sizes.
    sized: BTreeMap<Sym, usize>,
    /// Init items that make each value.
    makers: BTreeMap<ValueIx, Vec<usize>>,
    /// Places of symbols by name, and of constraints by the symbols that they speak of.
    symbols: BTreeMap<Sym, usize>,
    constraints: BTreeMap<Sym, Vec<usize>>,
    /// Places of whys and savings by what they are about.
    whys: BTreeMap<String, Vec<usize>>,
    savings: BTreeMap<String, Vec<usize>>,
    outputs: BTreeSet<ValueIx>,
    passed: BTreeSet<ValueIx>,
}

impl Program {
    /// Where its values and symbols are used.
    pub fn cuts(&self) -> Cuts {
        let mut c = Cuts {
            late: BTreeMap::new(),
            read: BTreeMap::new(),
            sized: BTreeMap::new(),
            makers: BTreeMap::new(),
            symbols: BTreeMap::new(),
            constraints: BTreeMap::new(),
            whys: BTreeMap::new(),
            savings: BTreeMap::new(),
            outputs: self.outputs.iter().map(|o| o.1).inserted(),
            passed: self.passed.iter().copied().inserted(),
        };
        for (i, s) in self.symbols.iter().enumerate() {
            if let SymbolOrigin::Late { value, .. } = s.origin {
                c.late.entry(value).or_default().push(s.name.clone());
            }
            c.symbols.insert(s.name.clone(), i);
        }
        for (i, s) in self.segments.iter().enumerate() {
            c.read
                .extend(self.segment_reads(i).into_iter().map(|v| (v, i + 1)));
            let mut used = Symbols::default();
            self.segment_symbols(s, &mut used);
            c.sized.extend(used.used().into_iter().map(|s| (s, i + 1)));
        }
        let end = self.segments.len() + 1;
        let mut used = Symbols::default();
        for &(_, v) in &self.outputs {
            c.read.insert(v, end);
            self.value_symbols(v, &mut used);
        }
        c.sized.extend(used.used().into_iter().map(|s| (s, end)));
        for (i, item) in self.init.iter().enumerate() {
            for v in item.writes() {
                c.makers.entry(v).or_default().push(i);
            }
        }
        for (i, k) in self.constraints.iter().enumerate() {
            let mut own = BTreeSet::new();
            k.left.symbols(&mut own);
            k.right.symbols(&mut own);
            for s in own {
                c.constraints.entry(s).or_default().push(i);
            }
        }
        for (i, w) in self.whys.iter().enumerate() {
            c.whys.entry(w.subject.clone()).or_default().push(i);
        }
        for (i, s) in self.savings.iter().enumerate() {
            c.savings.entry(s.node.clone()).or_default().push(i);
        }
        c
    }

    /// The stretch that begins with segment `first`: up to the first straight segment behind it
    /// that uses a size which something in the stretch determines. Sizes that were determined
    /// before count as known. `cuts` are [`Program::cuts`].
    pub fn subprogram(&self, cuts: &Cuts, first: usize) -> Subprogram {
        let first = first.min(self.segments.len());
        let mut unknown: BTreeSet<&Sym> = BTreeSet::new();
        let mut made: BTreeSet<ValueIx> = BTreeSet::new();
        let mut end = first;
        for (i, s) in self.segments.iter().enumerate().skip(first) {
            if let Segment::Straight(items) = s
                && i > first
                && !unknown.is_empty()
            {
                let mut used = Symbols::default();
                items.iter().for_each(|i| self.item_symbols(i, &mut used));
                if used.used().iter().any(|s| unknown.contains(s)) {
                    break;
                }
            }
            for v in self.segment_writes(i) {
                unknown.extend(cuts.late.get(&v).into_iter().flatten());
                made.insert(v);
            }
            end = i + 1;
        }
        self.cut(first, end, &made, cuts)
    }

    /// Symbols in the sizes that a segment works with, bodies of control flow included.
    fn segment_symbols(&self, s: &Segment, used: &mut Symbols) {
        s.items().iter().for_each(|i| self.item_symbols(i, used));
        let bodies: [Option<&Program>; 2] = match s {
            Segment::If {
                then_branch,
                else_branch,
                ..
            } => [Some(then_branch), Some(else_branch)],
            Segment::Loop { body, .. } => [Some(body), None],
            Segment::Straight(_) | Segment::Late(_) => [None, None],
        };
        for b in bodies.into_iter().flatten() {
            (0..b.values.len()).for_each(|v| b.value_symbols(v as ValueIx, used));
            b.init.iter().for_each(|i| b.item_symbols(i, used));
            b.segments.iter().for_each(|s| b.segment_symbols(s, used));
        }
    }

    /// Symbols in the sizes that an item works with.
    fn item_symbols(&self, item: &Item, used: &mut Symbols) {
        if let ItemWork::Kernel { kernel, .. } = &item.work {
            kernel.for_each_dim(&mut |d| used.add(d));
        }
        each_value(item, &mut |v| self.value_symbols(v, used));
    }

    fn value_symbols(&self, v: ValueIx, used: &mut Symbols) {
        if let Some(v) = self.values.get(v as usize) {
            let dims = v.shape.iter().chain([&v.storage]);
            dims.for_each(|d| used.add(d));
        }
    }

    /// Segments `first` to `end`, which write `made`.
    fn cut(&self, first: usize, end: usize, made: &BTreeSet<ValueIx>, cuts: &Cuts) -> Subprogram {
        let mut reads: BTreeSet<ValueIx> = BTreeSet::new();
        for i in first..end {
            reads.extend(self.segment_reads(i));
        }
        let after = |v: &ValueIx| cuts.read.get(v).is_some_and(|&last| last > end);
        // A value may be needed for its sizes alone.
        let sizes = |v: &ValueIx| {
            let mut gives = cuts.late.get(v).into_iter().flatten();
            gives.any(|s| cuts.sized.get(s).is_some_and(|&last| last > end))
        };
        let given = |v: &&ValueIx| {
            let origin = self.values.get(**v as usize).map(|v| v.origin);
            matches!(origin, Some(ValueOrigin::Made | ValueOrigin::Input(_))) && !made.contains(*v)
        };
        let inputs: Vec<ValueIx> = reads.iter().filter(given).copied().collect();
        let handed = |v: &&ValueIx| after(v) || sizes(v);
        let outputs: Vec<ValueIx> = made.iter().filter(handed).copied().collect();
        // Sizes are taken off a value as soon as it is there.
        let touched = inputs.iter().chain(made);
        let spent = touched.filter(|v| !after(v)).copied().collect();
        // What is computed once, as far as it is needed here.
        let mut once: BTreeSet<usize> = BTreeSet::new();
        let mut needed: Vec<ValueIx> = reads.iter().copied().collect();
        while let Some(v) = needed.pop() {
            for &i in cuts.makers.get(&v).into_iter().flatten() {
                if once.insert(i) {
                    needed.extend(self.init[i].reads());
                }
            }
        }
        let once = once.into_iter().map(|i| &self.init[i]);
        let mut p = Program {
            name: self.name.clone(),
            symbols: Vec::new(),
            values: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            init: once.cloned().collect(),
            segments: self.segments[first..end].to_vec(),
            states: Vec::new(),
            constraints: Vec::new(),
            batches: vec![],
            savings: Vec::new(),
            precision: self.precision,
            passed: Vec::new(),
            fates: Vec::new(),
            whys: Vec::new(),
            weights: self.weights.clone(),
        };
        let mut numbers = Numbers::default();
        p.inputs = inputs.iter().map(|&v| numbers.get(v)).collect();
        p.init.iter_mut().for_each(|i| numbers.item(i));
        p.segments.iter_mut().for_each(|s| numbers.segment(s));
        for &v in &outputs {
            let name = self.value(v).name.clone();
            let ix = numbers.get(v);
            p.outputs.push((name, ix));
            if !cuts.outputs.contains(&v) || cuts.passed.contains(&v) {
                p.passed.push(ix);
            }
        }
        for &v in &numbers.used {
            let mut value = self.value(v).clone();
            let input = inputs.binary_search(&v).ok();
            if let Some(i) = input {
                value.origin = ValueOrigin::Input(i as u32);
            }
            p.values.push(value);
        }
        p.lead_in();
        self.sizes(&mut p, &numbers, &inputs, cuts);
        self.decisions(&mut p, cuts);
        Subprogram {
            program: p,
            inputs,
            outputs,
            spent,
            end,
        }
    }

    /// Gives a stretch the symbols that it uses and what is known of them.
    fn sizes(&self, p: &mut Program, numbers: &Numbers, inputs: &[ValueIx], cuts: &Cuts) {
        let mut used = Symbols::default();
        for &v in &numbers.used {
            self.value_symbols(v, &mut used);
        }
        let straight = p.segments.iter().flat_map(Segment::items);
        for item in p.init.iter().chain(straight) {
            if let ItemWork::Kernel { kernel, .. } = &item.work {
                kernel.for_each_dim(&mut |d| used.add(d));
            }
        }
        let mut used = used.used();
        // Equalities that bind what is used, and what those use in turn.
        let mut chosen: BTreeSet<usize> = BTreeSet::new();
        let mut left: Vec<Sym> = used.iter().cloned().collect();
        while let Some(s) = left.pop() {
            for &i in cuts.constraints.get(&s).into_iter().flatten() {
                if chosen.insert(i) {
                    let mut own = BTreeSet::new();
                    self.constraints[i].left.symbols(&mut own);
                    self.constraints[i].right.symbols(&mut own);
                    left.extend(own.into_iter().filter(|s| used.insert(s.clone())));
                }
            }
        }
        p.constraints = chosen
            .into_iter()
            .map(|i| self.constraints[i].clone())
            .collect();
        let places: BTreeSet<usize> = used
            .iter()
            .filter_map(|s| cuts.symbols.get(s))
            .copied()
            .inserted();
        for s in places.into_iter().map(|i| &self.symbols[i]) {
            let input = |v: ValueIx| inputs.binary_search(&v).ok().map(|i| i as u32);
            let origin = match s.origin {
                SymbolOrigin::Late { value, axis } => {
                    match (input(value), numbers.of.get(&value)) {
                        (Some(input), _) => SymbolOrigin::Input { input, axis },
                        (None, Some(&value)) => SymbolOrigin::Late { value, axis },
                        (None, None) => SymbolOrigin::Outer,
                    }
                }
                SymbolOrigin::Input { input: i, axis } => {
                    match self.inputs.get(i as usize).and_then(|&v| input(v)) {
                        Some(input) => SymbolOrigin::Input { input, axis },
                        None => SymbolOrigin::Outer,
                    }
                }
                SymbolOrigin::Outer => SymbolOrigin::Outer,
            };
            let name = s.name.clone();
            p.symbols.push(ProgramSymbol { name, origin });
        }
    }

    /// Gives a stretch the decisions about its nodes.
    fn decisions(&self, p: &mut Program, cuts: &Cuts) {
        let mut nodes: BTreeSet<&str> = BTreeSet::new();
        let straight = p.segments.iter().flat_map(Segment::items);
        for item in p.init.iter().chain(straight) {
            nodes.insert(&item.name);
            nodes.extend(item.nodes.iter().map(String::as_str));
        }
        let about = |of: &BTreeMap<String, Vec<usize>>| -> BTreeSet<usize> {
            let each = nodes.iter().filter_map(|n| of.get(*n));
            each.flatten().copied().inserted()
        };
        let whys = about(&cuts.whys).into_iter().map(|i| self.whys[i].clone());
        let savings = about(&cuts.savings)
            .into_iter()
            .map(|i| self.savings[i].clone());
        let (whys, savings) = (whys.collect(), savings.collect());
        (p.whys, p.savings) = (whys, savings);
    }
}

impl Segment {
    /// Items that it runs itself, bodies of control flow left out.
    pub fn items(&self) -> &[Item] {
        match self {
            Segment::Straight(items) => items,
            Segment::Late(item) => std::slice::from_ref(item),
            Segment::If { .. } | Segment::Loop { .. } => &[],
        }
    }
}

fn each_value(item: &Item, f: &mut dyn FnMut(ValueIx)) {
    match &item.work {
        ItemWork::Kernel { args, .. } => args.iter().for_each(|&v| f(v)),
        ItemWork::Host {
            inputs, outputs, ..
        } => inputs.iter().flatten().chain(outputs).for_each(|&v| f(v)),
    }
}

/// Values of the whole program by their numbers in a stretch.
#[derive(Default)]
struct Numbers {
    of: BTreeMap<ValueIx, ValueIx>,
    used: Vec<ValueIx>,
}

impl Numbers {
    fn get(&mut self, v: ValueIx) -> ValueIx {
        *self.of.entry(v).or_insert_with(|| {
            self.used.push(v);
            self.used.len() as ValueIx - 1
        })
    }

    fn all<'v>(&mut self, values: impl IntoIterator<Item = &'v mut ValueIx>) {
        for v in values {
            *v = self.get(*v);
        }
    }

    fn item(&mut self, item: &mut Item) {
        match &mut item.work {
            ItemWork::Kernel { args, .. } => self.all(args),
            ItemWork::Host {
                inputs, outputs, ..
            } => self.all(inputs.iter_mut().flatten().chain(outputs)),
        }
    }

    fn segment(&mut self, segment: &mut Segment) {
        match segment {
            Segment::Straight(items) => items.iter_mut().for_each(|i| self.item(i)),
            Segment::Late(item) => self.item(item),
            Segment::If {
                cond,
                captures,
                outputs,
                ..
            } => {
                self.all([cond]);
                self.all(captures);
                self.all(outputs);
            }
            Segment::Loop {
                trip,
                cond,
                carried,
                captures,
                outputs,
                ..
            } => {
                self.all(trip.iter_mut().chain(cond));
                self.all(carried.iter_mut().chain(captures).chain(outputs));
            }
        }
    }
}
