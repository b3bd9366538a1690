//! Plans written by hand.
#![allow(dead_code)]
#[path = "../../../kernel/tests/common/mod.rs"]
pub mod kernels;
#[path = "../../../kernel/tests/common/random.rs"]
pub mod random;

use crate::kernel;
use expr::Unary;
use kernel::{Kernel, Schedule, Term, TileProgram, work};
use kernels::*;
use layout::{DType, Dim, DimBox, Leaf};
use machine::{Cost, Work};
use shopfloor_plan::*;

pub fn d(n: i64) -> Dim {
    Dim::Known(n)
}

pub fn m() -> Dim {
    Dim::sym("m")
}

/// A block under construction; arena buffers follow each other.
pub struct PlanMaker {
    pub block: Block,
    pub dims: DimBox,
}

impl PlanMaker {
    pub fn new() -> PlanMaker {
        let mut dims = DimBox::new();
        dims.insert("m", 1, 8);
        PlanMaker {
            block: Block {
                symbols: vec!["m".into()],
                buffers: vec![],
                inputs: vec![],
                outputs: vec![],
                states: vec![],
                init: vec![],
                steps: vec![],
                arena_bytes: 0,
                far_arenas: vec![],
                constraints: vec![],
                scratch_bytes: 0,
                predicted: Cost::zero(),
            },
            dims,
        }
    }

    pub fn buffer(&mut self, kind: BufferKind, dtype: DType, shape: &[Dim]) -> BufferId {
        let n = self.dims.at_top(&Dim::product(shape)).unwrap();
        let bytes = dtype.bytes_for(n as usize).unwrap() as u64;
        let offset = if kind == BufferKind::Arena {
            self.block.arena_bytes
        } else {
            0
        };
        if kind == BufferKind::Arena {
            self.block.arena_bytes += bytes.next_multiple_of(64);
        }
        let id = self.block.buffers.len() as BufferId;
        let name = format!("b{id}");
        self.block.buffers.push(Buffer {
            name,
            kind,
            place: 0,
            dtype,
            bytes,
            align: 64,
            offset,
        });
        id
    }

    pub fn weight(&mut self, shape: &[Dim]) -> BufferId {
        let n = self.block.buffers.len() as u32;
        self.buffer(BufferKind::Weight(n), DType::F32, shape)
    }

    pub fn init_buffer(&mut self, shape: &[Dim]) -> BufferId {
        self.buffer(BufferKind::Init, DType::F32, shape)
    }

    pub fn arena(&mut self, shape: &[Dim]) -> BufferId {
        self.buffer(BufferKind::Arena, DType::F32, shape)
    }

    /// An arena buffer on the bytes of `other`.
    pub fn arena_on(&mut self, other: BufferId, shape: &[Dim]) -> BufferId {
        let end = self.block.arena_bytes;
        let id = self.arena(shape);
        self.block.arena_bytes = end;
        self.block.buffers[id as usize].offset = self.block.buffers[other as usize].offset;
        id
    }

    pub fn input(&mut self, dtype: DType, shape: &[Dim]) -> BufferId {
        let n = self.block.inputs.len();
        let buffer = self.buffer(BufferKind::Input(n as u32), dtype, shape);
        self.block.inputs.push(Port {
            name: format!("in{n}"),
            value: n as u32,
            dtype,
            shape: shape.to_vec(),
            buffer,
        });
        buffer
    }

    pub fn output(&mut self, shape: &[Dim]) -> BufferId {
        let n = self.block.outputs.len();
        let buffer = self.buffer(BufferKind::Output(n as u32), DType::F32, shape);
        let name = format!("out{n}");
        self.block.outputs.push(Port {
            name,
            value: 100 + n as u32,
            dtype: DType::F32,
            shape: shape.to_vec(),
            buffer,
        });
        buffer
    }

