//! The steps of a block, compiled.

use crate::exec::{CKernel, run as tasks};
use crate::host::CHost;
use crate::trace::LEAST_S;
use device::{AlignedBytes, DeviceError};
use layout::{Dim, DimBox};
use plan::{Params, Step, TileMap, TileNeeds, Wait};
use workers::flow::StepSpec;

/// Tasks of one step at most: counters are 32 bits and overshoot by a chunk per worker.
const MAX_TASKS: u32 = 1 << 30;

/// Tasks that one ticket takes at most.
const MAX_CHUNK: i64 = 1 << 16;

/// A compiled step's work.
pub(crate) enum CWork {
    Kernel(Box<CKernel>),
    Host(Box<CHost>),
}

/// Steps in order, compiled.
pub(crate) struct CompiledSteps {
    pub names: Vec<String>,
    pub nodes: Vec<String>,
    pub work: Vec<CWork>,
    pub specs: Vec<StepSpec>,
    /// The maps of every step's waits for tiles.
    maps: Vec<Vec<TileMap>>,
    pub params: Params,
    /// Whether tickets of a step take long enough to be recorded always.
    pub timed: Vec<bool>,
    /// Scratch bytes and tiles per worker, bytes of zeros.
    pub scratch: usize,
    pub views: usize,
    pub zeros: AlignedBytes,
}

impl CompiledSteps {
    pub(crate) fn compile(
        steps: &[Step],
        programs: &[Option<kernel::TileProgram>],
        dims: &DimBox,
        kernels: &'static crate::ukr::Kernels,
        mut params: Params,
    ) -> Result<CompiledSteps, DeviceError> {
        let (mut work, mut specs, mut maps) = (Vec::new(), Vec::new(), Vec::new());
        let (mut scratch, mut views, mut zeros) = (0, 0, 0);
        for (s, program) in steps.iter().zip(programs) {
            plan::pause();
            let fail = |why: String| DeviceError::Unsupported {
                device: "cpu".into(),
                step: s.name.clone(),
                why,
            };
            let mut chunk = 1;
            match (&s.work, program) {
                (plan::StepWork::Kernel { args, schedule, .. }, Some(p)) => {
                    let k = crate::exec::compile::compile(p, args, &mut params, dims, kernels)
                        .map_err(fail)?;
                    chunk = schedule.chunk.clamp(1, MAX_CHUNK);
                    scratch = scratch.max(k.scratch);
                    views = views.max(k.tiles.len());
                    zeros = zeros.max(k.zeros);
                    work.push(CWork::Kernel(Box::new(k)));
                }
                (
                    plan::StepWork::Host {
                        op,
                        inputs,
                        outputs,
                    },
                    _,
                ) => {
                    work.push(CWork::Host(Box::new(CHost::new(
                        op,
                        inputs,
                        outputs,
                        &mut params,
                    ))));
                }
                _ => return Err(fail("it has no tile program; verify the plan".into())),
            }
            let mut spec = StepSpec {
                chunk: chunk as u32,
                waits: vec![],
                tiles: vec![],
                awaited: false,
            };
            let mut of = vec![];
            for w in &s.waits {
                match w {
                    Wait::Step(s) => spec.waits.push(*s),
                    Wait::Tiles { step, map } => {
                        map.dims().into_iter().for_each(|d| {
                            params.intern(d);
                        });
                        spec.tiles.push(*step);
                        of.push(map.clone());
                    }
                }
            }
            specs.push(spec);
            maps.push(of);
        }
        StepSpec::await_all(&mut specs);
        let timed = steps.iter().zip(&specs).map(|(s, spec)| {
            let tasks = s.tasks.known().unwrap_or(i64::MAX).max(1) as f64;
            s.predicted.time_s * f64::from(spec.chunk) / tasks >= LEAST_S
        });
        Ok(CompiledSteps {
            timed: timed.collect(),
            names: steps.iter().map(|s| s.name.clone()).collect(),
            nodes: steps.iter().map(|s| s.nodes.join(", ")).collect(),
            work,
            specs,
            maps,
            params,
            scratch,
            views,
            zeros: AlignedBytes::new(zeros, "zeros")?,
        })
    }

    /// Tasks of every step under the parameters `p`.
    pub(crate) fn tasks(&self, p: &[i64], out: &mut [u32]) -> Result<(), DeviceError> {
        for (i, (w, o)) in self.work.iter().zip(out).enumerate() {
            *o = match w {
                CWork::Kernel(k) => tasks::tasks(k, p).filter(|&n| n <= MAX_TASKS),
                CWork::Host(_) => Some(1),
            }
            .ok_or_else(|| {
                self.error(
                    i,
                    format!("it has more than {MAX_TASKS} tasks; use larger tiles"),
                )
            })?;
        }
        Ok(())
    }

    /// The waits for tiles of every step under the parameters `p`; `None` where all tasks are needed.
    pub(crate) fn needs(&self, p: &[i64], out: &mut [Vec<Option<TileNeeds>>]) {
        let value = |d: &Dim| p.get(self.params.find(d)? as usize).copied();
        for (maps, out) in self.maps.iter().zip(out) {
            out.clear();
            out.extend(maps.iter().map(|m| m.at(&value)));
        }
    }

    pub(crate) fn error(&self, step: usize, why: String) -> DeviceError {
        DeviceError::Step {
            step: self.names[step].clone(),
            nodes: self.nodes[step].clone(),
            why,
        }
    }
}
