//! A device as a subject: plans of one step.
use crate::{Failure, Subject};
use device::{Device, DeviceError, Executable, Frame, PackedStore, Request};
#[cfg(target_os = "linux")]
use device::{Guard, GuardedBytes};
use kernel::{Mapping, Role, TargetKind, TileProgram, work};
use layout::DimBox;
use machine::{Cost, Work};
use plan::{Block, Buffer, BufferKind, DeviceRef, Goal, Plan, PlanSegment, Port, Step, StepWork};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

/// Runs programs on a device.
pub struct OnDevice<'a>(pub &'a dyn Device);

/// A plan whose only step is `p`. The hashes in it are zeros: nothing that runs the plan reads them.
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
    let mut schedule = p.schedule().clone();
    if let Mapping::Gpu(g) = &mut schedule.mapping {
        // All that it reads is given with the request.
        g.constants.clear();
    }
    let step = Step {
        name: k.name.clone(),
        work: StepWork::Kernel {
            kernel: k.clone().into(),
            schedule: schedule.into(),
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
        joined: false,
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
            machine_hash: "0".repeat(64),
            target: device.target().name.clone(),
            workers: device.workers() as u32,
        }],
        dims: dims.clone(),
        goal: Goal::Latency,
        launch: None,
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
        let mut step = OneStep::new(self.0, program, symbols)?;
        let (mut inputs, mut outputs, mut types) = (vec![], vec![], vec![]);
        for (o, b) in program.kernel().operands.iter().zip(buffers) {
            match o.role {
                Role::Read => inputs.push(b.bytes()),
                Role::Write => {
                    types.push((o.dtype, b.len()));
                    outputs.push(b.bytes().to_vec());
                }
            }
        }
        match self.kind() {
            TargetKind::Cpu => step.run_twice(&inputs, &mut outputs)?,
            _ => step.run(&inputs, &mut writable(&mut outputs))?,
        }
        types
            .into_iter()
            .zip(outputs)
            .map(|((d, n), bytes)| Tensor::from_bytes(d, &[n], bytes).map_err(|e| broken(&e)))
            .collect()
    }
}

fn writable(outputs: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    outputs.iter_mut().map(|o| &mut o[..]).collect()
}

fn broken(e: &dyn std::fmt::Display) -> Failure {
    Failure::Broken(e.to_string())
}

/// A device on which every operand lies in memory of its own that ends, or begins, where memory may not be touched:
/// what reads or writes beside it ends the process.
#[cfg(target_os = "linux")]
pub struct Guarded<'a>(pub &'a dyn Device, pub Guard);

#[cfg(target_os = "linux")]
impl Subject for Guarded<'_> {
    fn name(&self) -> String {
        let side = match self.1 {
            Guard::Before => "before",
            Guard::Behind => "behind",
        };
        format!("{} guarded {side} its buffers", self.0.target().name)
    }

    fn kind(&self) -> TargetKind {
        self.0.target().kind
    }

    /// Runs it twice: a device may remember what the first run came down to.
    fn run(
        &self,
        program: &TileProgram,
        symbols: &[(&str, i64)],
        buffers: &[Tensor],
    ) -> Result<Vec<Tensor>, Failure> {
        let mut step = OneStep::new(self.0, program, symbols)?;
        let operands = &program.kernel().operands;
        let (mut inputs, mut outputs) = (vec![], vec![]);
        for (o, b) in operands.iter().zip(buffers) {
            let mut own = GuardedBytes::new(b.bytes().len(), self.1).map_err(|e| broken(&e))?;
            own.copy_from_slice(b.bytes());
            match o.role {
                Role::Read => inputs.push(own),
                Role::Write => outputs.push((own, b)),
            }
        }
        let inputs: Vec<&[u8]> = inputs.iter().map(|b| &b[..]).collect();
        let mut first: Option<Vec<Vec<u8>>> = None;
        for _ in 0..2 {
            for (own, b) in &mut outputs {
                own.copy_from_slice(b.bytes());
            }
            let mut out: Vec<&mut [u8]> = outputs.iter_mut().map(|o| &mut o.0[..]).collect();
            step.run(&inputs, &mut out)?;
            let got = outputs.iter().map(|o| o.0.to_vec()).collect();
            if first.as_ref().is_some_and(|f| *f != got) {
                return Err(broken(&"a second run gave other bits"));
            }
            first = Some(got);
        }
        outputs
            .iter()
            .map(|(own, b)| {
                let n = [b.len()];
                Tensor::from_bytes(b.dtype(), &n, own.to_vec()).map_err(|e| broken(&e))
            })
            .collect()
    }
}

