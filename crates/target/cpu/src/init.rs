//! The init segment: constants computed once, kept under a key that names how they came about.
use crate::digests::{Digests, unwritten};
use crate::executable::{PersistentBuffer, aligned, block_of, run_once};
use crate::pool::Pool;
use crate::steps::CompiledSteps;
use device::{AlignedBytes, DeviceError, PackedBytes, PackedKey, PackedStore, Shelf};
use plan::{Block, Bound, BufferKind, Params, Step, StepWork, VerifiedPlan};
use tensor::{Weight, WeightStore};

/// Weights that init reads before their pages are let go of, in bytes: packing never holds much
/// more than the packed form and so much of the original.
const AT_ONCE: usize = 16 << 20;

/// What init works with.
pub(crate) struct Init<'a> {
    pub pool: &'a Pool,
    pub plan: &'a VerifiedPlan,
    pub block: usize,
    pub kernels: &'static crate::ukr::Kernels,
    pub weights: &'a WeightStore,
    pub packed: &'a PackedStore,
    pub shelf: &'a dyn Shelf,
    pub digests: &'a Digests,
}

impl Init<'_> {
    /// Memory of the buffers that a block's steps read: weights where they lie, results of init made or found.
    /// What only init itself reads is not kept.
    pub(crate) fn persistent_buffers(&self) -> Result<Vec<PersistentBuffer>, DeviceError> {
        let b = block_of(self.plan.plan(), self.block)?;
        let mut keys: Vec<Option<PackedKey>> = Vec::new();
        for i in 0..b.buffers.len() {
            keys.push(self.weight(b, i)?.map(|w| weight_key(w, self.shelf)));
        }
        let mut kept: Vec<PersistentBuffer> = keys.iter().map(|_| PersistentBuffer::No).collect();
        // Keys of init buffers: over everything that writes them.
        for s in &b.init {
            let key = step_key(self.digests, s, &keys, b)?;
            for (n, &w) in written(s).iter().enumerate() {
                let mut h = blake3::Hasher::new();
                if let Some(k) = keys[w as usize] {
                    h.update(&k);
                }
                h.update(&key);
                h.update(&(n as u64).to_le_bytes());
                h.update(&b.buffers[w as usize].bytes.to_le_bytes());
                keys[w as usize] = Some(*h.finalize().as_bytes());
            }
        }
        let is_init = |i: usize| b.buffers[i].kind == BufferKind::Init;
        // What requests read, and for what of it is not found, what makes it.
        let mut wanted = vec![false; b.buffers.len()];
        let mut touched = vec![false; b.buffers.len()];
        for r in b.steps.iter().flat_map(read) {
            wanted[r as usize] = is_init(r as usize);
            touched[r as usize] = true;
        }
        let (asked, served) = (wanted.clone(), touched.clone());
        let mut runs = vec![false; b.init.len()];
        for (i, k) in kept.iter_mut().enumerate().filter(|(i, _)| wanted[*i]) {
            if let Some(hit) = self.find(keys[i], &b.buffers[i].name, b.buffers[i].bytes)? {
                *k = hit;
            }
        }
        loop {
            let mut more = false;
            for (s, run) in b.init.iter().zip(&mut runs).rev() {
                let missing = |&w: &u32| {
                    wanted[w as usize] && matches!(kept[w as usize], PersistentBuffer::No)
                };
                if *run || !written(s).iter().any(missing) {
                    continue;
                }
                (*run, more) = (true, true);
                for r in read(s) {
                    wanted[r as usize] |= is_init(r as usize);
                    touched[r as usize] = true;
                }
                // What it writes is made as a whole: nothing that somebody holds is written to.
                for w in written(s) {
                    wanted[w as usize] = true;
                    kept[w as usize] = PersistentBuffer::No;
                }
            }
            if !more {
                break;
            }
        }
        self.lay(b, &keys, &touched, &mut kept)?;
        let mut fresh: Vec<Option<AlignedBytes>> = Vec::new();
        let mut bufs = Vec::new();
        for (i, buf) in b.buffers.iter().enumerate() {
            let own = if wanted[i] && matches!(kept[i], PersistentBuffer::No) {
                Some(AlignedBytes::new(buf.bytes as usize, &buf.name)?)
            } else {
                None
            };
            bufs.push(match (&kept[i], &own) {
                (_, Some(f)) => f.as_ptr(),
                (PersistentBuffer::Bytes(k, _), _) => k.as_ptr().cast_mut(),
                (PersistentBuffer::Weight(w), _) => w.cast_mut(),
                _ => std::ptr::null_mut(),
            });
            fresh.push(own);
        }
        self.run(b, &runs, &bufs)?;
        for (i, own) in fresh.into_iter().enumerate().filter(|(i, _)| asked[*i]) {
            let Some(bytes) = own else { continue };
            let shared = match keys[i] {
                Some(k) => self.packed.get_or_make(k, || Ok(PackedBytes::Own(bytes)))?,
                None => std::sync::Arc::new(PackedBytes::Own(bytes)),
            };
            kept[i] = PersistentBuffer::Bytes(shared, keys[i]);
        }
        // Copies of what only init read go.
        for (k, _) in kept.iter_mut().zip(&served).filter(|(_, s)| !**s) {
            *k = PersistentBuffer::No;
        }
        Ok(kept)
    }

    /// The block's constants by buffer.
    fn weight(&self, b: &Block, buffer: usize) -> Result<Option<&Weight>, DeviceError> {
        let buf = &b.buffers[buffer];
        let BufferKind::Weight(id) = buf.kind else {
            return Ok(None);
        };
        let w = self
            .weights
            .get(id)
            .ok_or_else(|| DeviceError::Unsupported {
                device: "cpu".into(),
                step: buf.name.clone(),
                why: format!("the model has no constant {id}; the plan was made for another model"),
            })?;
        if (w.bytes.len() as u64) < buf.bytes {
            return Err(DeviceError::Port {
                port: buf.name.clone(),
                want: buf.bytes,
                got: w.bytes.len() as u64,
            });
        }
        Ok(Some(w))
    }

    /// Those of the constants that `read` marks, where they lie.
    fn lay(
        &self,
        b: &Block,
        keys: &[Option<PackedKey>],
        read: &[bool],
        kept: &mut [PersistentBuffer],
    ) -> Result<(), DeviceError> {
        for i in (0..kept.len()).filter(|&i| read[i]) {
            let (Some(w), Some(key)) = (self.weight(b, i)?, keys[i]) else {
                continue;
            };
            kept[i] = if aligned(w.bytes.as_ptr(), w.dtype) {
                PersistentBuffer::Weight(w.bytes.as_ptr())
            } else {
                // Typed loops need elements at their alignment; files promise none.
                let copied = self.packed.get_or_make(key, || {
                    let mut copy = AlignedBytes::new(w.bytes.len(), &w.name)?;
                    copy.copy_from_slice(&w.bytes);
                    w.bytes.release();
                    Ok(PackedBytes::Own(copy))
                })?;
                PersistentBuffer::Bytes(copied, None)
            };
        }
        Ok(())
    }

    /// A result that somebody holds or an earlier process left.
    fn find(
        &self,
        key: Option<PackedKey>,
        name: &str,
        bytes: u64,
    ) -> Result<Option<PersistentBuffer>, DeviceError> {
        let Some(key) = key else { return Ok(None) };
        if let Some(hit) = self.packed.get(&key) {
            return Ok(Some(PersistentBuffer::Bytes(hit, Some(key))));
        }
        let Some(left) = self.shelf.get(&key, bytes as usize) else {
            return Ok(None);
        };
        if left.len() as u64 != bytes
            || !(left.as_ptr() as usize).is_multiple_of(AlignedBytes::ALIGN)
        {
            return Err(DeviceError::Port {
                port: name.into(),
                want: bytes,
                got: left.len() as u64,
            });
        }
        let shared = self
            .packed
            .get_or_make(key, || Ok(PackedBytes::Mapped(left)))?;
        Ok(Some(PersistentBuffer::Bytes(shared, Some(key))))
    }

    /// Runs the init steps that `runs` marks, some weights at a time.
    fn run(&self, b: &Block, runs: &[bool], bufs: &[*mut u8]) -> Result<(), DeviceError> {
        if !runs.contains(&true) {
            return Ok(());
        }
        let dims = &self.plan.plan().dims;
        let steps = CompiledSteps::compile(
            &b.init,
            self.plan.init_programs(self.block),
            dims,
            self.kernels,
            Params::new(),
        )?;
        let mut bound = Bound::new(&steps.params, &b.symbols, dims)?;
        let top = b.largest_sizes(dims);
        let p = bound.at(&top)?;
        let mut all = vec![0; b.init.len()];
        steps.tasks(p, &mut all)?;
        // Weights that nobody reads after their last step here.
        let mut last: Vec<Option<usize>> = vec![None; b.buffers.len()];
        for (i, s) in b.init.iter().enumerate().filter(|(i, _)| runs[*i]) {
            for r in read(s) {
                last[r as usize] = Some(i);
            }
        }
        for r in b.steps.iter().flat_map(read) {
            last[r as usize] = None;
        }
        let weight = |r: u32| match b.buffers[r as usize].kind {
            BufferKind::Weight(id) => self.weights.get(id),
            _ => None,
        };
        let mut first = 0;
        while first < b.init.len() {
            let (mut end, mut bytes) = (first, 0usize);
            while end < b.init.len() && (end == first || bytes < AT_ONCE) {
                if runs[end] {
                    let read = read(&b.init[end]).into_iter().filter_map(weight);
                    bytes += read.map(|w| w.bytes.len()).sum::<usize>();
                }
                end += 1;
            }
            let group = |i: &usize| (first..end).contains(i) && runs[*i];
            let tasks: Vec<u32> = (0..all.len())
                .map(|i| if group(&i) { all[i] } else { 0 })
                .collect();
            run_once(self.pool, &steps, p, bufs, &tasks)?;
            for (r, l) in last.iter().enumerate() {
                if l.is_some_and(|l| group(&l))
                    && let Some(w) = weight(r as u32)
                {
                    w.bytes.release();
                }
            }
            first = end;
        }
        Ok(())
    }
}

