//! Whether a tile program fits a target's limits for one CTA: threads, shared memory, registers.
use crate::{
    GpuMapping, KernelError, Mapping, Place, Stmt, Target, TargetKind, TileId, TileProgram, verify,
};
use layout::DType;

/// Threads of a warp; registers are handed out by warps.
const WARP: u32 = 32;
/// Registers per thread are handed out by eights.
const EIGHTS: u32 = 8;

impl TileProgram {
    /// Checks that `target` runs code of the user's, where there is some (rule `code`), that it has a form
    /// for what the kernel computes (rule `form`), and that its CTAs
    /// have room for this program: rule `limits` for what the schedule asks
    /// for, and for the tiles alone, in registers per thread and bytes of shared memory. What an emitter
    /// adds (fragments, addresses, exchanged values) it checks itself.
    ///
    /// # Errors
    /// Rule `limits`, with the figure and the limit; rule `form`, with what the target lacks.
    pub fn fits(&self, target: &Target) -> Result<(), KernelError> {
        let (Mapping::Gpu(g), Some(gpu)) = (&self.schedule().mapping, &target.gpu) else {
            return Ok(());
        };
        let most = gpu.limits;
        let b = verify::Blame::of(self.kernel());
        b.need(
            g.code.is_none() || target.kind == TargetKind::Ptx,
            "code",
            || format!("{} does not run PTX", target.name),
        )?;
        if let (None, Some(what)) = (&g.code, target.lacking(self.kernel())) {
            b.need(false, "form", || {
                format!("{} has no form for {what}", target.name)
            })?;
        }
        let parts = self.schedule().gives_parts() || self.schedule().adds_parts();
        let legal = match parts {
            true => &gpu.cluster_parts,
            false => &gpu.clusters,
        };
        let clusters = g.cluster == 1 || legal.contains(&g.cluster);
        b.need(clusters, "cluster", || {
            format!(
                "{} has no clusters of {} CTAs; use 1",
                target.name, g.cluster
            )
        })?;
        let rule = "limits";
        b.need(g.threads <= most.threads, rule, || {
            format!(
                "{} threads in a CTA; {} has {}",
                g.threads, target.name, most.threads
            )
        })?;
        b.need(g.registers <= most.registers, rule, || {
            format!(
                "{} registers per thread; {} has {}",
                g.registers, target.name, most.registers
            )
        })?;
        let each = g.registers.div_ceil(EIGHTS) * EIGHTS;
        let all = each.saturating_mul(g.threads.div_ceil(WARP) * WARP);
        b.need(all <= most.register_file, rule, || {
            format!(
                "{} threads of {each} registers take {all}; a CTA of {} has {}",
                g.threads, target.name, most.register_file
            )
        })?;
        let held = self.held_registers();
        b.need(held <= u64::from(most.registers), rule, || {
            format!(
                "the register tiles take {held} registers of every thread; {} has {}: cut them, or place some in shared memory",
                target.name, most.registers
            )
        })?;
        let shared = self.shared_bytes(target.kind);
        b.need(shared <= most.shared_bytes, rule, || {
            format!(
                "the shared tiles take {shared} bytes of a CTA; {} has {}: cut them, or use fewer stages",
                target.name, most.shared_bytes
            )
        })
    }

    /// Positions of a piece of `t` along each of its axes with the axis; `None` for one without a size.
    fn piece(&self, t: TileId) -> Option<Vec<(u16, u64)>> {
        let (k, s) = (self.kernel(), self.schedule());
        let one = |&a: &u16| {
            let known = k.axes[a as usize].extent.known().map(|e| e.max(1));
            let n = match (s.tile(a), known) {
                (Some(t), Some(e)) => t.min(e),
                (t, e) => t.or(e)?,
            };
            Some((a, u64::try_from(n).ok()?))
        };
        k.tiles[t as usize].axes.iter().map(one).collect()
    }

    /// Bytes of a CTA's shared tiles, in the types they are held in; those without a size count nothing.
    pub fn shared_bytes(&self, kind: TargetKind) -> u64 {
        let tiles = self.kernel().tiles.iter().enumerate();
        let beside = match &self.schedule().mapping {
            Mapping::Gpu(g) => g.fragment.map_or(0, |f| f.copies_beside(g.copiers)),
            Mapping::Cpu(_) => 0,
        };
        let bytes = tiles.map(|(t, tile)| {
            let Some(stages) = self.schedule().place(t as TileId).stages() else {
                return 0;
            };
            // WGSL shares words; numbers of 4 bits are copied as they lie where fragments are made of them.
            let fragments =
                matches!(&self.schedule().mapping, Mapping::Gpu(g) if g.fragment.is_some());
            let least = match kind {
                TargetKind::Wgsl => 32,
                _ if fragments => 4,
                _ => 8,
            };
            let bits = u64::from(tile.dtype.bits().max(least));
            let n = self.piece(t as TileId).unwrap_or_default();
            let n = match n.is_empty() && !tile.axes.is_empty() {
                true => 0,
                false => n.iter().fold(1u64, |p, x| p.saturating_mul(x.1)),
            };
            let loaded = |s: &Stmt| matches!(s, Stmt::Load { dst, .. } if *dst == t as TileId);
            let beside = match self.kernel().body.iter().any(loaded) {
                true => beside,
                false => 0,
            };
            n.saturating_mul(u64::from(stages + beside))
                .saturating_mul(bits)
                .div_ceil(8)
        });
        let kept = crate::cluster::kept_bytes(self.kernel(), self.schedule());
        bytes.fold(kept, u64::saturating_add)
    }

    /// 32-bit registers that the register tiles of one thread take, if all of them were alive at once;
    /// truth values have registers of their own.
    pub fn held_registers(&self) -> u64 {
        let Mapping::Gpu(g) = &self.schedule().mapping else {
            return 0;
        };
        let (k, mut sum) = (self.kernel(), 0u64);
        for (t, tile) in k.tiles.iter().enumerate() {
            let written = k.body.iter().any(|s| s.writes().contains(&(t as TileId)));
            if self.schedule().place(t as TileId).alone() != Place::Register
                || !written
                || tile.dtype == DType::Bool
            {
                continue;
            }
            let Some(piece) = self.piece(t as TileId) else {
                continue;
            };
            sum = sum.saturating_add(each_thread(g, &piece, tile.dtype));
        }
        sum
    }
}

/// Registers that one thread needs for its part of a tile.
fn each_thread(g: &GpuMapping, piece: &[(u16, u64)], d: DType) -> u64 {
    if g.fragment.is_some() {
        // Fragments share a tile out evenly, two halves to a register; what has fewer elements than
        // there are threads is there several times.
        let n = piece.iter().fold(1u64, |p, x| p.saturating_mul(x.1));
        return n
            .saturating_mul(d.bits().into())
            .div_ceil(u64::from((g.computing() / g.deep()).max(1)) * 32);
    }
    let own = piece.iter().fold(1u64, |p, &(a, n)| {
        let s = g.spread(a);
        let together = u64::from(s.count.max(1)) * u64::from(s.each.max(1));
        p.saturating_mul(n.div_ceil(together).saturating_mul(s.each.max(1).into()))
    });
    own.saturating_mul(u64::from(d.bits().div_ceil(32).max(1)))
}
