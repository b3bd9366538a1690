//! Stretches of launches that are queued by one call, and graphs of them that requests use again.
//!
//! A graph holds the arguments and the shape of each of its launches. What they depend on, the parameters of a
//! request and where its buffers lie, is therefore the key of the graphs that a frame keeps: a request with other
//! sizes has others made, and the graphs of the last few are kept. The first request of a key goes launch by launch:
//! a driver may load what is launched for the first time, which it must not while it keeps launches for a graph, and
//! sizes that never come again need none. Where a driver makes no graph the frame does without.
use crate::driver::DevicePtr;
use crate::handles::Graph;
use crate::steps::Work;
use plan::Step;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

/// Requests of different sizes or places whose graphs a frame keeps.
const KEPT: usize = 8;
/// Launches of a graph at most, and predicted seconds: what goes on after a request was called off.
const MOST: usize = 64;
const LONGEST_S: f64 = 1e-3;

/// What the launches of a request depend on.
type Key = (Vec<i64>, Vec<Option<DevicePtr>>);

/// Graphs by first step; none where launches went by themselves so far.
type ByStep = BTreeMap<usize, Option<Graph>>;

/// The graphs of a frame, those used last at the end.
#[derive(Default)]
pub(crate) struct Graphs {
    list: Vec<(Key, ByStep)>,
    /// The driver made none when it was asked to.
    refused: bool,
}

impl Graphs {
    /// The graphs by first step of requests with the parameters `p` and buffers lent at `lent`.
    fn of(&mut self, p: &[i64], lent: &[Option<DevicePtr>]) -> &mut ByStep {
        let found = self.list.iter().position(|(k, _)| k.0 == p && k.1 == lent);
        let own = match found {
            Some(i) => self.list.remove(i),
            None => ((p.to_vec(), lent.to_vec()), BTreeMap::new()),
        };
        if self.list.len() >= KEPT {
            self.list.remove(0);
        }
        self.list.push(own);
        let last = self.list.len() - 1;
        &mut self.list[last].1
    }

    /// The graph from step `first` on of requests like this one, which `make` makes for the second of them; `None`
    /// where launches go by themselves.
    pub fn graph<E>(
        &mut self,
        first: usize,
        (p, lent): (&[i64], &[Option<DevicePtr>]),
        make: impl FnOnce() -> Result<Graph, E>,
    ) -> Option<&Graph> {
        if self.refused {
            return None;
        }
        let made = match self.of(p, lent).entry(first) {
            Entry::Vacant(none) => {
                none.insert(None);
                return None;
            }
            Entry::Occupied(kept) if kept.get().is_some() => None,
            Entry::Occupied(_) => Some(make()),
        };
        let own = match made {
            // What was wrong is the request's error if it is so of a launch too.
            Some(Err(_)) => {
                self.refused = true;
                return None;
            }
            Some(Ok(graph)) => self.of(p, lent).entry(first).or_default().insert(graph),
            None => self.of(p, lent).get(&first)?.as_ref()?,
        };
        Some(own)
    }
}

/// The launches in a row from step `first` on that one call queues; `breaks` says before which steps something
/// is waited for.
pub(crate) fn stretch(
    first: usize,
    work: &[Work],
    steps: &[Step],
    breaks: impl Fn(usize) -> bool,
) -> Range<usize> {
    let (mut end, mut seconds) = (first, 0.0);
    while matches!(work.get(end), Some(Work::Kernel(_)))
        && end - first < MOST
        && seconds < LONGEST_S
        && (end == first || !breaks(end))
    {
        seconds += steps.get(end).map_or(0.0, |s| s.predicted.time_s);
        end += 1;
    }
    first..end
}
