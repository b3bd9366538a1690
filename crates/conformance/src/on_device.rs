//! A device as a subject: plans of one step.
use crate::{Failure, Subject};
use device::{Device, DeviceError, PackedStore, Request};
use kernel::{Role, TargetKind, TileProgram, work};
use layout::DimBox;
use machine::{Cost, Work};
use plan::{Block, Buffer, BufferKind, DeviceRef, Goal, Plan, PlanSegment, Port, Step, StepWork};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

/// Runs programs on a device.
pub struct OnDevice<'a>(pub &'a dyn Device);

fn plan(p: &TileProgram, dims: &DimBox, device: &dyn Device) -> Option<Plan> {
    let k = p.kernel();
    let (mut buffers, mut inputs, mut outputs) = (vec![], vec![], vec![]);
    for (i, o) in k.operands.iter().enumerate() {
        let top = usize::try_from(dims.at_top(&o.elements)?.max(0)).ok()?;
        let (list, kind) = match o.role {
            Role::Read => (&mut inputs, BufferKind::Input(0)),
            Role::Write => (&mut outputs, BufferKind::Output(0)),
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
            bytes: o.dtype.bytes_for(top)? as u64,
            align: 64,
            offset: 0,
        });
    }
    let scratch = work::scratch_bytes(p, dims)?;
    let step = Step {
        name: k.name.clone(),
        work: StepWork::Kernel {
            kernel: k.clone().into(),
            schedule: p.schedule().clone().into(),
            args: (0..k.operands.len() as u32).collect(),
        },
        device: 0,
        tasks: work::tasks(k, p.schedule()),
        waits: vec![],
        scratch,
        nodes: vec![],
        cost_work: Work::default(),
        predicted: Cost::zero(),
        taken: false,
    };
    let symbols = dims.iter().map(|(s, _)| s.clone()).collect();
    let block = Block {
        symbols,
        constraints: vec![],
        buffers,
        inputs,
        outputs,
        states: vec![],
        init: vec![],
        steps: vec![step],
        arena_bytes: 0,
        far_arenas: vec![],
        scratch_bytes: scratch,
        predicted: Cost::zero(),
    };
    Some(Plan {
        version: Plan::VERSION,
        model: k.name.clone(),
        program_hash: "0".repeat(64),
        devices: vec![DeviceRef {
            machine: device.machine().name.clone(),
            machine_hash: device.machine().hash_hex(),
            target: device.target().name.clone(),
            workers: device.workers() as u32,
        }],
        dims: dims.clone(),
        goal: Goal::Latency,
        segments: vec![PlanSegment::Block(Box::new(block))],
        predicted: Cost::zero(),
        whys: vec![],
    })
}

impl Subject for OnDevice<'_> {
    fn name(&self) -> String {
        self.0.name().into()
    }

    fn kind(&self) -> TargetKind {
        self.0.target().kind
    }

    fn run(
        &self,
        program: &TileProgram,
        symbols: &[(&str, i64)],
        buffers: &[Tensor],
    ) -> Result<Vec<Tensor>, Failure> {
        let broken = |e: &dyn std::fmt::Display| Failure::Broken(e.to_string());
        let mut dims = DimBox::new();
        for (s, v) in symbols {
            dims.insert(*s, *v, *v);
        }
        let plan = plan(program, &dims, self.0).ok_or_else(|| broken(&"a size is missing"))?;
        // What the plan's verifier does not let pass is no device's fault.
        let plan = plan.verify().map_err(|e| Failure::Refused(e.to_string()))?;
        let values: Vec<i64> = plan
            .plan()
            .blocks()
            .flat_map(|b| &b.symbols)
            .map(|s| symbols.iter().find(|x| x.0 == &**s).map_or(1, |x| x.1))
            .collect();
        let weights = Arc::new(WeightStore::default());
        let made = self
            .0
            .compile(Arc::new(plan), 0, &weights, &PackedStore::new());
        let e = made.map_err(|e| match e {
            DeviceError::Unsupported { .. } => Failure::Refused(e.to_string()),
            e => broken(&e),
        })?;
        let mut frame = e.new_frame().map_err(|e| broken(&e))?;
        let operands = &program.kernel().operands;
        let (mut inputs, mut outputs) = (vec![], vec![]);
        for (o, b) in operands.iter().zip(buffers) {
            match o.role {
                Role::Read => inputs.push(b.bytes()),
                Role::Write => outputs.push((o.dtype, b.len(), b.bytes().to_vec())),
            }
        }
        let mut out: Vec<&mut [u8]> = outputs.iter_mut().map(|o| &mut o.2[..]).collect();
        let request = Request {
            symbols: &values,
            inputs: &inputs,
            outputs: &mut out,
            states: &mut [],
            timeline: None,
            stop_after: None,
            permit: Default::default(),
        };
        e.run(&mut frame, request).map_err(|e| broken(&e))?;
        outputs
            .into_iter()
            .map(|(d, n, bytes)| Tensor::from_bytes(d, &[n], bytes).map_err(|e| broken(&e)))
            .collect()
    }
}