/// A program compiled as a plan's only step, with memory for requests.
pub struct OneStep {
    executable: Arc<dyn Executable>,
    frame: Frame,
    symbols: Vec<i64>,
}

impl OneStep {
    /// Compiles `program` for `device` at the values of its symbols.
    ///
    /// # Errors
    /// The plan's verifier or the device refuses it, or it fails.
    pub fn new(
        device: &dyn Device,
        program: &TileProgram,
        symbols: &[(&str, i64)],
    ) -> Result<OneStep, Failure> {
        OneStep::of(device, OneStep::plan(device, program, symbols)?, symbols)
    }

    /// The plan of `program` alone, for sizes around the values of its symbols.
    ///
    /// # Errors
    /// An operand has no size.
    pub fn plan(
        device: &dyn Device,
        program: &TileProgram,
        symbols: &[(&str, i64)],
    ) -> Result<Plan, Failure> {
        let mut dims = DimBox::new();
        for (s, v) in symbols {
            // Plans for a CPU are made for a range, as sessions make them.
            match device.target().kind {
                TargetKind::Cpu => dims.insert(*s, 0, *v + 3),
                _ => dims.insert(*s, *v, *v),
            };
        }
        plan(program, &dims, device).ok_or_else(|| broken(&"a size is missing"))
    }

    /// Compiles a plan of one step for `device`, to run at the values of its symbols.
    ///
    /// # Errors
    /// The plan's verifier or the device refuses it, or it fails.
    pub fn of(
        device: &dyn Device,
        plan: Plan,
        symbols: &[(&str, i64)],
    ) -> Result<OneStep, Failure> {
        // What the plan's verifier does not let pass is no device's fault.
        let plan = plan.verify().map_err(|e| Failure::Refused(e.to_string()))?;
        let values: Vec<i64> = plan
            .plan()
            .blocks()
            .flat_map(|b| &b.symbols)
            .map(|s| symbols.iter().find(|x| x.0 == &**s).map_or(1, |x| x.1))
            .collect();
        let weights = Arc::new(WeightStore::default());
        let made = device.compile(Arc::new(plan), 0, &weights, &PackedStore::new());
        let executable = made.map_err(|e| match e {
            DeviceError::Unsupported { .. } => Failure::Refused(e.to_string()),
            e => broken(&e),
        })?;
        let frame = executable.new_frame().map_err(|e| broken(&e))?;
        Ok(OneStep {
            executable,
            frame,
            symbols: values,
        })
    }

    /// Runs it twice on the same operands, as [`OneStep::run`]: a CPU remembers what the first run came down to.
    ///
    /// # Errors
    /// The device fails, or the second run gives other bits.
    pub fn run_twice(&mut self, inputs: &[&[u8]], outputs: &mut [Vec<u8>]) -> Result<(), Failure> {
        let mut second = outputs.to_vec();
        self.run(inputs, &mut writable(outputs))?;
        self.run(inputs, &mut writable(&mut second))?;
        match second == outputs {
            true => Ok(()),
            false => Err(broken(&"a second run gave other bits")),
        }
    }

    /// Runs it on the operands that it reads and those that it writes, each in order.
    ///
    /// # Errors
    /// The device fails.
    pub fn run<'a>(
        &'a mut self,
        inputs: &'a [&'a [u8]],
        outputs: &'a mut [&'a mut [u8]],
    ) -> Result<(), Failure> {
        let request = Request {
            symbols: &self.symbols,
            inputs,
            outputs,
            states: &mut [],
            timeline: None,
            stop_after: None,
            permit: Default::default(),
        };
        let ran = self.executable.run(&mut self.frame, request);
        ran.map_err(|e| broken(&e))
    }
}
