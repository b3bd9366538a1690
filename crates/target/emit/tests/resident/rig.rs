//! A resident kernel on the emulator, with the host beside it.
use conformance::is_fault;
use device::{Call, StepShape, Tables};
use kernel::{TileProgram, work};
use layout::Dim;
use plan::Wait;
use ptx_emulator::{HostOrder, Launch, Machine, MemoryKind, Report, Running, Status};
use shopfloor_emit::ptx::resident::{Abi, Idle, Resident};
use shopfloor_emit::ptx::{ParamSpec, ParamValue};
use std::cell::RefCell;
use std::rc::Rc;
use workers::ring::{Answer, Dump, Ring, Words, abi};

/// The protocol's numbers for the emitter.
pub fn protocol(capacity: u32) -> Abi {
    Abi::new(capacity, &abi::offsets(capacity)).expect("every offset")
}

/// What a step does.
pub enum Work {
    /// A tile program on buffers, with values of its symbols.
    Program(Box<TileProgram>, Vec<usize>, Vec<(String, i64)>),
    /// A copy of a buffer.
    Copy(usize, usize),
}

/// A step of a request.
pub struct Step {
    pub name: String,
    pub work: Work,
    pub waits: Vec<Wait>,
}

/// A buffer of a request.
#[derive(Clone, Copy)]
pub struct Buffer {
    pub bytes: usize,
    /// In memory that both sides see.
    pub host: bool,
    /// One for all slots.
    pub shared: bool,
}

/// Steps and their memory.
pub struct Model {
    pub steps: Vec<Step>,
    pub buffers: Vec<Buffer>,
}

/// Bytes that a task of a copy moves.
const PIECE: u64 = 256;

impl Model {
    pub fn emit(&self, arch: &str, capacity: u32, idle: Idle) -> Resident {
        let programs: Vec<&TileProgram> = self.programs();
        shopfloor_emit::ptx::resident::emit(&programs, (arch, 99 << 10), &protocol(capacity), idle)
            .unwrap_or_else(|e| panic!("{e}"))
    }

    fn programs(&self) -> Vec<&TileProgram> {
        self.steps
            .iter()
            .filter_map(|s| match &s.work {
                Work::Program(p, ..) => Some(&**p),
                Work::Copy(..) => None,
            })
            .collect()
    }

    fn tasks(&self, s: &Step) -> u64 {
        match &s.work {
            Work::Program(p, _, symbols) => {
                let lookup = |n: &str| symbols.iter().find(|x| x.0 == n).map(|x| x.1);
                let n = work::tasks(p.kernel(), p.schedule()).eval(&lookup);
                n.unwrap_or(0).max(0) as u64
            }
            Work::Copy(from, _) => (self.buffers[*from].bytes as u64).div_ceil(PIECE),
        }
    }

    /// Tables for the bodies of `r`; every step's parameters.
    fn tables(&self, r: &Resident) -> (Tables, Vec<Vec<ParamSpec>>) {
        let mut at = 0;
        let (mut shapes, mut specs) = (vec![], vec![]);
        for s in &self.steps {
            let (body, params, faults) = match &s.work {
                Work::Program(..) => {
                    let body = r.of_program[at];
                    at += 1;
                    let b = &r.bodies[body as usize];
                    (body, b.params.clone(), !b.faults.is_empty())
                }
                Work::Copy(..) => (r.copy_body(), vec![], false),
            };
            let copies = matches!(s.work, Work::Copy(..));
            shapes.push(StepShape {
                body,
                params: if copies { 4 } else { params.len() as u32 },
                top_tasks: self.tasks(s),
                waits: s.waits.clone(),
                faults,
            });
            specs.push(params);
        }
        (Tables::new(shapes).unwrap_or_else(|e| panic!("{e}")), specs)
    }
}

/// Words of the emulator's memory, as the host sees them.
#[derive(Clone)]
pub struct HostWords {
    pub world: Rc<World>,
    pub base: u64,
}

/// A machine and what runs on it.
pub struct World {
    pub machine: RefCell<Machine>,
    pub running: RefCell<Option<Running>>,
}

impl World {
    pub fn read(&self, at: u64, bytes: usize, order: HostOrder) -> Vec<u8> {
        let m = self.machine.borrow();
        match &mut *self.running.borrow_mut() {
            Some(r) => r.load(&m.memory, at, bytes, order).unwrap(),
            None => m.memory.read(at, bytes).unwrap(),
        }
    }

    pub fn write(&self, at: u64, data: &[u8], order: HostOrder) {
        let m = self.machine.borrow();
        match &mut *self.running.borrow_mut() {
            Some(r) => r.store(&m.memory, at, data, order).unwrap(),
            None => m.memory.write(at, data).unwrap(),
        }
    }

    pub fn is_written(&self, at: u64, bytes: usize) -> bool {
        let m = self.machine.borrow();
        m.memory.is_written(at, bytes).unwrap()
    }

