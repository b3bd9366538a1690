//! Operators whose code is the caller's: what an attribute carries from import to whoever runs host steps.
use crate::{Attr, Attrs, Tensor};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The attribute that holds a [`Native`]; no name of an attribute of ONNX has a blank.
pub const NATIVE: &str = "native code";

/// The attribute that says of each input of a [`Native`] whether its node gives it, where one is left out.
pub const NATIVE_INPUTS: &str = "native inputs";

/// Code of the caller's that gives an operator's outputs, all of them, or why there are none. Inputs stand at their
/// places; one that the node leaves out is `None`.
pub type NativeCode =
    dyn Fn(&Attrs, &[Option<&Tensor>]) -> Result<Vec<Tensor>, String> + Send + Sync;

/// An operator of the caller's. Only its name is saved: what was read from a file has no code.
#[derive(Clone, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub struct Native {
    operator: Arc<str>,
    code: Option<Arc<NativeCode>>,
}

thread_local! {
    /// Code of an operator runs on this thread.
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs an operator's code; what waits for workers then may wait for itself.
pub fn in_native_code() -> bool {
    RUNS.get()
}

/// What a panic said.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without words")
}

impl Native {
    /// The operator, `domain:Name`, with its code.
    pub fn new(operator: &str, code: Arc<NativeCode>) -> Native {
        Native {
            operator: operator.into(),
            code: Some(code),
        }
    }

    /// `domain:Name`.
    pub fn operator(&self) -> &str {
        &self.operator
    }

    /// Runs it on the inputs that its node gives. A panic is an error.
    ///
    /// # Errors
    /// The code's; it panicked; it is not there; [`NATIVE_INPUTS`] is of another number of inputs.
    pub fn run(&self, attrs: &Attrs, inputs: &[&Tensor]) -> Result<Vec<Tensor>, String> {
        let Some(code) = &self.code else {
            return Err(
                "its code is not part of a plan that was saved; plan again where the operator is registered"
                    .into(),
            );
        };
        let inputs = placed(attrs, inputs)?;
        let before = RUNS.replace(true);
        let done = catch_unwind(AssertUnwindSafe(|| code(attrs, &inputs)));
        RUNS.set(before);
        done.unwrap_or_else(|p| Err(format!("its code panicked: {}", panic_text(&*p))))
    }
}

/// The inputs at the places that [`NATIVE_INPUTS`] gives them; one behind the other without it.
fn placed<'t>(attrs: &Attrs, inputs: &[&'t Tensor]) -> Result<Vec<Option<&'t Tensor>>, String> {
    let Some(Attr::Ints(given)) = attrs.get(NATIVE_INPUTS) else {
        return Ok(inputs.iter().copied().map(Some).collect());
    };
    if given.iter().filter(|g| **g != 0).count() != inputs.len() {
        return Err(format!(
            "attribute '{NATIVE_INPUTS}' {given:?} does not fit {} inputs",
            inputs.len()
        ));
    }
    let mut next = inputs.iter().copied();
    let at = |g: &i64| if *g == 0 { None } else { next.next() };
    Ok(given.iter().map(at).collect())
}

impl PartialEq for Native {
    fn eq(&self, other: &Native) -> bool {
        let same = match (&self.code, &other.code) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        same && self.operator == other.operator
    }
}

impl From<Native> for String {
    fn from(n: Native) -> String {
        n.operator.to_string()
    }
}

impl From<String> for Native {
    fn from(operator: String) -> Native {
        Native {
            operator: operator.into(),
            code: None,
        }
    }
}

impl std::fmt::Debug for Native {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Native({})", self.operator)
    }
}