/// Buffers that a step reads.
fn read(s: &Step) -> Vec<u32> {
    match &s.work {
        StepWork::Kernel { kernel, args, .. } => {
            let reads = kernel
                .operands
                .iter()
                .zip(args)
                .filter(|(o, _)| o.role == kernel::Role::Read);
            reads.map(|(_, &a)| a).collect()
        }
        StepWork::Host { inputs, .. } => inputs.iter().flatten().map(|i| i.buffer).collect(),
    }
}

/// Buffers that a step writes, in order.
fn written(s: &Step) -> Vec<u32> {
    match &s.work {
        StepWork::Kernel { kernel, args, .. } => {
            let writes = kernel
                .operands
                .iter()
                .zip(args)
                .filter(|(o, _)| o.role == kernel::Role::Write);
            writes.map(|(_, &a)| a).collect()
        }
        StepWork::Host { outputs, .. } => outputs.iter().map(|o| o.buffer).collect(),
    }
}

fn step_key(
    digests: &Digests,
    s: &Step,
    keys: &[Option<PackedKey>],
    b: &Block,
) -> Result<PackedKey, DeviceError> {
    let mut h = blake3::Hasher::new();
    let source = |h: &mut blake3::Hasher, buffer: u32| {
        h.update(&keys[buffer as usize].unwrap_or([0; 32]));
        h.update(&b.buffers[buffer as usize].bytes.to_le_bytes());
    };
    match &s.work {
        StepWork::Kernel {
            kernel,
            schedule,
            args,
        } => {
            h.update(&digests.of(kernel, schedule, &s.name)?);
            for (o, &a) in kernel.operands.iter().zip(args) {
                if o.role == kernel::Role::Read {
                    source(&mut h, a);
                }
            }
        }
        StepWork::Host {
            op,
            inputs,
            outputs,
        } => {
            let bytes = postcard::to_allocvec(&(op, inputs, outputs));
            h.update(&bytes.map_err(|e| unwritten(&s.name, &e))?);
            inputs
                .iter()
                .flatten()
                .for_each(|a| source(&mut h, a.buffer));
        }
    }
    Ok(*h.finalize().as_bytes())
}

/// Identity of a constant: where it lies in which file, or, where that says nothing, its content.
/// Two sessions that map the same file share what is made of it either way.
fn weight_key(w: &Weight, shelf: &dyn Shelf) -> PackedKey {
    let mut h = blake3::Hasher::new();
    h.update(w.dtype.name().as_bytes());
    for d in &w.shape {
        h.update(&(*d as u64).to_le_bytes());
    }
    match w.bytes.identity() {
        Some((file, range)) => {
            match shelf.contents(&file) {
                Some(digest) => h.update(b"digest").update(&digest),
                None => h.update(b"file").update(&file),
            };
            h.update(&(range.start as u64).to_le_bytes());
        }
        None => {
            h.update(b"content");
            h.update(&w.bytes);
        }
    }
    h.update(&(w.bytes.len() as u64).to_le_bytes());
    *h.finalize().as_bytes()
}
