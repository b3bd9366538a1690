//! What the report page compares with: another page, a plan or a measurement file.
use super::PageData;
use serde::Serialize;
use serde_json::Value;

/// Why a file is nothing to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgainstError(String);

impl std::fmt::Display for AgainstError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AgainstError {}

/// A step of what a report is compared with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgainstStep {
    /// Name.
    pub name: String,
    /// Nodes of the model.
    pub nodes: Vec<String>,
    /// Kernel family.
    pub family: String,
    /// What bounds it.
    pub bound: String,
    /// Microseconds in one request: measured, or predicted where nothing was measured.
    pub time_us: f64,
}

/// Another run, or another machine's plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Baseline {
    /// What it is called in headings.
    pub label: String,
    /// Model.
    pub model: String,
    /// Dims.
    pub dims: String,
    /// Device that it ran on, if it ran.
    pub device: Option<String>,
    /// Machine planned for.
    pub machine: String,
    /// Whether its times are measured.
    pub measured: bool,
    /// Steps.
    pub steps: Vec<AgainstStep>,
}

/// The data that a page carries.
fn carried(page: &str) -> Option<&str> {
    let (_, after) = page.split_once("id=\"data\">")?;
    Some(after.split_once("</script>")?.0)
}

impl Baseline {
    /// Reads a report's page, its data, or the JSON of `profile --json` or `plan --json`.
    ///
    /// # Errors
    /// Text that is none of these, or data of a later version.
    pub fn read(text: &str) -> Result<Baseline, AgainstError> {
        let none = |what: &str| {
            AgainstError(format!(
                "{what}; give a report (`--report`), its data (`--report FILE.json`) or what `profile --json` or `plan --json` prints"
            ))
        };
        let json = match text.trim_start().starts_with('<') {
            true => carried(text).ok_or_else(|| none("this page carries no report"))?,
            false => text,
        };
        let v: Value =
            serde_json::from_str(json).map_err(|e| none(&format!("this is no JSON: {e}")))?;
        if let Some(schema) = v.get("schema") {
            let version = v.get("version").and_then(Value::as_u64);
            if schema != PageData::SCHEMA || version != Some(u64::from(PageData::VERSION)) {
                return Err(none(&format!(
                    "this is {schema} {}, and this program reads {} {}",
                    version.unwrap_or(0),
                    PageData::SCHEMA,
                    PageData::VERSION
                )));
            }
        }
        let text = |v: &Value, key: &str| v[key].as_str().unwrap_or("").to_string();
        let steps = v["steps"]
            .as_array()
            .ok_or_else(|| none("this JSON has no steps"))?;
        let mut measured = false;
        let mut out = Vec::with_capacity(steps.len());
        for s in steps {
            let own = s["measured"]["time_us"].as_f64().or(s["time_us"].as_f64());
            measured |= own.is_some();
            let time_us = own
                .or(s["predicted_us"].as_f64())
                .filter(|t| t.is_finite())
                .ok_or_else(|| none("a step of this JSON has no time"))?;
            let nodes = s["nodes"].as_array().into_iter().flatten();
            out.push(AgainstStep {
                name: text(s, "name"),
                nodes: nodes
                    .filter_map(Value::as_str)
                    .map(str::to_string)
                    .collect(),
                family: text(s, "family"),
                bound: text(s, "bound"),
                time_us,
            });
        }
        let device = v["device"].as_str().map(str::to_string);
        let machine = text(&v, "machine");
        Ok(Baseline {
            label: device
                .clone()
                .filter(|_| measured)
                .unwrap_or_else(|| machine.clone()),
            model: text(&v, "model"),
            dims: text(&v, "dims"),
            device,
            machine,
            measured,
            steps: out,
        })
    }
}
