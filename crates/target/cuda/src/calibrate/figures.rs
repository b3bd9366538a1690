//! What was measured, and the machine that it makes.
use super::Launches;
use crate::DeviceInfo;
use machine::{
    BandwidthPoint, LatencyPoint, LevelMeasure, Machine, Measurements, NumType, OpRate, Sourced,
    UnitClass, WayCosts, WorkerPoint,
};

/// A figure beside the one that the description had.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What of.
    pub what: String,
    /// The unit: B/s, op/s, s, Hz.
    pub unit: &'static str,
    /// As measured.
    pub measured: f64,
    /// As the description said, with its source, where it said anything.
    pub described: Option<Sourced>,
}

/// What a calibration comes to.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The machine with what was measured in it.
    pub machine: Machine,
    /// The measurements as such.
    pub measurements: Measurements,
    /// Figure by figure, in the order of measuring.
    pub figures: Vec<Figure>,
    /// What failed, with why.
    pub failed: Vec<String>,
    emulated: bool,
    clock_hz: Option<f64>,
    gap_s: Option<f64>,
    launch_s: Option<f64>,
    /// Seconds of the ways from step to step: a call, a gap, a graph of one and a node.
    call_s: Option<f64>,
    ahead_s: Option<f64>,
    graph_s: Option<f64>,
    node_s: Option<f64>,
    link: Option<(f64, f64)>,
}

type Point = (u64, f64);

fn points(one: Point, all: Point) -> Vec<WorkerPoint> {
    let point = |p: Point| WorkerPoint {
        workers: p.0,
        per_s: p.1,
    };
    match one.0 == all.0 {
        true => vec![point(all)],
        false => vec![point(one), point(all)],
    }
}

impl Calibration {
    pub(super) fn new(base: &Machine, info: &DeviceInfo, emulated: bool) -> Calibration {
        let mut machine = base.clone();
        machine.workers.count = Sourced::spec(u64::from(info.sms));
        let clock = if emulated { ", in emulated time" } else { "" };
        Calibration {
            measurements: Measurements {
                machine: base.identity(),
                note: format!("{} by kernels of this library{clock}", info.name),
                workers: u64::from(info.sms),
                ..Measurements::default()
            },
            machine,
            figures: vec![],
            failed: vec![],
            emulated,
            clock_hz: None,
            gap_s: None,
            launch_s: None,
            call_s: None,
            ahead_s: None,
            graph_s: None,
            node_s: None,
            link: None,
        }
    }

    fn figure(&mut self, what: &str, unit: &'static str, v: f64, described: Option<Sourced>) {
        self.figures.push(Figure {
            what: what.into(),
            unit,
            measured: v,
            described,
        });
    }

    fn level(&mut self, name: &str, bytes: u64) -> &mut LevelMeasure {
        let all = &mut self.measurements.levels;
        let at = all.iter().position(|l| l.name == name);
        let at = at.unwrap_or_else(|| {
            all.push(LevelMeasure {
                name: name.into(),
                bytes: bytes as f64,
                ..LevelMeasure::default()
            });
            all.len() - 1
        });
        &mut all[at]
    }

    pub(super) fn bandwidth(&mut self, name: &str, read: bool, bytes: u64, one: Point, all: Point) {
        let op = if read { "read" } else { "write" };
        for (workers, per_s) in [one, all] {
            self.measurements.bandwidth.push(BandwidthPoint {
                op: op.into(),
                bytes: bytes as f64 / workers as f64,
                workers,
                bytes_per_s: per_s,
            });
        }
        let l = self.level(name, bytes);
        match read {
            true => l.read = points(one, all),
            false => l.write = points(one, all),
        }
        let of = self.machine.level(name);
        let of = of.map(|l| if read { &l.read } else { &l.write });
        let (was_all, was_one) = (of.map(|b| b.all), of.map(|b| b.per_worker));
        self.figure(&format!("{name}, {op}, all SMs"), "B/s", all.1, was_all);
        self.figure(&format!("{name}, {op}, one SM"), "B/s", one.1, was_one);
    }

    pub(super) fn latency(&mut self, name: &str, bytes: u64, seconds: f64) {
        self.measurements.latency.push(LatencyPoint {
            bytes: bytes as f64,
            seconds,
        });
        self.level(name, bytes).latency_s = Some(seconds);
        let was = self.machine.level(name).map(|l| l.latency_s);
        self.figure(&format!("{name}, latency of a load"), "s", seconds, was);
    }

    fn rate(&mut self, what: &str, class: UnitClass, dtype: NumType, one: Point, all: Point) {
        let unit = self.machine.unit(class, dtype);
        let (isa, lanes) = unit.map_or((String::new(), 32), |u| (u.isa.clone(), u.lanes()));
        let was = unit.map(|u| u.all);
        self.measurements.ops.push(OpRate {
            class,
            dtype,
            isa,
            lanes,
            rate: points(one, all),
        });
        self.figure(&format!("{what}, all SMs"), "op/s", all.1, was);
        self.figure(&format!("{what}, one SM"), "op/s", one.1, None);
    }

