//! What a cache keeps of one model.
use super::digest::digest;
use super::pack::{self, Pack};
use super::{Cache, write_whole};
use crate::Model;
use device::{PackedBytes, PackedKey, Shelf};
use layout::DimBox;
use plan::{Allotment, Plan};
use runtime::PlanStore;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tensor::Bytes;

/// Plans kept per model at most; the oldest go first.
const PLANS: usize = 64;
/// Packs kept per model at most.
const PACKS: usize = 32;
/// Longest plan in bytes.
const LONGEST: u64 = 256 << 20;

/// A model's part of a cache.
pub(crate) struct ModelCache {
    cache: Cache,
    folder: PathBuf,
    /// What plans follow from beside unit, dims and allotment.
    setting: String,
    /// Identity and content hash of the model's files.
    files: Vec<([u8; 32], [u8; 32])>,
    packs: Mutex<Vec<Arc<Pack>>>,
}

/// What tells this build of importer and planner from another, of the same version too: the
/// program's file, by size and time. A rebuilt planner may choose otherwise, and must not be given
/// old choices.
pub(super) fn this_build() -> String {
    let meta = std::env::current_exe().and_then(std::fs::metadata);
    let time = |m: &std::fs::Metadata| m.modified().ok()?.duration_since(UNIX_EPOCH).ok();
    let build = meta.map(|m| format!("{} {:?}", m.len(), time(&m)));
    format!(
        "{} {} {}",
        env!("CARGO_PKG_VERSION"),
        Plan::VERSION,
        build.unwrap_or_default()
    )
}

impl ModelCache {
    pub(super) fn new(cache: &Cache, model: &Model, setting: &str) -> Option<ModelCache> {
        let mut files = Vec::new();
        for path in model.files() {
            files.push(digest(&cache.folder, path)?);
        }
        let mut h = blake3::Hasher::new();
        if files.is_empty() {
            return None;
        }
        for (_, digest) in &files {
            h.update(digest);
        }
        let id = h.finalize().to_hex();
        let folder = cache.folder.join(&id[..32]);
        let mut packs = Vec::new();
        for (path, _) in by_age(&folder, "pack") {
            match Pack::open(&path) {
                Some(p) => packs.push(Arc::new(p)),
                None => drop(std::fs::remove_file(&path)),
            }
        }
        Some(ModelCache {
            cache: cache.clone(),
            folder,
            setting: format!("{}\n{}\n{setting}", this_build(), model.options_text()),
            files,
            packs: Mutex::new(packs),
        })
    }

    fn plan_path(&self, unit: &str, dims: &DimBox, allotment: &Allotment) -> PathBuf {
        let mut h = blake3::Hasher::new();
        let text = format!("{}\n{unit}\n{dims}\n{allotment:?}", self.setting);
        h.update(text.as_bytes());
        let key = h.finalize().to_hex();
        self.folder.join(format!("{}.plan", &key[..32]))
    }

    fn packs(&self) -> Vec<Arc<Pack>> {
        self.packs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Files of `folder` with extension `kind`, those changed last first.
pub(super) fn by_age(folder: &Path, kind: &str) -> Vec<(PathBuf, SystemTime)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(PathBuf, SystemTime)> = entries
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == kind))
        .filter_map(|p| Some((p.clone(), p.metadata().ok()?.modified().ok()?)))
        .collect();
    found.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    found
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|e| e.metadata().ok())
        .map(|m| m.len())
        .sum()
}

/// Removes models that were not written to for longest, until the rest fit `limit` bytes; not
/// `own`.
fn shrink(cache: &Path, own: &Path, limit: u64) {
    let entries = std::fs::read_dir(cache).into_iter().flatten().flatten();
    let mut models: Vec<(SystemTime, PathBuf, u64)> = entries
        .map(|e| e.path())
        .filter(|p| p.is_dir())
        .filter_map(|p| {
            Some((
                p.metadata().ok()?.modified().ok()?,
                p.clone(),
                folder_bytes(&p),
            ))
        })
        .collect();
    models.sort();
    let mut total: u64 = models.iter().map(|m| m.2).sum();
    for (_, path, bytes) in models {
        if total > limit && path != own {
            let _ = std::fs::remove_dir_all(&path);
            total -= bytes;
        }
    }
}