    /// A state of `past` rows that a request makes `present` rows of.
    pub fn state(&mut self, past: &[Dim], present: &[Dim]) -> BufferId {
        let n = self.block.states.len() as u32;
        let buffer = self.buffer(BufferKind::State(n), DType::F32, present);
        let (input, output) = (
            self.block.inputs.len() as u32,
            self.block.outputs.len() as u32,
        );
        let port = |name: &str, value, shape: &[Dim]| Port {
            name: name.into(),
            value,
            dtype: DType::F32,
            shape: shape.to_vec(),
            buffer,
        };
        self.block.inputs.push(port("past", 50, past));
        self.block.outputs.push(port("present", 51, present));
        self.block.states.push(StateRef {
            input,
            output,
            buffer,
        });
        buffer
    }

    fn add(
        &mut self,
        init: bool,
        work: StepWork,
        tasks: Dim,
        scratch: u64,
        waits: &[StepId],
    ) -> StepId {
        self.block.scratch_bytes = self.block.scratch_bytes.max(scratch);
        let list = if init {
            &mut self.block.init
        } else {
            &mut self.block.steps
        };
        list.push(Step {
            name: format!("step{}", list.len()),
            work,
            device: 0,
            tasks,
            waits: waits.iter().map(|&w| Wait::Step(w)).collect(),
            scratch,
            nodes: vec![],
            cost_work: Work::default(),
            predicted: Cost::zero(),
            taken: false,
            joined: false,
        });
        (list.len() - 1) as StepId
    }

    pub fn step(
        &mut self,
        init: bool,
        (kernel, schedule): (Kernel, Schedule),
        args: &[BufferId],
        waits: &[StepId],
    ) -> StepId {
        let p = TileProgram::new(kernel.clone(), schedule.clone()).unwrap();
        let scratch = work::scratch_bytes(&p, &self.dims).unwrap();
        let tasks = work::tasks(&kernel, &schedule);
        let work = StepWork::Kernel {
            kernel: kernel.into(),
            schedule: schedule.into(),
            args: args.to_vec(),
        };
        self.add(init, work, tasks, scratch, waits)
    }

    pub fn host(
        &mut self,
        inputs: &[(BufferId, &[Dim])],
        outputs: &[(BufferId, &[Dim])],
        waits: &[StepId],
    ) -> StepId {
        let arg = |(buffer, shape): &(BufferId, &[Dim])| HostArg {
            buffer: *buffer,
            dtype: self.block.buffers[*buffer as usize].dtype,
            shape: shape.to_vec(),
        };
        let op = HostOp {
            name: "identity".into(),
            attrs: Default::default(),
            reason: "a test".into(),
            made: Default::default(),
        };
        let work = StepWork::Host {
            op: op.into(),
            inputs: inputs.iter().map(|a| Some(arg(a))).collect(),
            outputs: outputs.iter().map(arg).collect(),
        };
        self.add(false, work, Dim::ONE, 0, waits)
    }

    pub fn finish(self, model: &str) -> Plan {
        Plan {
            version: Plan::VERSION,
            model: model.into(),
            program_hash: "00".into(),
            devices: vec![DeviceRef {
                machine: "zen5-2core".into(),
                machine_hash: "00".into(),
                target: "cpu-avx512".into(),
                workers: 2,
            }],
            dims: self.dims,
            goal: Goal::Latency,
            launch: None,
            segments: vec![PlanSegment::Block(Box::new(self.block))],
            predicted: Cost::zero(),
            whys: vec![],
        }
    }
}

fn map(rows: Dim, cols: Dim) -> (Kernel, Schedule) {
    (pointwise(rows, cols, Unary::Exp), pointwise_cpu(3))
}

