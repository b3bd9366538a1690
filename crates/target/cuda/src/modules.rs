//! Modules, loaded once per text.
use crate::{Context, DriverError, FunctionId, ModuleId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

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

/// Modules of one GPU by the hash of their text. They stay until [`Modules::clear`]: unloading may
/// block behind a running kernel.
pub struct Modules {
    context: Arc<dyn Context>,
    known: Mutex<HashMap<blake3::Hash, Arc<Module>>>,
}

impl Modules {
    /// None yet.
    pub fn new(context: Arc<dyn Context>) -> Modules {
        Modules {
            context,
            known: Mutex::default(),
        }
    }

    /// The module of `ptx`, compiled if its text was not seen before.
    ///
    /// # Errors
    /// The driver does not compile it.
    pub fn load(&self, ptx: &str) -> Result<Arc<Module>, DriverError> {
        let key = blake3::hash(ptx.as_bytes());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(m) = known.get(&key) {
            return Ok(m.clone());
        }
        let module = Arc::new(Module {
            id: self.context.load_module(ptx)?,
            context: self.context.clone(),
        });
        known.insert(key, module.clone());
        Ok(module)
    }

    /// Modules that are loaded.
    pub fn len(&self) -> usize {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Unloads what nobody holds; not while a resident kernel runs.
    pub fn clear(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, m| Arc::strong_count(m) > 1);
    }
}