    pub(super) fn fma(&mut self, one: Point, all: Point, clock: f64) {
        self.rate("f32 multiply-adds", UnitClass::Fma, NumType::F32, one, all);
        // An emulated GPU's clock register counts instructions.
        if !self.emulated && clock.is_finite() && clock > 1e8 {
            let was = Some(self.machine.workers.clock_hz);
            self.figure("clock under multiply-adds", "Hz", clock, was);
            self.clock_hz = Some(clock);
        }
    }

    pub(super) fn mma(&mut self, one: Point, all: Point) {
        let what = "f16 tensor cores by mma.sync";
        self.rate(what, UnitClass::Tensor, NumType::F16, one, all);
    }

    pub(super) fn launches(&mut self, l: &Launches) {
        let c = &self.machine.costs;
        let (step, launch) = (c.step_s, c.launch_s);
        self.figure("kernel behind kernel in a stream", "s", l.gap, Some(step));
        let ways = self.machine.way_costs();
        let was = |of: fn(&WayCosts) -> Sourced| ways.as_ref().map(of);
        let [gap, node, graph] = [
            was(|w| w.launch_gap_s),
            was(|w| w.graph_node_s),
            was(|w| w.graph_s),
        ];
        self.figure("the same, the host ahead", "s", l.ahead, gap);
        self.figure("the same in a graph", "s", l.node, node);
        let what = "graph of one and wait, by the host";
        self.figure(what, "s", l.graph, graph);
        let what = "a kernel of nothing between events";
        self.figure(what, "s", l.watched, None);
        let what = "launch and wait, by the host";
        self.figure(what, "s", l.alone, Some(launch));
        self.gap_s = Some(l.gap);
        self.launch_s = Some(l.alone);
        // As fast as the host calls is its call where the GPU waits for it.
        self.call_s = (l.gap > l.ahead).then_some(l.gap);
        self.ahead_s = Some(l.ahead);
        self.graph_s = Some(l.graph);
        self.node_s = Some(l.node);
    }

    pub(super) fn copies(&mut self, ways: [(f64, f64); 2]) {
        let link = self.machine.links.iter().find(|l| l.to == "host").cloned();
        let was = link.as_ref().map(|l| l.bandwidth);
        for (way, name) in ways.iter().zip(["host to device", "device to host"]) {
            self.figure(&format!("copies, {name}"), "B/s", way.0, was);
        }
        let latency = ways[0].1.max(ways[1].1);
        let was = link.as_ref().map(|l| l.latency_s);
        self.figure("a small copy", "s", latency, was);
        self.link = Some((ways[0].0.min(ways[1].0), latency));
    }

    pub(super) fn handoff(&mut self, seconds: f64) {
        let was = self.machine.costs.handoff_s;
        self.figure("from CTA to CTA, one way", "s", seconds, Some(was));
        self.measurements.handoff_s = Some(seconds);
    }

    pub(super) fn round_trip(&mut self, seconds: f64) {
        let what = "host to a kernel that stays and back";
        self.figure(what, "s", seconds, None);
    }

    /// Puts everything into the machine.
    pub(super) fn finish(&mut self, base: &Machine) {
        let described = &self.machine;
        let mut m = described.calibrated(&self.measurements);
        // What a step costs on a GPU is not what a message between workers does.
        m.costs.step_s = base.costs.step_s;
        m.costs.launch_s = base.costs.launch_s;
        let set = |slot: &mut Sourced, v: Option<f64>| {
            if let Some(v) = v.filter(|v| v.is_finite() && *v > 0.0) {
                *slot = Sourced::measured(v);
            }
        };
        set(&mut m.costs.step_s, self.gap_s);
        set(&mut m.costs.launch_s, self.launch_s);
        if let Some(mut ways) = m.way_costs() {
            set(&mut ways.launch_call_s, self.call_s);
            set(&mut ways.launch_gap_s, self.ahead_s);
            set(&mut ways.graph_s, self.graph_s);
            set(&mut ways.graph_node_s, self.node_s);
            m.costs.ways = Some(ways);
        }
        set(&mut m.workers.clock_hz, self.clock_hz);
        if let (Some((rate, latency)), Some(l)) =
            (self.link, m.links.iter_mut().find(|l| l.to == "host"))
        {
            set(&mut l.bandwidth, Some(rate));
            set(&mut l.latency_s, Some(latency));
        }
        // No rate is above what as many workers as there are give one by one.
        for u in &mut m.units {
            let most = u.per_worker.value * m.workers.count.value as f64;
            if u.all.value > most {
                u.per_worker.value = u.all.value / m.workers.count.value.max(1) as f64;
            }
        }
        m.note = format!(
            "Measured: {}. Figures that are not marked so are those of {}.",
            self.measurements.note, base.name
        );
        self.machine = m;
    }
}
