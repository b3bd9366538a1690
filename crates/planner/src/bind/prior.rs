//! What an earlier plan of the same program packed: a new box of dims does not pack it once more in
//! another way unless that pays.
use kernel::Kernel;
use plan::{Plan, StepWork};
use std::collections::BTreeMap;

/// Packing kernels by the name of what they pack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prior(BTreeMap<String, Vec<Kernel>>);

impl Prior {
    /// What the init segments of `plan` pack.
    pub fn of(plan: &Plan) -> Prior {
        let mut out = Prior::default();
        for b in plan.blocks() {
            for s in &b.init {
                let StepWork::Kernel { kernel, args, .. } = &s.work else {
                    continue;
                };
                let source = args.first().and_then(|&a| b.buffers.get(a as usize));
                let Some(source) = source.filter(|_| kernel.name.starts_with("pack ")) else {
                    continue;
                };
                let list = out.0.entry(source.name.clone()).or_default();
                list.push(anonymous(kernel));
            }
        }
        out
    }

    /// The kernels that packed the value called `name`.
    pub fn packings(&self, name: &str) -> &[Kernel] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}

/// A packing kernel before it got its weight's name.
fn anonymous(k: &Kernel) -> Kernel {
    Kernel {
        name: "pack".into(),
        ..k.clone()
    }
}
