//! What follows a product, done to its sums on their way to memory.
use crate::exec::calls::Sources;
use crate::exec::{CContract, CPost, Ctx, View};
use crate::ukr::Post;

impl CPost {
    /// Where the result goes, to `dst`, and what is done on the way; `None` where tiles do not lie so.
    pub(super) fn resolve(
        &self,
        ctx: &Ctx,
        c: &CContract,
        dst: &mut View,
    ) -> Option<(Post, Sources)> {
        ctx.lay_out(self.dst, dst);
        let long = |a: &usize| ctx.len[*a] > 1;
        let lane = c.lane?;
        let mut p = Post {
            lo: self.lo,
            hi: self.hi,
            ..Post::NONE
        };
        let mut sources = Sources::NONE;
        if let Some(t) = self.bias {
            let v = &ctx.views[t];
            if v.block.is_some() || ctx.len[lane] > 1 && v.st[lane] != 1 {
                return None;
            }
            p.bias = v.ptr.cast();
            sources.bias = v.buffer;
        }
        if let Some(t) = self.add {
            let v = &ctx.views[t];
            let axes = &ctx.kernel.tiles[self.dst].axes;
            let alike = axes
                .iter()
                .filter(|a| long(a))
                .all(|&a| v.st[a] == dst.st[a]);
            if v.block.is_some() || !alike {
                return None;
            }
            p.added = true;
            sources.added = v.buffer;
            p.from = (v.ptr as isize).wrapping_sub(dst.ptr as isize);
            // Sums are stored before anything is added: what is added must lie elsewhere.
            if p.from == 0 {
                return None;
            }
        }
        Some((p, sources))
    }
}