/// Packed weights, a product, a softmax, element-wise steps and memory used twice.
pub fn chain() -> Plan {
    let mut p = PlanMaker::new();
    let x = p.input(DType::F32, &[m(), d(33)]);
    let w = p.weight(&[d(65), d(33)]);
    let packed = p.init_buffer(&[d(65), d(33)]);
    let c = p.weight(&[d(65)]);
    let t1 = p.arena(&[m(), d(65)]);
    let t2 = p.arena(&[m(), d(65)]);
    let t3 = p.arena_on(t1, &[m(), d(65)]);
    let y = p.output(&[m(), d(65)]);
    p.step(true, map(d(65), d(33)), &[w, packed], &[]);
    let gemm = (gemm(m(), d(65), d(33), DType::F32), gemm_cpu(2, 64, 16));
    p.step(false, gemm, &[x, packed, c, t1], &[]);
    p.step(
        false,
        (softmax(m(), d(65)), softmax_cpu(2)),
        &[t1, t2],
        &[0],
    );
    p.step(false, map(m(), d(65)), &[t2, t3], &[1]);
    p.step(false, map(m(), d(65)), &[t3, y], &[2]);
    p.finish("chain")
}

/// A copy of [rows, cols] into rows `from..` of a wider tensor with `of` columns, at column `at`.
pub fn part(rows: Dim, cols: Dim, of: Dim, at: Dim) -> (Kernel, Schedule) {
    let (mut k, s) = map(rows.clone(), cols.clone());
    k.operands[1].access.offset = at;
    k.operands[1].access.terms = vec![Term::flat(0, rows, of), Term::flat(1, cols, Dim::ONE)];
    (k, s)
}

/// Pieces joined along the inner axis by steps that run at the same time, a host step, and an
/// element-wise step in place.
pub fn join() -> Plan {
    let mut p = PlanMaker::new();
    let wide = m() + d(7);
    let a = p.input(DType::F32, &[d(5), m()]);
    let b = p.input(DType::F32, &[d(5), d(7)]);
    let joined = p.arena(&[d(5), wide.clone()]);
    let t = p.arena(&[d(5), wide.clone()]);
    let y = p.output(&[d(5), wide.clone()]);
    p.step(
        false,
        part(d(5), m(), wide.clone(), d(0)),
        &[a, joined],
        &[],
    );
    p.step(
        false,
        part(d(5), d(7), wide.clone(), m()),
        &[b, joined],
        &[],
    );
    p.host(
        &[(joined, &[d(5), wide.clone()])],
        &[(t, &[d(5), wide.clone()])],
        &[0, 1],
    );
    p.step(false, map(d(5), wide.clone()), &[t, t], &[2]);
    p.step(false, map(d(5), wide), &[t, y], &[3]);
    p.finish("join")
}

/// Rows appended to a state in place, attention over it, gathered rows.
pub fn stateful() -> Plan {
    let mut p = PlanMaker::new();
    let state = p.state(&[m(), d(16)], &[m() + d(1), d(16)]);
    let new = p.input(DType::F32, &[d(1), d(16)]);
    let q = p.input(DType::F32, &[d(3), d(16)]);
    let index = p.input(DType::I64, &[m()]);
    let o = p.arena(&[d(3), d(16)]);
    let y = p.output(&[d(3), d(16)]);
    let table = p.weight(&[d(10), d(8)]);
    let g = p.output(&[m(), d(8)]);
    let (mut append, s) = map(d(1), d(16));
    append.operands[1].access.offset = m() * d(16);
    p.step(false, (append, s), &[new, state], &[]);
    let attention = (
        attention(d(1), d(3), m() + d(1), d(16)),
        attention_cpu(2, 4),
    );
    p.step(false, attention, &[q, state, state, o], &[0]);
    p.step(false, map(d(3), d(16)), &[o, y], &[1]);
    p.step(
        false,
        (gather(m(), 10, 8), gather_cpu(2)),
        &[index, table, g],
        &[],
    );
    p.finish("stateful")
}

