//! Caches and queues between SMs and device memory.

use super::cache::{Cache, LINE, SECTOR};
use super::trace::Touch;
use super::{Reason, Timing};

/// Cycles that a queue in front of an SM's memory may be long before the next instruction has to wait.
const QUEUE: f64 = 32.0;

/// L2 and device memory, which all SMs share.
#[derive(Debug)]
pub(crate) struct Far {
    l2: Cache,
    /// When L2 and device memory are through with what they were asked for.
    l2_free: f64,
    device_free: f64,
    /// Bytes that crossed the near side of each.
    pub l2_bytes: f64,
    pub device_bytes: f64,
}

/// An SM's own memory.
#[derive(Debug)]
pub(crate) struct SmMemory {
    l1: Cache,
    /// When the pipe of addresses, shared memory with L1's data, and the port to L2 are free.
    pipe_free: f64,
    data_free: f64,
    port_free: f64,
    pub shared_bytes: f64,
    pub l1_bytes: f64,
}

/// What an access is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Load,
    Store,
    Atomic,
    /// Past L1, into shared memory.
    Copy,
}

impl Far {
    pub fn new(t: &Timing) -> Far {
        Far {
            l2: Cache::new(t.l2.bytes),
            l2_free: 0.0,
            device_free: 0.0,
            l2_bytes: 0.0,
            device_bytes: 0.0,
        }
    }

    /// When everything that was stored is there.
    pub fn drained(&self) -> f64 {
        self.l2_free.max(self.device_free)
    }

    fn read(&mut self, t: &Timing, line: u64, sectors: u8, from: f64) -> (f64, Reason) {
        let bytes = f64::from(sectors.count_ones()) * SECTOR;
        let turn = from.max(self.l2_free);
        self.l2_free = turn + bytes / t.l2.read;
        self.l2_bytes += bytes;
        let (here, at) = self.l2.look(line, sectors);
        let mut ready = (turn + t.l2.latency, Reason::L2);
        if at > ready.0 {
            ready = (at, Reason::Device);
        }
        let missing = sectors & !here;
        if missing != 0 {
            let bytes = f64::from(missing.count_ones()) * SECTOR;
            let turn = turn.max(self.device_free);
            self.device_free = turn + bytes / t.device.read;
            self.device_bytes += bytes;
            let at = turn + t.device.latency;
            self.l2.fill(line, missing, at);
            ready = (ready.0.max(at), Reason::Device);
        }
        ready
    }

    fn write(&mut self, t: &Timing, line: u64, sectors: u8, from: f64) -> f64 {
        let bytes = f64::from(sectors.count_ones()) * SECTOR;
        let turn = from.max(self.l2_free);
        self.l2_free = turn + bytes / t.l2.write;
        self.l2_bytes += bytes;
        let new = self.l2.write(line, sectors, turn);
        if new != 0 {
            let bytes = f64::from(new.count_ones()) * SECTOR;
            self.device_free = turn.max(self.device_free) + bytes / t.device.write;
            self.device_bytes += bytes;
        }
        turn
    }
}

impl SmMemory {
    pub fn new(t: &Timing) -> SmMemory {
        SmMemory {
            l1: Cache::new(t.l1.bytes),
            pipe_free: 0.0,
            data_free: 0.0,
            port_free: 0.0,
            shared_bytes: 0.0,
            l1_bytes: 0.0,
        }
    }

    /// From when on an instruction that touches `touches` is taken, and what it waits for until then.
    pub fn takes(&self, far: &Far, t: &Timing, touches: &[Touch]) -> (f64, Reason) {
        let mut at = (self.pipe_free, Reason::Pipe);
        let mut later = |v: f64, r: Reason| {
            if v > at.0 {
                at = (v, r);
            }
        };
        later(self.data_free - QUEUE, Reason::Pipe);
        if touches.iter().any(|x| matches!(x, Touch::Line(..))) {
            later(self.port_free - QUEUE, Reason::L2);
            later(far.l2_free - QUEUE - t.l2.latency, Reason::L2);
            later(far.device_free - QUEUE - t.device.latency, Reason::Device);
        }
        at
    }

