//! Programs made for the sizes of a request that the session's own program does not hold for.
//!
//! A program is planned for all sizes at once; where its symbols leave a choice, one outcome is
//! assumed and checked ([`Program::constraints`]). A request that breaks an assumption runs on a
//! program in which the symbols that it speaks of are numbers, and if that is not enough, one made
//! for exactly the request's shapes.
use crate::compiled::PlanSet;
use crate::dims::bind_inputs;
use crate::dims::{Env, lookup};
use crate::value::Shaped;
use crate::{PlanStore, RunError};
use layout::Inserted;
use layout::{Dim, Sym};
use plan::{Program, SymbolOrigin};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Programs kept for sizes of their own, those of the sizes asked for last.
const KEPT: usize = 16;

/// Times that a request is tried on a program with more bound; each binds something that was not.
const TRIES: usize = 32;

/// What a program is made for, where it is not for all sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Numbers of symbols.
    pub dims: BTreeMap<Sym, i64>,
    /// Shapes of all inputs in the model's order, where they are bound as a whole.
    pub shapes: Option<Vec<Vec<usize>>>,
    /// By a node's name, what decides the ranks of its values: for a branch 1 where its condition holds and else 0,
    /// for a loop its rounds, for what a node takes out of a sequence its rank. For a node in a loop that broadcasts
    /// extents which change from round to round 1: it compares them in each.
    pub taken: BTreeMap<String, i64>,
    /// Numbers of symbols that only the data gives, as the request came to them.
    pub late: BTreeMap<Sym, i64>,
}

/// Makes programs of a session's model for sizes that its program does not hold for.
pub trait Specialise: Send + Sync {
    /// The program for what is bound; inputs and outputs are those of the session's program, in the
    /// same order.
    ///
    /// # Errors
    /// The model does not allow these sizes; the text is for the caller of the request.
    fn program(&self, bound: &Bound) -> Result<Program, String>;
}

/// What is bound, and the program for it or why there is none.
type Made = (Bound, Result<Arc<PlanSet>, String>);

/// The programs of a session for sizes of their own.
#[derive(Default)]
pub(crate) struct Special {
    maker: Option<Arc<dyn Specialise>>,
    store: Option<Arc<dyn PlanStore>>,
    pinned: bool,
    /// What was made, or why it could not be, for what was asked for last first.
    made: Mutex<Vec<Made>>,
}

impl Special {
    pub fn new(
        maker: Option<Arc<dyn Specialise>>,
        store: Option<Arc<dyn PlanStore>>,
        pinned: bool,
    ) -> Special {
        Special {
            maker,
            store,
            pinned,
            made: Mutex::default(),
        }
    }

    /// Whether a request that failed with `e` on `program` may be right for one with more bound.
    pub fn may_help(&self, program: &Program, e: &RunError) -> bool {
        let open = |s: &plan::ProgramSymbol| matches!(s.origin, SymbolOrigin::Input { .. });
        let late = matches!(e, RunError::Assumed { late, .. } if !late.is_empty());
        let ranks = matches!(e, RunError::Ranks { .. });
        let rounds =
            matches!(e, RunError::Assumed { left, right, .. } if of_rounds([left, right], program));
        let bindable = late || ranks || rounds || program.symbols.iter().any(open);
        self.maker.is_some() && e.is_of_sizes() && bindable
    }

    /// The program for what is bound.
    fn plan_set(&self, bound: &Bound) -> Result<Arc<PlanSet>, RunError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = made.iter().position(|(b, _)| b == bound) {
            let found = made.remove(at);
            made.insert(0, found.clone());
            return found.1.map_err(RunError::Sizes);
        }
        drop(made);
        let Some(maker) = &self.maker else {
            return Err(RunError::Sizes(
                "the session cannot plan for other sizes".into(),
            ));
        };
        let plan_set = maker.program(bound).map(|program| {
            let plan_set =
                PlanSet::new(Arc::new(program), format!("{bound:?}"), self.store.clone());
            Arc::new(plan_set.pinned(self.pinned))
        });
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.insert(0, (bound.clone(), plan_set.clone()));
        made.truncate(KEPT);
        plan_set.map_err(RunError::Sizes)
    }

    /// Runs a request that failed with `first` on the session's program, by `run` on a program that
    /// holds for it.
    pub fn run<T: Shaped, R>(
        &self,
        program: &Program,
        inputs: &[Option<&T>],
        first: RunError,
        mut run: impl FnMut(&PlanSet) -> Result<R, RunError>,
    ) -> Result<R, RunError> {
        let shapes: Vec<Vec<usize>> = inputs
            .iter()
            .map(|t| t.map_or(vec![], |t| t.shape().to_vec()))
            .collect();
        let mut bound = Bound::default();
        let mut failed = first.clone();
        if !bound.grow(&failed, program, &shapes) {
            return Err(failed);
        }
        for _ in 0..TRIES {
            let tried = match self.plan_set(&bound) {
                Ok(plan_set) => sizes(&plan_set.program, inputs).and_then(|_| run(&plan_set)),
                Err(e) => Err(e),
            };
            match tried {
                Err(e) if e.is_of_sizes() && bound.grow(&e, program, &shapes) => failed = e,
                // What the shapes of the inputs contradict outright is said in their words.
                Err(RunError::Sizes(_)) if matches!(first, RunError::Shape { .. }) => {
                    return Err(first);
                }
                out => return out,
            }
        }
        Err(failed)
    }
}

