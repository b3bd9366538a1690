//! What a cache keeps of one model.
use super::digest::digest;
use super::pack::{self, Pack};
use super::{Cache, binary, evict, sealed};
use device::{PackedBytes, PackedKey, Shelf};
use layout::{Arrange, DimBox};
use plan::{Allotment, Plan};
use runtime::PlanStore;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tensor::Bytes;

/// Packs of a model that are joined when there are as many: plans for many boxes and stretches of a
/// model each leave a little.
const JOINED: usize = 16;
/// Bytes up to which a pack is joined with others.
const SMALL: usize = 4 << 20;

/// A model's part of a cache.
pub(crate) struct ModelCache {
    cache: Cache,
    folder: PathBuf,
    /// Hash of the contents of the model's files.
    contents: [u8; 32],
    /// What plans follow from beside unit, dims and allotment.
    setting: String,
    /// Identity and content hash of the model's files.
    files: Vec<([u8; 32], [u8; 32])>,
    packs: Mutex<Vec<Arc<Pack>>>,
}

impl ModelCache {
    /// See [`super::Store::plans`].
    pub(super) fn new(cache: &Cache, paths: &[PathBuf], setting: &str) -> Option<ModelCache> {
        let mut files = Vec::new();
        for path in paths {
            files.push(digest(cache, path)?);
        }
        if files.is_empty() {
            return None;
        }
        let digests: Vec<&[u8]> = files.iter().map(|f| &f.1[..]).collect();
        let contents = sealed::key(&digests);
        let id = blake3::Hash::from_bytes(contents).to_hex();
        let folder = cache.folder.join(&id[..evict::NAME]);
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
            contents,
            setting: format!("{}\n{setting}", sealed::this_build()),
            files,
            packs: Mutex::new(packs),
        })
    }

    /// The key of a plan, and the file that it is kept in.
    fn plan_place(
        &self,
        unit: &str,
        dims: &DimBox,
        allotment: &Allotment,
    ) -> (sealed::Key, PathBuf) {
        let key = sealed::key(&[
            &self.contents,
            self.setting.as_bytes(),
            unit.as_bytes(),
            dims.to_string().as_bytes(),
            format!("{allotment:?}").as_bytes(),
        ]);
        (key, self.folder.join(sealed::name(&key, "plan")))
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
    found.arrange();
    found
}

const HEAD: &[u8] = b"shopfloor plan 5\n";
const CODE_HEAD: &[u8] = b"shopfloor code 1\n";

impl PlanStore for ModelCache {
    fn plan(&self, unit: &str, dims: &DimBox, allotment: &Allotment) -> Option<Plan> {
        let (key, path) = self.plan_place(unit, dims, allotment);
        sealed::find(&path, HEAD, &key, files::MADE, |text| {
            let plan: Plan = binary::from_slice(text)?;
            (plan.version == Plan::VERSION).then_some(plan)
        })
    }

    fn keep_plan(&self, unit: &str, dims: &DimBox, allotment: &Allotment, plan: &Plan) {
        let Some(text) = binary::to_vec(plan) else {
            return;
        };
        let (key, path) = self.plan_place(unit, dims, allotment);
        sealed::keep(&self.cache, &path, HEAD, &key, &text);
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
        fresh.arrange_by_key(|f| f.0);
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

    fn code(&self, key: &PackedKey, make: &mut dyn FnMut() -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        let path = self.folder.join(sealed::name(key, evict::CODE));
        let kept = sealed::find(&path, CODE_HEAD, key, files::MADE, |c| Some(c.to_vec()));
        kept.or_else(|| {
            let made = make()?;
            sealed::keep(&self.cache, &path, CODE_HEAD, key, &made);
            Some(made)
        })
    }
}
