//! Modules, loaded once per text.
use crate::{Context, DriverError, FunctionId, ModuleCode, ModuleId};
use device::Shelf;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A loaded module, unloaded when the last one who holds it lets go.
pub struct Module {
    context: Arc<dyn Context>,
    id: ModuleId,
}

impl Module {
    /// A kernel by its entry's name.
    ///
    /// # Errors
    /// There is none.
    pub fn function(&self, entry: &str) -> Result<FunctionId, DriverError> {
        self.context.function(self.id, entry)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.context.unload_module(self.id);
    }
}

/// A text's module, or none while nobody has compiled it.
type Slot = Arc<Mutex<Option<Arc<Module>>>>;

/// Modules of one GPU by the hash of their text. They stay until [`Modules::clear`]: unloading may
/// block behind a running kernel.
pub struct Modules {
    context: Arc<dyn Context>,
    /// The driver's version: code that it made is for it.
    driver: u32,
    known: Mutex<HashMap<blake3::Hash, Slot>>,
}

impl Modules {
    /// None yet, under a driver of this version.
    pub fn new(context: Arc<dyn Context>, driver: u32) -> Modules {
        Modules {
            context,
            driver,
            known: Mutex::default(),
        }
    }

    /// The module of `ptx`, compiled if its text was not seen before, neither here nor by whoever filled `shelf`. Threads
    /// compile different texts side by side; who asks for one that is being compiled waits for it.
    ///
    /// # Errors
    /// The driver does not compile it.
    pub fn load(&self, ptx: &str, shelf: &dyn Shelf) -> Result<Arc<Module>, DriverError> {
        let key = blake3::hash(ptx.as_bytes());
        let slot = self.known().entry(key).or_default().clone();
        let mut own = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(m) = &*own {
            return Ok(m.clone());
        }
        let module = Arc::new(Module {
            id: self.load_from(ptx, shelf)?,
            context: self.context.clone(),
        });
        Ok(own.insert(module).clone())
    }

    /// What the shelf has may be of a driver that calls itself the same and loads other code: then the text is compiled.
    fn load_from(&self, ptx: &str, shelf: &dyn Shelf) -> Result<ModuleId, DriverError> {
        let key = self.code_key(ptx);
        let code = shelf.code(&key, &mut || self.context.assemble(ptx).ok());
        let loaded = code.and_then(|c| self.context.load_module(ModuleCode::Binary(&c)).ok());
        match loaded {
            Some(id) => Ok(id),
            None => self.context.load_module(ModuleCode::Text(ptx)),
        }
    }

    /// Says of which text, for which GPU and by which driver code is.
    fn code_key(&self, ptx: &str) -> [u8; 32] {
        let mut h = blake3::Hasher::new();
        let arch = self.context.info().compute.arch();
        h.update(b"code of a module\n");
        h.update(&self.driver.to_le_bytes());
        h.update(&(arch.len() as u64).to_le_bytes());
        h.update(arch.as_bytes()).update(ptx.as_bytes());
        *h.finalize().as_bytes()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<blake3::Hash, Slot>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Modules that are loaded.
    pub fn len(&self) -> usize {
        let loaded = |s: &&Slot| held(s).is_some();
        self.known().values().filter(loaded).count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Unloads what nobody holds; not while a resident kernel runs.
    pub fn clear(&self) {
        // A slot that somebody else has is about to be asked for its module.
        let wanted = |s: &Slot| {
            Arc::strong_count(s) > 1 || held(s).is_some_and(|m| Arc::strong_count(&m) > 2)
        };
        self.known().retain(|_, s| wanted(s));
    }
}

/// The module of a slot, if it is loaded. Who is compiling it holds the lock, and it is none yet.
fn held(slot: &Slot) -> Option<Arc<Module>> {
    slot.try_lock().ok().and_then(|m| m.clone())
}