impl Bound {
    /// Binds what failed with `e`; false where all of it is bound already.
    fn grow(&mut self, e: &RunError, program: &Program, shapes: &[Vec<usize>]) -> bool {
        match e {
            RunError::Ranks {
                node, taken, loops, ..
            } => {
                let before = self.taken.insert(node.clone(), *taken);
                // What is one in one round and another in the next is no rank of all: each round gets its own.
                let other = before.is_some_and(|b| b != *taken);
                let apart = loops.iter().find(|_| other);
                let apart = apart.filter(|(l, rounds)| self.taken.get(l) != Some(rounds));
                if let Some((l, rounds)) = apart {
                    self.taken.remove(node);
                    self.taken.insert(l.clone(), *rounds);
                    return true;
                }
                if before != Some(*taken) {
                    return true;
                }
            }
            RunError::Assumed {
                node, left, right, ..
            } if of_rounds([left, right], program)
                && self.taken.insert(node.clone(), 1).is_none() =>
            {
                return true;
            }
            RunError::Assumed { late, .. } if self.bind_late(late) => return true,
            RunError::Assumed { left, right, .. }
                if self.shapes.is_none() && self.bind([left, right], program, shapes) =>
            {
                return true;
            }
            _ => {}
        }
        if self.shapes.is_some() {
            return false;
        }
        self.dims.clear();
        self.shapes = Some(shapes.to_vec());
        true
    }

    /// Binds symbols that only the data gives; false where all of them are bound already.
    fn bind_late(&mut self, late: &[(Sym, i64)]) -> bool {
        let mut new = false;
        for (s, n) in late {
            new |= self.late.insert(s.clone(), *n).is_none();
        }
        new
    }

    /// Binds the symbols in `dims` that are extents of inputs.
    fn bind(&mut self, dims: [&Dim; 2], program: &Program, shapes: &[Vec<usize>]) -> bool {
        let mut used = BTreeSet::new();
        dims.iter().for_each(|d| d.symbols(&mut used));
        let mut env = Env::new();
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        bind_inputs(program, &shapes, &mut env);
        let before = self.dims.len();
        for s in &program.symbols {
            if used.contains(&s.name)
                && matches!(s.origin, SymbolOrigin::Input { .. })
                && let Some(n) = lookup(&env, &s.name)
            {
                self.dims.insert(s.name.clone(), n);
            }
        }
        self.dims.len() > before
    }
}

/// Whether these extents change from round to round of a loop: the program itself does not know a symbol of theirs.
fn of_rounds(dims: [&Dim; 2], program: &Program) -> bool {
    let mut used = BTreeSet::new();
    dims.iter().for_each(|d| d.symbols(&mut used));
    let known: BTreeSet<&Sym> = program.symbols.iter().map(|s| &s.name).inserted();
    used.iter().any(|s| !known.contains(s))
}

/// The symbols that the inputs' shapes give, which must fit the program's.
pub(crate) fn sizes<T: Shaped>(program: &Program, inputs: &[Option<&T>]) -> Result<Env, RunError> {
    let shape = |t: &Option<&'_ T>| t.map_or(vec![], |t| t.shape().to_vec());
    let owned: Vec<Vec<usize>> = inputs.iter().map(shape).collect();
    let shapes: Vec<&[usize]> = owned.iter().map(Vec::as_slice).collect();
    let mut env = Env::new();
    bind_inputs(program, &shapes, &mut env);
    for (&v, given) in program.inputs.iter().zip(&shapes) {
        let value = program.value(v);
        let shape_error = || RunError::Shape {
            name: value.name.clone(),
            want: format!("{:?}", value.shape),
            got: format!("{given:?}"),
        };
        if given.len() != value.shape.len() {
            return Err(shape_error());
        }
        for (d, &n) in value.shape.iter().zip(*given) {
            let n = n as i64;
            match (d.as_sym(), d.eval(&|s| lookup(&env, s))) {
                (Some(s), Some(first)) if first != n => {
                    return Err(RunError::Dim {
                        dim: s.into(),
                        first,
                        second: n,
                        name: value.name.clone(),
                    });
                }
                (None, Some(want)) if want != n => return Err(shape_error()),
                (_, None) => return Err(shape_error()),
                _ => {}
            }
        }
    }
    Ok(env)
}