/// A convolution with bounds whose output lies in blocks of 8 channels, then read back plainly.
pub fn blocked() -> Plan {
    let mut p = PlanMaker::new();
    let x = p.input(DType::F32, &[d(14), d(14), d(8)]);
    let w = p.weight(&[d(3), d(3), d(8), d(16)]);
    let t = p.arena(&[d(2), d(7), d(7), d(8)]);
    let y = p.output(&[d(7), d(7), d(16)]);
    let block = |k: &mut Kernel, operand: usize| {
        let leaf = |e, s| Leaf {
            extent: d(e),
            stride: d(s),
        };
        k.operands[operand].access.terms = vec![
            Term::flat(0, d(7), d(56)),
            Term::flat(1, d(7), d(8)),
            Term {
                axis: 2,
                leaves: vec![leaf(2, 392), leaf(8, 1)],
            },
        ];
    };
    let mut k = conv(14, 14, 8, 16, 2);
    block(&mut k, 2);
    p.step(false, (k, conv_cpu(2)), &[x, w, t], &[]);
    let mut make = Make::new(
        "unblock",
        kernel::Family::Move,
        &[("oh", d(7)), ("ow", d(7)), ("oc", d(16))],
    );
    let v = make.load_dense("v", DType::F32, &[0, 1, 2]);
    make.store_dense("Y", v, &[0, 1, 2]);
    let mut k = make.k;
    block(&mut k, 0);
    let mut s = gather_cpu(2);
    s.places = vec![kernel::Place::Register];
    p.step(false, (k, s), &[t, y], &[0]);
    p.finish("blocked")
}

/// A copy to a second device, work there, and a copy back.
pub fn split() -> Plan {
    let mut p = PlanMaker::new();
    let shape = [m(), d(33)];
    let x = p.input(DType::F32, &shape);
    let near = p.arena(&shape);
    let t = p.buffer(BufferKind::Arena, DType::F32, &shape);
    let u = p.buffer(BufferKind::Arena, DType::F32, &shape);
    let y = p.output(&shape);
    let bytes = p.block.buffers[t as usize].bytes.next_multiple_of(64);
    for (i, b) in [t, u].into_iter().enumerate() {
        let b = &mut p.block.buffers[b as usize];
        (b.place, b.offset) = (1, i as u64 * bytes);
    }
    p.block.arena_bytes = bytes;
    p.block.far_arenas = vec![2 * bytes];
    let copy = || {
        let axes = [("r", m()), ("c", d(33))];
        let mut make = Make::new("copy", kernel::Family::Move, &axes);
        let v = make.load_dense("x", DType::F32, &[0, 1]);
        make.store_dense("Y", v, &[0, 1]);
        let mut s = gather_cpu(2);
        s.places = vec![kernel::Place::Register];
        (make.k, s)
    };
    p.step(false, map(m(), d(33)), &[x, near], &[]);
    p.step(false, copy(), &[near, t], &[0]);
    p.step(false, map(m(), d(33)), &[t, u], &[1]);
    p.step(false, copy(), &[u, y], &[2]);
    p.block.steps[2].device = 1;
    let mut plan = p.finish("split");
    plan.devices.push(plan.devices[0].clone());
    plan
}

/// Rows of `m`, read as rows of `n`: right only where the two are equal.
pub fn equal() -> Plan {
    let n = || Dim::sym("n");
    let mut p = PlanMaker::new();
    p.dims.insert("n", 4, 8);
    p.block.symbols.push("n".into());
    p.block.constraints.push(Constraint {
        node: "add".into(),
        left: m() * d(2),
        right: n() * d(2),
    });
    let x = p.input(DType::F32, &[m(), d(33)]);
    let t = p.arena(&[n(), d(33)]);
    let y = p.output(&[n(), d(33)]);
    p.step(false, map(n(), d(33)), &[x, t], &[]);
    p.step(false, map(n(), d(33)), &[t, y], &[0]);
    p.finish("equal")
}

pub fn good() -> Vec<Plan> {
    vec![chain(), join(), stateful(), blocked(), split(), equal()]
}