    pub fn allocate(&self, bytes: usize, kind: MemoryKind, zero: bool) -> u64 {
        // Whole words are reached where elements are narrower.
        let zero = zero || !bytes.is_multiple_of(4);
        let bytes = bytes.next_multiple_of(4).max(16);
        let mut m = self.machine.borrow_mut();
        let at = m.memory.allocate(bytes as u64, kind).unwrap();
        if zero {
            m.memory.write(at, &vec![0; bytes]).unwrap();
        }
        at
    }
}

impl Words for HostWords {
    type Error = std::convert::Infallible;
    fn load_acquire(&self, offset: usize) -> Result<u32, Self::Error> {
        let b = self
            .world
            .read(self.base + offset as u64, 4, HostOrder::Acquire);
        Ok(u32::from_le_bytes(b.try_into().unwrap()))
    }
    fn store_release(&self, offset: usize, value: u32) -> Result<(), Self::Error> {
        let at = self.base + offset as u64;
        self.world
            .write(at, &value.to_le_bytes(), HostOrder::Release);
        Ok(())
    }
}

/// One model on a device, with a ring.
pub struct Rig {
    pub world: Rc<World>,
    pub ring: Ring<HostWords>,
    pub resident: Resident,
    tables: Tables,
    specs: Vec<Vec<ParamSpec>>,
    places: Places,
    names: Vec<String>,
    workers: u32,
    pub patience: u32,
    pub seed: u64,
    /// The first request that the kernel takes, where it is not the next one.
    pub first: Option<u32>,
    text: String,
}

#[derive(Clone)]
struct Places {
    ring: u64,
    feed: u64,
    slots: u64,
    payloads: u64,
    status: u64,
    /// By slot and buffer.
    buffers: Vec<Vec<u64>>,
}

/// A small pause keeps idle kernels cheap to emulate.
pub const IDLE: Idle = Idle {
    spins: 8,
    pause_ns: 256,
};

impl Rig {
    /// Memory for `slots` requests and `workers` workers; nothing runs yet.
    pub fn new(model: &Model, arch: &str, workers: u32, slots: usize, capacity: u32) -> Rig {
        let world = Rc::new(World {
            machine: RefCell::new(Machine::new()),
            running: RefCell::new(None),
        });
        Rig::beside(&world, None, model, arch, workers, slots, capacity)
    }

    /// The same on a machine that has other kernels, sharing their ring if there is one.
    pub fn beside(
        world: &Rc<World>,
        ring: Option<Ring<HostWords>>,
        model: &Model,
        arch: &str,
        workers: u32,
        slots: usize,
        capacity: u32,
    ) -> Rig {
        let resident = model.emit(arch, capacity, IDLE);
        let (tables, specs) = model.tables(&resident);
        let w = &world;
        let words = abi::ring_bytes(capacity);
        let ring = ring.unwrap_or_else(|| {
            let base = w.allocate(words, MemoryKind::Host, true);
            let world = world.clone();
            Ring::new(HostWords { world, base }, capacity)
        });
        let (device, host) = (MemoryKind::Device, MemoryKind::Host);
        let shared: Vec<Option<u64>> = model
            .buffers
            .iter()
            .map(|b| b.shared.then(|| w.allocate(b.bytes, device, false)))
            .collect();
        let buffers = (0..slots)
            .map(|_| {
                let one = |(b, s): (&Buffer, &Option<u64>)| {
                    let kind = if b.host { host } else { device };
                    s.unwrap_or_else(|| w.allocate(b.bytes, kind, false))
                };
                model.buffers.iter().zip(&shared).map(one).collect()
            })
            .collect();
        let places = Places {
            ring: ring.words().base,
            feed: w.allocate(abi::feed_bytes(capacity), device, true),
            slots: w.allocate(tables.slot_bytes() * slots, device, true),
            payloads: w.allocate(tables.payload_bytes() * slots, host, true),
            status: w.allocate(
                workers as usize * std::mem::size_of::<abi::StatusEntry>(),
                device,
                true,
            ),
            buffers,
        };
        Rig {
            world: world.clone(),
            ring,
            text: resident.text.clone(),
            resident,
            tables,
            specs,
            places,
            names: model.steps.iter().map(|s| s.name.clone()).collect(),
            workers,
            patience: 1 << 20,
            seed: 0,
            first: None,
        }
    }

    /// Changes the kernel's text before it starts: for broken variants.
    pub fn edit(&mut self, from: &str, to: &str) {
        assert!(self.text.contains(from), "the text has no '{from}'");
        self.text = self.text.replace(from, to);
    }

    pub fn start(&mut self) {
        let p = &self.places;
        let (zero, fault, end) = self.tables.cleared();
        let args = [
            p.ring,
            p.feed,
            p.slots,
            p.payloads,
            p.status,
            self.tables.slot_bytes() as u64,
            self.tables.payload_bytes() as u64,
            zero as u64,
            end as u64,
            fault as u64,
            u64::from(self.first.unwrap_or(self.ring.next())),
            u64::from(self.ring.offs()),
            u64::from(self.ring.epoch()),
            u64::from(self.patience),
        ];
        assert_eq!(args.len(), shopfloor_emit::ptx::resident::PARAMS.len());
        let mut machine = self.world.machine.borrow_mut();
        let module = machine.load(&self.text).unwrap_or_else(|e| {
            panic!("{e}\n{}", self.text);
        });
        let mut l = Launch {
            grid: [self.workers + 1, 1, 1],
            block: [self.resident.shape.threads, 1, 1],
            shared: self.resident.shape.shared_bytes,
            seed: self.seed,
            resident: self.workers as usize + 1,
            ..Launch::new(&self.resident.entry)
        };
        for a in args {
            l = l.u64(a);
        }
        let running = machine.start(&module, &l).unwrap_or_else(|e| panic!("{e}"));
        drop(machine);
        *self.world.running.borrow_mut() = Some(running);
    }

