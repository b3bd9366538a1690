//! Batches over the link between host and device: copied, launched and copied back one after another;
//! overlapped on streams; submitted as one graph; or served by a kernel that stays.

use crate::Machine;

/// What is moved and computed, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batches {
    /// How many batches.
    pub batches: u64,
    /// Copy of one batch to the device.
    pub copy_in_s: f64,
    /// Copy of one batch's results back.
    pub copy_out_s: f64,
    /// The kernel on one batch.
    pub kernel_s: f64,
    /// A launch from the host.
    pub launch_s: f64,
    /// A kernel that follows another within a submitted graph.
    pub graph_gap_s: f64,
    /// A hand-off through a ring that host and kernel share, one way.
    pub handoff_s: f64,
}

/// From kernel to kernel of a graph, and one way through a ring in memory that host and device both see,
/// seconds, on a GPU whose ways have no prices. Assumed; published are 1.3 to 2 us between kernels of a graph
/// and round trips from 1 to 3 us.
const GRAPH_GAP_S: f64 = 1.5e-6;
const RING_S: f64 = 1e-6;

impl Batches {
    /// Batches of `bytes` each way over the machine's link to the host, with its launch and hand-off
    /// costs. Copies take no time where host and device memory are one place.
    pub fn on(m: &Machine, bytes: f64, batches: u64, kernel_s: f64) -> Batches {
        let copy = if m.is_unified() || bytes <= 0.0 {
            0.0
        } else {
            let to_host = m.links.iter().find(|l| l.to == "host");
            to_host.map_or(0.0, |l| l.latency_s.value + bytes / l.bandwidth.value)
        };
        let ways = m.way_costs();
        Batches {
            batches,
            copy_in_s: copy,
            copy_out_s: copy,
            kernel_s,
            launch_s: m.costs.launch_s.value,
            graph_gap_s: match &ways {
                Some(w) => w.graph_node_s.value,
                None => (m.costs.launch_s.value / 4.0).min(GRAPH_GAP_S),
            },
            handoff_s: match &ways {
                Some(w) => w.answer_s.value / 2.0,
                None if m.kind == crate::MachineKind::Cpu => m.costs.handoff_s.value,
                None => RING_S,
            },
        }
    }
}

/// The time of all batches, one way of running them.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// `one by one`, `streams`, `graph`, `resident, copied`, `resident, ring` or `persistent`.
    pub name: &'static str,
    /// Seconds for all batches.
    pub total_s: f64,
    /// Seconds for one more batch once it runs.
    pub per_batch_s: f64,
    /// What one more batch waits for.
    pub bound: &'static str,
}

/// Every way, in the order above, and where one beats another.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The ways.
    pub ways: Vec<Way>,
    /// The number of batches from which the resident kernel that is copied to beats copy-launch-copy; `None`
    /// when it never does.
    pub breakeven_batches: Option<u64>,
    /// The kernel time below which the launch costs more than the kernel itself.
    pub launch_bound_below_s: f64,
    /// The kernel time above which overlapped copies are hidden behind it.
    pub hidden_above_s: f64,
}

/// Compares the ways of running batches:
/// - one by one: `n (in + launch + kernel + out)`;
/// - streams: a pipeline, `in + launch + kernel + out + (n - 1) max(in, launch + kernel, out)`;
/// - graph: one launch, then the same pipeline with the graph's gap in place of the launch;
/// - resident, copied: one launch, then the pipeline with two hand-offs through a ring;
/// - resident, ring: one launch, then `n (kernel + 2 hand-offs)`: the data stays on the device, only
///   orders and answers go through the ring;
/// - persistent: one launch, then `n kernel`: the work is known beforehand and waits on the device.
pub fn compare_transfers(b: &Batches) -> Comparison {
    let n = b.batches as f64;
    let rest = (n - 1.0).max(0.0);
    let some = if b.batches > 0 { 1.0 } else { 0.0 };
    let (cin, cout, k) = (b.copy_in_s, b.copy_out_s, b.kernel_s);
    let pipeline = |once: f64, step: f64| {
        let slowest = cin.max(cout).max(step);
        let total = some * (once + cin + step + cout) + rest * slowest;
        let bound = if slowest <= 0.0 {
            "nothing"
        } else if step >= cin.max(cout) {
            "kernel"
        } else {
            "copies"
        };
        (total, slowest, bound)
    };
    let serial = cin + b.launch_s + k + cout;
    let place = k + 2.0 * b.handoff_s;
    let ways = [
        (
            "one by one",
            (n * serial, serial, "copies, launch and kernel in turn"),
        ),
        ("streams", pipeline(0.0, b.launch_s + k)),
        ("graph", pipeline(b.launch_s, k + b.graph_gap_s)),
        ("resident, copied", pipeline(b.launch_s, place)),
        (
            "resident, ring",
            (some * b.launch_s + n * place, place, "kernel"),
        ),
        ("persistent", (some * b.launch_s + n * k, k, "kernel")),
    ];
    let ways: Vec<Way> = ways
        .into_iter()
        .map(|(name, (total_s, per_batch_s, bound))| Way {
            name,
            total_s,
            per_batch_s,
            bound,
        })
        .collect();
    // Fill and one launch, against what every further batch saves.
    let step = ways[3].per_batch_s;
    let fill = b.launch_s + cin + place + cout - step;
    let gain = serial - step;
    let breakeven_batches = (gain > 0.0).then(|| {
        let at = fill / gain;
        (at.floor().clamp(0.0, 9e15) as u64).saturating_add(1)
    });
    Comparison {
        ways,
        breakeven_batches,
        launch_bound_below_s: b.launch_s,
        hidden_above_s: (cin.max(cout) - b.launch_s).max(0.0),
    }
}

/// A part of a launch and the seconds it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// What happens.
    pub name: &'static str,
    /// Its share of the launch; assumed, only the whole launch is measured.
    pub share: f64,
    /// Seconds.
    pub seconds: f64,
}

/// A launch by stages. The split is assumed; what is measured is the sum.
pub fn launch_stages(launch_s: f64) -> Vec<Stage> {
    [
        ("driver set-up", 0.4),
        ("command buffer", 0.25),
        ("dispatch", 0.2),
        ("first thread", 0.15),
    ]
    .into_iter()
    .map(|(name, share)| Stage {
        name,
        share,
        seconds: launch_s * share,
    })
    .collect()
}
