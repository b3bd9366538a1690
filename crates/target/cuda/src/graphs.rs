//! Stretches of launches that are queued by one call, and graphs of them that requests use again.
//!
//! A graph holds the arguments and the shape of each of its launches. What they depend on, the parameters of a
//! request and where its buffers lie, is therefore the key of the graphs that a frame keeps: a request with other
//! sizes has others made, and the graphs of the last few are kept.
use crate::driver::DevicePtr;
use crate::handles::Graph;
use crate::steps::Work;
use plan::Step;
use std::collections::BTreeMap;
use std::ops::Range;

/// Requests of different sizes or places whose graphs a frame keeps.
const KEPT: usize = 8;
/// Launches of a graph at most, and predicted seconds: what goes on after a request was called off.
const MOST: usize = 32;
const LONGEST_S: f64 = 1e-3;

/// What the launches of a request depend on.
type Key = (Vec<i64>, Vec<Option<DevicePtr>>);

/// The graphs of a frame, those used last at the end.
#[derive(Default)]
pub(crate) struct Graphs {
    list: Vec<(Key, BTreeMap<usize, Graph>)>,
}

impl Graphs {
    /// The graphs by first step of requests with the parameters `p` and buffers lent at `lent`.
    pub fn of(&mut self, p: &[i64], lent: &[Option<DevicePtr>]) -> &mut BTreeMap<usize, Graph> {
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
