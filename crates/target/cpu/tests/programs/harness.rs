//! Plans of one step by hand, run on every instruction set and worker count, against the oracle.
use super::oracle::{self, Syms};
use device::{Device, DeviceError, PackedStore, Request};
use kernel::{AxisTile, CpuMapping, Kernel, Mapping, MicroKernel, Place, Role, Schedule, Stmt};
use layout::{DType, Dim, DimBox};
use machine::{Cost, Work};
use plan::{Block, Buffer, BufferKind, DeviceRef, Goal, Plan, PlanSegment, Port, Step, StepWork};
use shopfloor_cpu::{CpuDevice, CpuOptions, Isa};
use std::sync::{Arc, OnceLock};
use tensor::{Tensor, WeightStore};

/// Numbers that are the same in every run.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A tensor of random values: floats in -1..1, integers in `0..top`.
pub fn random(d: DType, n: usize, top: u64, rng: &mut Rng) -> Tensor {
    let mut t = Tensor::zeros(d, &[n]).expect("a size");
    for i in 0..n {
        if d.is_float() {
            t.set_f64(i, rng.unit());
        } else {
            t.set_i64(i, rng.below(top.max(1)) as i64);
        }
    }
    t
}

pub fn devices() -> &'static [CpuDevice] {
    static ALL: OnceLock<Vec<CpuDevice>> = OnceLock::new();
    ALL.get_or_init(|| {
        let machine = shopfloor_cpu::detect::detect();
        let mut out = Vec::new();
        for isa in Isa::ALL.into_iter().filter(|i| i.available()) {
            for threads in [1, 2] {
                let o = CpuOptions {
                    threads: Some(threads),
                    isa: Some(isa),
                    machine: Some(machine.clone()),
                    ..Default::default()
                };
                out.push(CpuDevice::new(o).expect("a device"));
            }
        }
        out
    })
}

pub fn schedule(
    k: &Kernel,
    grid: &[(u16, i64)],
    loops: &[(u16, i64)],
    in_place: bool,
    micro: Option<(u32, u32)>,
) -> Schedule {
    let cut = |v: &[(u16, i64)]| {
        v.iter()
            .map(|&(axis, tile)| AxisTile { axis, tile })
            .collect()
    };
    // Only a tile that is loaded, or one that is stored, is an operand's own memory.
    let place = |t: usize| {
        let t = t as u16;
        let writes = k.body.iter().filter(|s| s.writes().contains(&t)).count();
        let loaded = k
            .body
            .iter()
            .any(|s| matches!(s, Stmt::Load { dst, .. } if *dst == t));
        if in_place && loaded && writes == 1 {
            Place::InPlace
        } else {
            Place::Register
        }
    };
    Schedule {
        grid: cut(grid),
        loops: cut(loops),
        places: (0..k.tiles.len()).map(place).collect(),
        chunk: 1,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping {
            micro: micro.map(|(mr, nr)| MicroKernel { mr, nr }),
            rows: Vec::new(),
            lanes: None,
        }),
    }
}