    /// Address of a buffer of a slot.
    pub fn buffer(&self, slot: usize, buffer: usize) -> u64 {
        self.places.buffers[slot][buffer]
    }

    /// Writes the tables of a slot, whose next request is then fresh.
    pub fn prepare(&self, model: &Model, slot: usize) {
        let base = self.places.slots + (slot * self.tables.slot_bytes()) as u64;
        let of = |b: usize| self.places.buffers[slot][b];
        let mut values: Vec<Vec<u64>> = vec![];
        for (i, s) in model.steps.iter().enumerate() {
            values.push(match &s.work {
                Work::Copy(from, to) => {
                    vec![of(*from), of(*to), model.buffers[*from].bytes as u64, PIECE]
                }
                Work::Program(_, args, symbols) => {
                    let lookup = |n: &str| symbols.iter().find(|x| x.0 == n).map(|x| x.1);
                    let one = |p: &ParamSpec| match &p.value {
                        ParamValue::Operand(o) => of(args[*o as usize]),
                        ParamValue::Dim(d) | ParamValue::Tasks(d) => {
                            d.eval(&lookup).unwrap_or(0) as u64
                        }
                        ParamValue::Tensor(_) => panic!("a resident kernel copies boxes"),
                        ParamValue::Fault => base + self.tables.fault(i).unwrap_or(0) as u64,
                    };
                    self.specs[i].iter().map(one).collect()
                }
            });
        }
        let calls: Vec<Call> = model
            .steps
            .iter()
            .zip(&values)
            .map(|(s, v)| Call {
                tasks: model.tasks(s),
                params: v,
            })
            .collect();
        let mut payload = vec![];
        let value = |d: &Dim| d.known();
        self.tables
            .fill(&calls, &value, &mut payload)
            .unwrap_or_else(|e| panic!("{e}"));
        let at = self.places.payloads + (slot * payload.len()) as u64;
        self.world.write(at, &payload, HostOrder::Weak);
    }

    /// Runs a slice of the kernel.
    pub fn slice(&self, steps: u64) -> Status {
        let m = self.world.machine.borrow();
        let mut r = self.world.running.borrow_mut();
        let r = r.as_mut().expect("a kernel");
        r.slice(&m.memory, steps)
    }

    /// What was found so far.
    pub fn reports(&self) -> Vec<Report> {
        let r = self.world.running.borrow();
        let all = r.as_ref().map_or(&[][..], |r| r.reports());
        all.iter().filter(|r| is_fault(r)).cloned().collect()
    }

    pub fn steps(&self) -> u64 {
        self.world
            .running
            .borrow()
            .as_ref()
            .map_or(0, Running::steps)
    }

    /// Every worker, and what it waits for.
    pub fn dump(&self) -> Dump {
        let bytes = self.workers as usize * std::mem::size_of::<abi::StatusEntry>();
        let mut page = vec![];
        for at in (0..bytes as u64).step_by(4) {
            let at = self.places.status + at;
            page.extend(self.world.read(at, 4, HostOrder::Relaxed));
        }
        Dump::read(&page, &self.names, &self.tables.counters())
    }

    /// What the emulator says of every warp.
    pub fn warps(&self) -> String {
        let m = self.world.machine.borrow();
        let r = self.world.running.borrow();
        r.as_ref()
            .map_or(String::new(), |r| r.dump(&m.memory).join("\n"))
    }

    /// Runs until request `seq` is answered.
    pub fn answer(&mut self, seq: u32) -> Answer {
        for _ in 0..200_000 {
            if let Some(a) = self.ring.poll(seq).unwrap_or_else(|e| panic!("{e}")) {
                return a;
            }
            let status = self.slice(500);
            assert!(
                matches!(status, Status::Running | Status::Parked),
                "{status:?}: {:#?}",
                self.reports()
            );
        }
        panic!("no answer\n{}\n{}", self.dump(), self.warps());
    }

    /// Stops the kernel, and gives what was found.
    pub fn stop(&mut self) -> Vec<Report> {
        self.ring.stop().unwrap();
        self.leave()
    }

    /// Runs until the kernel has left.
    pub fn leave(&mut self) -> Vec<Report> {
        for _ in 0..100_000 {
            match self.slice(1000) {
                Status::Done => {
                    let found = self.reports();
                    *self.world.running.borrow_mut() = None;
                    return found;
                }
                Status::Fault => panic!("{:#?}", self.reports()),
                Status::Running | Status::Parked => {}
            }
        }
        panic!("it stays\n{}\n{}", self.dump(), self.warps());
    }
}
