//! Plans evaluated without a device: every tile program by the reference, every device with memory
//! of its own, steps in any order that their waits allow.
use crate::random::Rng;
use kernel::TileProgram;
use layout::DimBox;
use plan::{Block, BufferId, BufferKind, Plan, PlanSegment, Step, StepWork, Wait};
use reference::{Memory, run_tiles};
use shopfloor::Model;
use tensor::Tensor;

/// The outputs of `plan` (one block) for the inputs `named`, at the top of `dims`; `seed` picks the
/// order of steps and tasks.
///
/// # Errors
/// The plan is not valid, has host steps or more than one block, or an evaluation failed: says what.
pub fn evaluate(
    model: &Model,
    plan: &Plan,
    named: &[(String, Tensor)],
    dims: &DimBox,
    seed: u64,
) -> Result<Vec<Tensor>, String> {
    let verified = plan.clone().verify().map_err(|e| e.to_string())?;
    let [PlanSegment::Block(block)] = plan.segments.as_slice() else {
        return Err("the plan is not one block".into());
    };
    let mut w = World {
        block,
        arenas: (0..plan.devices.len() as u32)
            .map(|p| vec![0xFF; block.arena(p) as usize])
            .collect(),
        others: vec![],
    };
    for b in &block.buffers {
        w.others.push(match b.kind {
            BufferKind::Arena => vec![],
            BufferKind::Weight(id) => {
                let t = model.program().weights.tensor(id);
                t.ok_or("a weight is missing")?.bytes().to_vec()
            }
            BufferKind::Input(n) => {
                let port = &block.inputs[n as usize];
                let t = named.iter().find(|x| x.0 == port.name);
                t.ok_or("an input is missing")?.1.bytes().to_vec()
            }
            _ => vec![0xFF; b.bytes as usize],
        });
    }
    let mut rng = Rng::new(seed);
    w.run(&block.init, verified.init_programs(0), dims, &mut rng)?;
    w.run(&block.steps, verified.step_programs(0), dims, &mut rng)?;
    let at = |name: &str| dims.get(name).map(|r| r.hi);
    block
        .outputs
        .iter()
        .map(|port| {
            let shape: Option<Vec<usize>> = port
                .shape
                .iter()
                .map(|d| usize::try_from(d.eval(&at)?).ok())
                .collect();
            let shape = shape.ok_or("an output has no size")?;
            let bytes = port.dtype.bytes_for(shape.iter().product());
            let mut all = w.read(port.buffer);
            all.truncate(bytes.ok_or("an output has no size")?);
            Tensor::from_bytes(port.dtype, &shape, all).map_err(|e| e.to_string())
        })
        .collect()
}

/// Memory of one request over all devices.
struct World<'a> {
    block: &'a Block,
    arenas: Vec<Vec<u8>>,
    /// Buffers outside arenas.
    others: Vec<Vec<u8>>,
}

impl World<'_> {
    fn read(&self, b: BufferId) -> Vec<u8> {
        let x = &self.block.buffers[b as usize];
        match x.kind {
            BufferKind::Arena => {
                let from = x.offset as usize;
                self.arenas[x.place as usize][from..from + x.bytes as usize].to_vec()
            }
            _ => self.others[b as usize].clone(),
        }
    }

    fn write(&mut self, b: BufferId, bytes: &[u8]) {
        let x = &self.block.buffers[b as usize];
        match x.kind {
            BufferKind::Arena => {
                let from = x.offset as usize;
                self.arenas[x.place as usize][from..from + bytes.len()].copy_from_slice(bytes);
            }
            _ => self.others[b as usize].copy_from_slice(bytes),
        }
    }

    fn step(
        &mut self,
        s: &Step,
        program: &TileProgram,
        dims: &DimBox,
        seed: u64,
    ) -> Result<(), String> {
        let fail = |e: &dyn std::fmt::Display| format!("'{}': {e}", s.name);
        let StepWork::Kernel { args, .. } = &s.work else {
            return Err(fail(&"it is a host step"));
        };
        let mut memory = Memory::new();
        for (i, (o, &b)) in program.kernel().operands.iter().zip(args).enumerate() {
            if let Some(first) = args[..i].iter().position(|x| *x == b) {
                memory.share(i as u16, first as u16);
                continue;
            }
            let bytes = self.read(b);
            let n = bytes.len() * 8 / o.dtype.bits() as usize;
            let t = Tensor::from_bytes(o.dtype, &[n], bytes).map_err(|e| fail(&e))?;
            memory.bind(i as u16, t);
        }
        let at = |name: &str| dims.get(name).map(|r| r.hi);
        run_tiles(program, &at, &mut memory, seed).map_err(|e| fail(&e))?;
        for (i, (o, &b)) in program.kernel().operands.iter().zip(args).enumerate() {
            if o.role == kernel::Role::Write {
                let bytes = memory.get(i as u16).ok_or_else(|| fail(&"no result"))?;
                self.write(b, bytes.bytes());
            }
        }
        Ok(())
    }

    /// All steps, in an order that only waits restrict.
    fn run(
        &mut self,
        list: &[Step],
        programs: &[Option<TileProgram>],
        dims: &DimBox,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let mut done = vec![false; list.len()];
        for _ in 0..list.len() {
            let over = |w: &Wait| match w {
                Wait::Step(s) | Wait::Tiles { step: s, .. } => done[*s as usize],
            };
            let ready: Vec<usize> = (0..list.len())
                .filter(|&i| !done[i] && list[i].waits.iter().all(over))
                .collect();
            if ready.is_empty() {
                return Err("steps wait for each other".into());
            }
            let i = ready[rng.below(ready.len())];
            let program = programs[i]
                .as_ref()
                .ok_or_else(|| format!("'{}' has no tile program", list[i].name))?;
            self.step(&list[i], program, dims, rng.bits())?;
            done[i] = true;
        }
        Ok(())
    }
}
