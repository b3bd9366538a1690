//! Kernels that the model's user wrote: taken as they are, on dense tensors.
use super::{Lowering, Result};
use graph::{KernelSpec, NodeId};
use kernel::{Declared, Role};
use plan::Why;
use std::sync::Arc;

impl Lowering<'_> {
    pub(crate) fn custom(&mut self, n: NodeId, spec: &KernelSpec) -> Result<()> {
        let graph = self.graph;
        let sound = |d: &Declared| {
            d.kernel.verify()?;
            d.given.verify(&d.kernel)
        };
        let read = Declared::parse(&spec.text).and_then(|d| sound(&d).map(|()| d));
        let Declared {
            mut kernel, given, ..
        } = match read {
            Ok(d) => d,
            Err(e) => return self.fail(n, e.to_string()),
        };
        let mut inputs = Vec::new();
        for &v in &graph.node(n).inputs {
            inputs.push(self.dense(v)?);
        }
        let mut inputs = inputs.into_iter();
        let mut outputs = self.made(n).into_iter();
        let operands = kernel.operands.iter().map(|o| match o.role {
            Role::Read => inputs.next(),
            Role::Write => outputs.next(),
        });
        let Some(args) = operands.collect::<Option<Vec<_>>>() else {
            return self.fail(n, "it has fewer tensors than its kernel has operands");
        };
        let nodes = self.origins(&[n]);
        self.program.whys.push(Why {
            pass: "kernel".into(),
            subject: nodes.join(", "),
            choice: format!("kernel '{}' as it was written", kernel.name),
            alternatives: vec![],
            reason: format!("it is bound to {} and fused with nothing", spec.operator),
        });
        kernel.name = nodes.join(" ");
        let given = (!given.is_empty()).then(|| Arc::new(given));
        self.emit_as(kernel, args, nodes, given);
        Ok(())
    }
}
