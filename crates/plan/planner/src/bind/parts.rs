//! The first kernel of a sum that is split into partial sums and their sum: its step and workspaces.
use super::block::BlockBuilder;
use super::schedule::{Arg, Parts};
use plan::{BufferId, BufferKind, Item, PlanError};

impl BlockBuilder<'_> {
    /// Adds the workspaces of `parts` and the step that fills it; gives the buffers of the step that
    /// follows. `buffers` are those of the whole kernel.
    pub(super) fn in_parts(
        &mut self,
        init: bool,
        item: &Item,
        parts: Parts,
        buffers: &[BufferId],
        place: u32,
    ) -> Result<Vec<BufferId>, PlanError> {
        let kind = match init {
            true => BufferKind::Init,
            false => BufferKind::Arena,
        };
        let mut between = vec![];
        for (n, &(elements, dtype)) in parts.between.iter().enumerate() {
            let name = match n {
                0 => format!("{}.parts", item.name),
                n => format!("{}.parts.{n}", item.name),
            };
            between.push(self.raw_buffer(name, kind, dtype, elements, place)?);
        }
        let [first, second] = parts.args.map(|list| -> Vec<BufferId> {
            let one = |a: Arg| match a {
                Arg::Whole(o) => buffers[o as usize],
                Arg::Between(n) => between[n],
            };
            list.into_iter().map(one).collect()
        });
        let half = parts.first;
        let name = half.kernel.name.clone();
        self.step(
            init,
            &name,
            (half.kernel, half.schedule),
            first,
            item.nodes.clone(),
            (half.work, half.cost),
            place,
        )?;
        if !init {
            self.sums.push(self.block.steps.len());
        }
        Ok(second)
    }
}
