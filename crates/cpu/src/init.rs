//! The init segment: constants computed once, kept under a key that names how they came about.
use crate::executable::{Kept, Steps, aligned, block_of, run_once};
use crate::pool::Pool;
use device::{AlignedBytes, DeviceError, PackedKey, PackedStore};
use plan::{Block, Bound, BufferKind, Params, Step, StepWork, VerifiedPlan};
use std::sync::Arc;
use tensor::{Weight, WeightStore};

/// Memory of a block's kept buffers: weights where they lie, results of init made or found.
pub(crate) fn kept(
    pool: &Pool,
    plan: &VerifiedPlan,
    block: usize,
    kernels: &'static crate::ukr::Kernels,
    weights: &WeightStore,
    packed: &PackedStore,
) -> Result<Vec<Kept>, DeviceError> {
    let b = block_of(plan, block)?;
    let mut kept = Vec::new();
    let mut keys: Vec<Option<PackedKey>> = vec![None; b.buffers.len()];
    for (i, buf) in b.buffers.iter().enumerate() {
        kept.push(match buf.kind {
            BufferKind::Weight(id) => {
                let w = weights.get(id).ok_or_else(|| DeviceError::Unsupported {
                    device: "cpu".into(),
                    step: buf.name.clone(),
                    why: format!(
                        "the model has no constant {id}; the plan was made for another model"
                    ),
                })?;
                if (w.bytes.len() as u64) < buf.bytes {
                    return Err(DeviceError::Port {
                        port: buf.name.clone(),
                        want: buf.bytes,
                        got: w.bytes.len() as u64,
                    });
                }
                keys[i] = Some(weight_key(w));
                if aligned(w.bytes.as_ptr(), w.dtype) {
                    Kept::Weight(w.bytes.as_ptr())
                } else {
                    // Typed loops need elements at their alignment; files promise none.
                    Kept::Bytes(packed.get_or_make(weight_key(w), || {
                        let mut copy = AlignedBytes::new(w.bytes.len(), &w.name)?;
                        copy.copy_from_slice(&w.bytes);
                        Ok(copy)
                    })?)
                }
            }
            _ => Kept::No,
        });
    }
    if b.init.is_empty() {
        return Ok(kept);
    }
    // Keys of init buffers: over everything that writes them.
    let mut step_keys = Vec::new();
    for s in &b.init {
        let key = step_key(s, &keys, b)?;
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
        step_keys.push(key);
    }
    let mut fresh: Vec<(usize, AlignedBytes)> = Vec::new();
    let mut bufs = Vec::new();
    for (i, buf) in b.buffers.iter().enumerate() {
        if buf.kind == BufferKind::Init {
            if let Some(hit) = keys[i].and_then(|k| packed.get(&k)) {
                kept[i] = Kept::Bytes(hit);
            } else {
                fresh.push((i, AlignedBytes::new(buf.bytes as usize, &buf.name)?));
            }
        }
        bufs.push(match (&kept[i], fresh.last()) {
            (Kept::Bytes(k), _) => k.as_ptr(),
            (Kept::Weight(w), _) => w.cast_mut(),
            (Kept::No, Some((at, f))) if *at == i => f.as_ptr(),
            _ => std::ptr::null_mut(),
        });
    }
    if fresh.is_empty() {
        return Ok(kept);
    }
    let dims = &plan.plan().dims;
    let steps = Steps::compile(
        &b.init,
        plan.init_programs(block),
        dims,
        kernels,
        Params::new(),
    )?;
    let mut bound = Bound::new(&steps.params, &b.symbols, dims)?;
    let top: Vec<i64> = b
        .symbols
        .iter()
        .map(|s| dims.get(s).map_or(1, |r| r.hi))
        .collect();
    let p = bound.at(&top)?;
    let mut tasks = vec![0; b.init.len()];
    steps.tasks(p, &mut tasks)?;
    // Steps whose results somebody holds already are not run.
    for (t, s) in tasks.iter_mut().zip(&b.init) {
        if !written(s)
            .iter()
            .any(|&w| fresh.iter().any(|f| f.0 == w as usize))
        {
            *t = 0;
        }
    }
    run_once(pool, &steps, p, &bufs, &tasks)?;
    for (i, bytes) in fresh {
        kept[i] = Kept::Bytes(match keys[i] {
            Some(k) => packed.get_or_make(k, || Ok(bytes))?,
            None => Arc::new(bytes),
        });
    }
    Ok(kept)
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

fn step_key(s: &Step, keys: &[Option<PackedKey>], b: &Block) -> Result<PackedKey, DeviceError> {
    let fail = |e: serde_json::Error| DeviceError::Unsupported {
        device: "cpu".into(),
        step: s.name.clone(),
        why: format!("it has no text form: {e}"),
    };
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
            h.update(&serde_json::to_vec(kernel).map_err(fail)?);
            h.update(&serde_json::to_vec(schedule).map_err(fail)?);
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
            h.update(&serde_json::to_vec(op).map_err(fail)?);
            h.update(&serde_json::to_vec(&(inputs, outputs)).map_err(fail)?);
            inputs
                .iter()
                .flatten()
                .for_each(|a| source(&mut h, a.buffer));
        }
    }
    Ok(*h.finalize().as_bytes())
}

/// Identity of a constant: name, type, shape and content.
fn weight_key(w: &Weight) -> PackedKey {
    let mut h = blake3::Hasher::new();
    h.update(w.name.as_bytes());
    h.update(w.dtype.name().as_bytes());
    for d in &w.shape {
        h.update(&(*d as u64).to_le_bytes());
    }
    // By content: two sessions that map the same file share what is made of it.
    h.update(&w.bytes);
    h.update(&(w.bytes.len() as u64).to_le_bytes());
    *h.finalize().as_bytes()
}