    /// A bulk copy at `now`, past the pipe that instructions take: when its last bytes are there.
    pub fn bulk(
        &mut self,
        far: &mut Far,
        t: &Timing,
        touches: &[Touch],
        how: How,
        now: f64,
    ) -> (f64, Reason) {
        let mut last = (now, Reason::Shared);
        for touch in touches {
            if let Touch::Line(line, sectors) = *touch {
                let ready = self.line(far, t, line, sectors, how, now);
                if ready.0 > last.0 {
                    last = ready;
                }
            }
        }
        (last.0.max(self.port_free), last.1)
    }

    /// An instruction of memory at `now`: when its value is there, and which level is the last to answer.
    pub fn access(
        &mut self,
        far: &mut Far,
        t: &Timing,
        touches: &[Touch],
        how: How,
        now: f64,
    ) -> (f64, Reason) {
        self.pipe_free = self.pipe_free.max(now) + 32.0 / t.memory;
        let mut ready = (now, Reason::Shared);
        let mut last = |at: f64, r: Reason| {
            if at > ready.0 {
                ready = (at, r);
            }
        };
        if touches.is_empty() {
            // An exchange between lanes goes the way of shared memory.
            let turn = now.max(self.data_free);
            self.data_free = turn + LINE / t.shared.per_sm;
            last(turn + t.shared.latency, Reason::Shared);
        }
        for touch in touches {
            match *touch {
                Touch::Shared(passes) => {
                    let turn = now.max(self.data_free);
                    let bytes = f64::from(passes) * LINE;
                    self.data_free = turn + bytes / t.shared.per_sm;
                    self.shared_bytes += bytes;
                    let more = bytes / t.shared.per_sm - LINE / t.shared.per_sm;
                    if how != How::Copy {
                        last(turn + more.max(0.0) + t.shared.latency, Reason::Shared);
                    }
                }
                Touch::Local(lines) => {
                    let turn = now.max(self.data_free);
                    let bytes = f64::from(lines) * LINE;
                    self.data_free = turn + bytes / t.l1.per_sm;
                    self.l1_bytes += bytes;
                    last(self.data_free + t.l1.latency, Reason::L1);
                }
                Touch::Line(line, sectors) => {
                    let (at, r) = self.line(far, t, line, sectors, how, now);
                    last(at, r);
                }
                Touch::Barrier { .. } | Touch::Comes { .. } | Touch::Waited { .. } => {}
            }
        }
        ready
    }

    fn line(
        &mut self,
        far: &mut Far,
        t: &Timing,
        line: u64,
        sectors: u8,
        how: How,
        now: f64,
    ) -> (f64, Reason) {
        let bytes = f64::from(sectors.count_ones()) * SECTOR;
        let turn = now.max(self.data_free);
        if how != How::Copy {
            // A line's tag is looked up in the time of one full line at most.
            self.data_free = turn + (bytes / t.l1.per_sm).max(1.0);
            self.l1_bytes += bytes;
        }
        let mut port = |bytes: f64| {
            let at = turn.max(self.port_free);
            self.port_free = at + bytes / t.l2.per_sm;
            at
        };
        match how {
            How::Load => {
                let (here, at) = self.l1.look(line, sectors);
                let mut ready = (turn + t.l1.latency, Reason::L1);
                if at > ready.0 {
                    // On its way already: from as far as it still takes.
                    let far = at - turn > t.l2.latency;
                    ready = (at, if far { Reason::Device } else { Reason::L2 });
                }
                let missing = sectors & !here;
                if missing != 0 {
                    let from = port(f64::from(missing.count_ones()) * SECTOR);
                    let (at, r) = far.read(t, line, missing, from);
                    self.l1.fill(line, missing, at);
                    if at > ready.0 {
                        ready = (at, r);
                    }
                }
                ready
            }
            How::Copy => {
                let from = port(bytes);
                far.read(t, line, sectors, from)
            }
            How::Store => {
                let from = port(bytes);
                far.write(t, line, sectors, from);
                (now, Reason::L1)
            }
            How::Atomic => {
                let from = port(bytes);
                let (at, r) = far.read(t, line, sectors, from);
                far.write(t, line, sectors, from);
                (at, r)
            }
        }
    }
}
