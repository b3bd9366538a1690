//! The first kernel of a product that is split into partial sums and their sum: its step and workspace.
use super::block::BlockBuilder;
use super::schedule::Parts;
use plan::{BufferId, BufferKind, Item, PlanError};

impl BlockBuilder<'_> {
    /// Adds the workspace of `parts` and the step that fills it; gives the buffers of the step that
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
        let name = format!("{}.parts", item.name);
        let room = self.raw_buffer(name, kind, parts.dtype, parts.elements, place)?;
        let [first, second] = parts.args.map(|list| -> Vec<BufferId> {
            let one = |o: Option<u16>| o.map_or(room, |o| buffers[o as usize]);
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