/// A plan of one step; operands are ports in order.
pub fn plan(k: &Kernel, s: &Schedule, dims: &DimBox) -> Plan {
    let (mut buffers, mut inputs, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
    for (i, o) in k.operands.iter().enumerate() {
        let top = dims.at_top(&o.elements).expect("a size") as usize;
        let (list, kind) = if o.role == Role::Read {
            (&mut inputs, BufferKind::Input(0))
        } else {
            (&mut outputs, BufferKind::Output(0))
        };
        let kind = match kind {
            BufferKind::Input(_) => BufferKind::Input(list.len() as u32),
            _ => BufferKind::Output(list.len() as u32),
        };
        list.push(Port {
            name: o.name.clone(),
            value: i as u32,
            dtype: o.dtype,
            shape: vec![o.elements.clone()],
            buffer: i as u32,
        });
        buffers.push(Buffer {
            name: o.name.clone(),
            kind,
            place: 0,
            dtype: o.dtype,
            bytes: o.dtype.bytes_for(top).expect("a size") as u64,
            align: 64,
            offset: 0,
        });
    }
    let tasks = s.grid.iter().fold(Dim::ONE, |n, t| {
        n * k.axes[t.axis as usize].extent.ceil_div(&Dim::Known(t.tile))
    });
    let step = Step {
        name: k.name.clone(),
        work: StepWork::Kernel {
            kernel: k.clone().into(),
            schedule: s.clone().into(),
            args: (0..k.operands.len() as u32).collect(),
        },
        device: 0,
        tasks,
        waits: Vec::new(),
        scratch: 1 << 40,
        nodes: vec!["test".into()],
        cost_work: Work::default(),
        predicted: Cost::zero(),
        taken: false,
    };
    let block = Block {
        symbols: dims.iter().map(|(s, _)| s.clone()).collect(),
        buffers,
        inputs,
        outputs,
        states: Vec::new(),
        init: Vec::new(),
        steps: vec![step],
        arena_bytes: 0,
        far_arenas: vec![],
        constraints: vec![],
        scratch_bytes: 1 << 40,
        predicted: Cost::zero(),
    };
    Plan {
        version: Plan::VERSION,
        model: "test".into(),
        program_hash: String::new(),
        devices: vec![DeviceRef {
            machine: "test".into(),
            machine_hash: String::new(),
            target: "cpu".into(),
            workers: 2,
        }],
        dims: dims.clone(),
        goal: Goal::Latency,
        segments: vec![PlanSegment::Block(Box::new(block))],
        predicted: Cost::zero(),
        whys: Vec::new(),
    }
}

/// Runs `p`'s only block on `d`; outputs start as `fill`.
pub fn run_on(
    d: &CpuDevice,
    p: Plan,
    inputs: &[&Tensor],
    outputs: &mut [Tensor],
    syms: &Syms,
) -> Result<(), DeviceError> {
    let v = Arc::new(p.verify().expect("a valid plan"));
    let e = d.compile(
        v.clone(),
        0,
        &Arc::new(WeightStore::new()),
        &PackedStore::new(),
    )?;
    let mut frame = e.new_frame()?;
    let block = v.plan().blocks().next().expect("a block");
    let symbols: Vec<i64> = block.symbols.iter().map(|s| syms[&**s]).collect();
    let ins: Vec<&[u8]> = inputs.iter().map(|t| t.bytes()).collect();
    for _ in 0..2 {
        let mut outs: Vec<&mut [u8]> = outputs.iter_mut().map(|t| t.bytes_mut()).collect();
        let r = Request {
            symbols: &symbols,
            inputs: &ins,
            outputs: &mut outs,
            states: &mut [],
            timeline: None,
            stop_after: None,
            permit: Default::default(),
        };
        e.run(&mut frame, r)?;
    }
    Ok(())
}

/// Compares every schedule on every device with the oracle.
pub fn check(
    k: &Kernel,
    schedules: &[Schedule],
    dims: &[(&str, i64)],
    tensors: Vec<Tensor>,
    tolerance: f64,
) {
    let syms: Syms = dims.iter().map(|(n, v)| (n.to_string(), *v)).collect();
    let mut bx = DimBox::new();
    for (n, v) in dims {
        bx.insert(*n, 0, v + 3);
    }
    let want = oracle::run(k, tensors.clone(), &syms);
    for (i, s) in schedules.iter().enumerate() {
        for d in devices() {
            let at = format!(
                "{} schedule {i} on {} with {} workers",
                k.name,
                d.isa(),
                d.workers()
            );
            let reads: Vec<&Tensor> = k
                .operands
                .iter()
                .zip(&tensors)
                .filter(|(o, _)| o.role == Role::Read)
                .map(|(_, t)| t)
                .collect();
            let written = oracle::written(k);
            let mut outs: Vec<Tensor> = written.iter().map(|&o| tensors[o].clone()).collect();
            let got = run_on(d, plan(k, s, &bx), &reads, &mut outs, &syms);
            let Ok(want) = &want else {
                assert!(
                    matches!(got, Err(DeviceError::Step { .. })),
                    "{at}: {got:?}"
                );
                continue;
            };
            got.unwrap_or_else(|e| panic!("{at}: {e}"));
            for (o, t) in written.iter().zip(&outs) {
                let w = &want[*o];
                for j in 0..w.len() {
                    let (x, y) = (w.get_f64(j), t.get_f64(j));
                    let same = x == y || (x.is_nan() && y.is_nan());
                    let near =
                        oracle::is_float(w.dtype()) && (x - y).abs() <= tolerance * (1.0 + x.abs());
                    assert!(
                        same || near,
                        "{at}: element {j} of {} is {y}, not {x}",
                        k.operands[*o].name
                    );
                }
            }
        }
    }
}
