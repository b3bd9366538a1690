//! What a cache keeps of one model.
use super::digest::digest;
use super::pack::{self, Pack};
use super::{Cache, binary, evict};
use crate::Model;
use device::{PackedBytes, PackedKey, Shelf};
use layout::DimBox;
use plan::{Allotment, Plan};
use runtime::PlanStore;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;
use tensor::Bytes;

/// Packs of a model that are joined when there are as many: plans for many boxes and stretches of a
/// model each leave a little.
const JOINED: usize = 16;
/// Bytes up to which a pack is joined with others.
const SMALL: usize = 4 << 20;
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
            files.push(digest(cache, path)?);
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
        for path in of_kind(&folder, "pack") {
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

/// Files of `folder` with extension `kind`, by name.
fn of_kind(folder: &Path, kind: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == kind))
        .collect();
    found.sort();
    found
}

const HEAD: &[u8] = b"shopfloor plan 4\n";

/// A plan's file: a line, the hash of what follows, the plan in binary form.
fn read_plan(bytes: &[u8]) -> Option<Plan> {
    let rest = bytes.strip_prefix(HEAD)?;
    let (hash, text) = rest.split_at_checked(32)?;
    if blake3::hash(text).as_bytes() != hash {
        return None;
    }
    let plan: Plan = binary::from_slice(text)?;
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
        match plan {
            Some(_) => evict::used(&path),
            None => drop(std::fs::remove_file(&path)),
        }
        plan
    }

    fn keep_plan(&self, unit: &str, dims: &DimBox, allotment: &Allotment, plan: &Plan) {
        let Some(text) = binary::to_vec(plan) else {
            return;
        };
        let path = self.plan_path(unit, dims, allotment);
        let hash = blake3::hash(&text);
        self.cache.keep(&path, &[HEAD, hash.as_bytes(), &text]);
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
        if fresh.is_empty() {
            return;
        }
        let joined: Vec<Arc<Pack>> = match packs.iter().filter(|p| p.bytes() <= SMALL).count() {
            n if n < JOINED => Vec::new(),
            _ => packs.extract_if(.., |p| p.bytes() <= SMALL).collect(),
        };
        let held: Vec<(PackedKey, Bytes)> = joined.iter().flat_map(|p| p.sound()).collect();
        fresh.extend(held.iter().map(|(k, b)| (*k, &b[..])));
        fresh.sort_by_key(|f| f.0);
        fresh.dedup_by_key(|f| f.0);
        let mut h = blake3::Hasher::new();
        for f in &fresh {
            h.update(&f.0);
        }
        let id = h.finalize().to_hex();
        let path = self.folder.join(format!("{}.pack", &id[..32]));
        let kept = pack::with_parts(&fresh, |parts| self.cache.keep(&path, parts));
        if !kept {
            packs.extend(joined);
            return;
        }
        packs.extend(Pack::open(&path).map(Arc::new));
        for old in joined.iter().filter(|p| p.path != path) {
            let _ = std::fs::remove_file(&old.path);
        }
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