const HEAD: &[u8] = b"shopfloor plan 1\n";

/// A plan's file: a line, the text's hash, the text.
fn read_plan(bytes: &[u8]) -> Option<Plan> {
    let rest = bytes.strip_prefix(HEAD)?;
    let (hash, text) = rest.split_at_checked(32)?;
    if blake3::hash(text).as_bytes() != hash {
        return None;
    }
    let plan: Plan = serde_json::from_slice(text).ok()?;
    (plan.version == Plan::VERSION).then_some(plan)
}

impl PlanStore for ModelCache {
    fn plan(&self, unit: &str, dims: &DimBox, allotment: &Allotment) -> Option<Plan> {
        let path = self.plan_path(unit, dims, allotment);
        let meta = std::fs::metadata(&path).ok()?;
        let plan = if meta.len() <= LONGEST {
            read_plan(&std::fs::read(&path).ok()?)
        } else {
            None
        };
        if plan.is_none() {
            let _ = std::fs::remove_file(&path);
        }
        plan
    }

    fn keep_plan(&self, unit: &str, dims: &DimBox, allotment: &Allotment, plan: &Plan) {
        let Ok(text) = serde_json::to_vec(plan) else {
            return;
        };
        let path = self.plan_path(unit, dims, allotment);
        let hash = blake3::hash(&text);
        let parts = [HEAD, hash.as_bytes(), &text];
        if write_whole(&path, &mut parts.into_iter()).is_ok() {
            for (old, _) in by_age(&self.folder, "plan").into_iter().skip(PLANS) {
                let _ = std::fs::remove_file(old);
            }
        }
    }

    fn shelf(&self) -> &dyn Shelf {
        self
    }

    fn keep_packed(&self, packed: &[(PackedKey, Arc<PackedBytes>)]) {
        let mut packs = self.packs.lock().unwrap_or_else(PoisonError::into_inner);
        // What was found damaged is written anew, with what was sound in the same file.
        packs.retain(|p| {
            let damaged = p.damaged();
            if damaged {
                let _ = std::fs::remove_file(&p.path);
            }
            !damaged
        });
        let mut fresh: Vec<(PackedKey, &[u8])> = packed
            .iter()
            .filter(|(k, _)| !packs.iter().any(|p| p.has(k)))
            .map(|(k, b)| (*k, &b[..]))
            .collect();
        fresh.sort_by_key(|f| f.0);
        fresh.dedup_by_key(|f| f.0);
        let bytes: u64 = fresh.iter().map(|f| f.1.len() as u64).sum();
        if fresh.is_empty() || bytes > self.cache.limit {
            return;
        }
        let mut h = blake3::Hasher::new();
        for f in &fresh {
            h.update(&f.0);
        }
        let id = h.finalize().to_hex();
        let path = self.folder.join(format!("{}.pack", &id[..32]));
        if pack::write(&path, &fresh).is_err() {
            return;
        }
        packs.extend(Pack::open(&path).map(Arc::new));
        for (old, _) in by_age(&self.folder, "pack").into_iter().skip(PACKS) {
            let _ = std::fs::remove_file(&old);
            packs.retain(|p| p.path != old);
        }
        shrink(&self.cache.folder, &self.folder, self.cache.limit);
    }
}

impl Shelf for ModelCache {
    fn contents(&self, file: &[u8; 32]) -> Option<[u8; 32]> {
        self.files.iter().find(|f| f.0 == *file).map(|f| f.1)
    }

    fn get(&self, key: &PackedKey, bytes: usize) -> Option<Bytes> {
        self.packs().iter().find_map(|p| p.get(key, bytes))
    }
}
