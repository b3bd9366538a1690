//! Text form of plans: JSON, indented, keys in declaration order, the same bytes for equal plans. The first key
//! is a checksum of the others, so that a file that was changed is told from one as it was written.
use crate::json::{compact, indented};
use crate::{Plan, PlanError};
use serde::Deserialize;
use serde_json::Value;

/// Largest plan text in bytes.
const MAX_TEXT: usize = 256 << 20;

const CHECKSUM: &str = "checksum";

/// Hash of a plan's text without spaces, hexadecimal.
fn checksum(compact: &str) -> Value {
    Value::String(blake3::hash(compact.as_bytes()).to_hex().to_string())
}

impl Plan {
    /// The plan as JSON text: equal plans give equal bytes, and [`Plan::from_json`] reads an equal
    /// plan back.
    ///
    /// # Errors
    /// [`PlanError::File`] when a predicted time is not finite, which JSON cannot say.
    pub fn to_json(&self) -> Result<String, PlanError> {
        let text = compact(self).map_err(file)?;
        let fields = text.strip_prefix('{').unwrap_or_default();
        let sum = checksum(&text);
        Ok(indented(&format!("{{\"{CHECKSUM}\":{sum},{fields}")) + "\n")
    }

    /// Reads a plan's text. The plan is as trustworthy as the text: [`Plan::verify`] it, and ask
    /// [`Plan::belongs_to`] whether it is the model's.
    ///
    /// # Errors
    /// [`PlanError::Changed`] when the contents do not have the checksum that the text states, else as
    /// [`Plan::from_json_unchecked`].
    pub fn from_json(text: &str) -> Result<Plan, PlanError> {
        let (plan, stated, written) = read(text)?;
        match stated == checksum(&written) {
            true => Ok(plan),
            false => Err(PlanError::Changed),
        }
    }

    /// As [`Plan::from_json`] for a text that was changed on purpose: whatever checksum it has, or none.
    ///
    /// # Errors
    /// [`PlanError::File`] when the text is no plan, is larger than 256 MiB or nested deeper than
    /// 128, has another version, or says something that this version would not write (an unknown
    /// field).
    pub fn from_json_unchecked(text: &str) -> Result<Plan, PlanError> {
        Ok(read(text)?.0)
    }
}

/// The plan in a text, the checksum that the text states, and the plan as [`compact`] writes it.
fn read(text: &str) -> Result<(Plan, Value, String), PlanError> {
    if text.len() > MAX_TEXT {
        return Err(PlanError::File(format!(
            "it has {} bytes, more than {MAX_TEXT}",
            text.len()
        )));
    }
    let mut value: Value = serde_json::from_str(text).map_err(file)?;
    let fields = value.as_object_mut();
    let stated = fields.and_then(|f| f.remove(CHECKSUM)).unwrap_or_default();
    let version = value.get("version").and_then(Value::as_u64);
    if version != Some(u64::from(Plan::VERSION)) {
        let found = version.map_or("none".into(), |v| v.to_string());
        return Err(PlanError::File(format!(
            "its version is {found}, this program reads {}",
            Plan::VERSION
        )));
    }
    let plan = Plan::deserialize(&value).map_err(file)?;
    let written = compact(&plan).map_err(file)?;
    let back = serde_json::from_str(&written).map_err(file)?;
    match difference(&value, &back, "plan") {
        None => Ok((plan, stated, written)),
        Some(at) => Err(PlanError::File(format!(
            "{at} is unknown or not as this program writes it"
        ))),
    }
}

fn file(e: serde_json::Error) -> PlanError {
    PlanError::File(e.to_string())
}

/// Where two values differ first. Both are nested no deeper than the reader allows.
fn difference(a: &Value, b: &Value, path: &str) -> Option<String> {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            if let Some(k) = x
                .keys()
                .find(|k| !y.contains_key(*k))
                .or(y.keys().find(|k| !x.contains_key(*k)))
            {
                return Some(format!("field '{k}' of {path}"));
            }
            x.iter().find_map(|(k, v)| difference(v, y.get(k)?, k))
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            x.iter().zip(y).find_map(|(v, w)| difference(v, w, path))
        }
        (Value::Number(x), Value::Number(y)) if x.as_f64() == y.as_f64() => None,
        _ => (a != b).then(|| format!("'{path}'")),
    }
}
