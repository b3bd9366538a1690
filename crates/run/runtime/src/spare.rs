//! Requests of the shapes that came last, made ready for a plan before anybody runs with it: the first request
//! after a swap finds what the hundredth does.
use crate::lane::{Ready, same};
use crate::value::Shaped;

/// Sets of shapes that plans are made ready for beforehand.
const SHAPES: usize = 4;
/// Requests at once that a plan is made ready for beforehand.
const LANES: usize = 16;

/// One set of shapes that requests have.
struct Wanted {
    /// As [`Ready`] has it.
    key: Vec<usize>,
    /// Lanes that were made ready for them by the plan in use.
    lanes: usize,
}

/// What is ready and belongs to no lane yet.
#[derive(Default)]
pub(crate) struct Spares {
    /// The one made last first.
    wanted: Vec<Wanted>,
    ready: Vec<Ready>,
}

impl Spares {
    /// A lane was made ready for requests of these shapes.
    pub fn made(&mut self, key: &[usize]) {
        let known = self.wanted.iter().position(|w| w.key == key);
        match known {
            Some(i) => self.wanted[..=i].rotate_right(1),
            None => {
                self.wanted.truncate(SHAPES - 1);
                let w = Wanted {
                    key: key.to_vec(),
                    lanes: 0,
                };
                self.wanted.insert(0, w);
            }
        }
        let lanes = &mut self.wanted[0].lanes;
        *lanes = (*lanes + 1).min(LANES);
    }

    /// The shapes that the next plan is made ready for, each with how many times: as many as requests ran at once
    /// with the last one.
    pub fn wanted(&mut self) -> Vec<(Vec<usize>, usize)> {
        for w in &mut self.wanted {
            let idle = self.ready.iter().filter(|r| r.key() == w.key).count();
            w.lanes = w.lanes.saturating_sub(idle);
        }
        self.wanted.retain(|w| w.lanes > 0);
        let each = self.wanted.iter();
        each.map(|w| (w.key.clone(), w.lanes)).collect()
    }

    /// Lays these out in place of what nobody took; gives that.
    pub fn lay(&mut self, ready: Vec<Ready>) -> Vec<Ready> {
        std::mem::replace(&mut self.ready, ready)
    }

    /// What is ready for these inputs by the plan of this version.
    pub fn take<T: Shaped>(&mut self, version: u64, inputs: &[Option<&T>]) -> Option<Ready> {
        let shapes = || inputs.iter().map(|t| t.map_or(&[][..], T::shape));
        let fits = |r: &Ready| r.version() == version && same(r.key(), shapes());
        let at = self.ready.iter().position(fits)?;
        Some(self.ready.swap_remove(at))
    }
}
