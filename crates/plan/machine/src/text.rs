//! Text forms: a compact TOML writer, a reader whose errors name file, line and field, and the checks
//! that types cannot make.

use crate::{Bandwidth, Level, Limits, Machine, MachineError, Sourced};
use layout::Arrange;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::path::Path;

type Table = Map<String, Value>;

/// Keys in the order in which a reader looks for them; others follow in alphabetical order.
const ORDER: &[&str] = &[
    "name",
    "aliases",
    "kind",
    "vendor",
    "arch",
    "note",
    "power_w",
    "machine",
    "class",
    "dtype_in",
    "dtype_acc",
    "dtype",
    "tile",
    "lanes",
    "isa",
    "op",
    "from",
    "to",
    "bytes",
    "usable",
    "shared_by",
    "line",
    "latency_s",
    "count",
    "clock_hz",
    "workers",
    "costs",
    "limits",
    "read",
    "write",
    "copy",
    "per_worker",
    "all",
    "curve",
    "bandwidth",
    "cc",
    "same_place_as",
    "v",
    "src",
    "ops",
    "levels",
    "units",
    "links",
];

fn rank(k: &str) -> (usize, &str) {
    (ORDER.iter().position(|o| *o == k).unwrap_or(ORDER.len()), k)
}

fn sorted(t: &Table) -> Vec<(&String, &Value)> {
    let mut v: Vec<_> = t.iter().collect();
    v.arrange_by(|a, b| rank(a.0).cmp(&rank(b.0)));
    v
}

fn key(k: &str) -> String {
    if !k.is_empty()
        && k.chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    {
        k.to_string()
    } else {
        quoted(k)
    }
}

/// A string between those quotes that need no escapes, where there are any.
fn quoted(s: &str) -> String {
    let plain = |c: char| c == '\t' || !c.is_control();
    if s.chars().all(|c| plain(c) && c != '"' && c != '\\') {
        format!("\"{}\"", s.replace('\t', "\\t"))
    } else if s.chars().all(|c| plain(c) && c != '\'') {
        format!("'{s}'")
    } else {
        // JSON's escapes are escapes of TOML, which has one more.
        Value::from(s).to_string().replace('\u{7f}', "\\u007F")
    }
}

/// Whether TOML has a form for every number: JSON's values have none for those that are not finite.
fn has_text(v: &Value) -> bool {
    match v {
        Value::Null => false,
        Value::Number(n) => n.is_f64() || n.is_i64(),
        Value::Array(a) => a.iter().all(has_text),
        Value::Object(t) => t.values().all(has_text),
        Value::Bool(_) | Value::String(_) => true,
    }
}

fn inline(v: &Value, out: &mut String) {
    match v {
        Value::Object(t) => {
            out.push_str("{ ");
            for (i, (k, v)) in sorted(t).into_iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                let _ = write!(out, "{} = ", key(k));
                inline(v, out);
            }
            out.push_str(" }");
        }
        Value::Array(a) => {
            out.push('[');
            for (i, v) in a.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                inline(v, out);
            }
            out.push(']');
        }
        Value::Number(n) => {
            let _ = match n.as_f64().filter(|_| n.is_f64()) {
                // Scientific form where it is the shorter one; both read back to the same bits.
                Some(f) if f != 0.0 && !(1e-3..1e6).contains(&f.abs()) => write!(out, "{f:e}"),
                Some(f) => write!(out, "{f:?}"),
                None => write!(out, "{n}"),
            };
        }
        Value::String(s) => out.push_str(&quoted(s)),
        Value::Bool(_) | Value::Null => {
            let _ = write!(out, "{v}");
        }
    }
}

/// TOML with top-level tables and lists of tables as sections and everything below them on one line each.
pub(crate) fn to_toml_text<T: Serialize>(value: &T, name: &str) -> Result<String, MachineError> {
    let fail = |message: String| MachineError::Write {
        name: name.to_string(),
        message,
    };
    let v = serde_json::to_value(value).map_err(|e| fail(e.to_string()))?;
    if !has_text(&v) {
        return Err(fail("a number in it is not finite or too large".into()));
    }
    let Value::Object(top) = v else {
        return Err(fail("it is not a table".into()));
    };
    let is_sourced = |t: &Table| t.len() == 2 && t.contains_key("v") && t.contains_key("src");
    let is_tables = |a: &[Value]| !a.is_empty() && a.iter().all(Value::is_object);
    let mut out = String::new();
    let mut sections = String::new();
    let lines = |t: &Table, out: &mut String| {
        for (k, v) in sorted(t) {
            let _ = write!(out, "{} = ", key(k));
            inline(v, out);
            out.push('\n');
        }
    };
    for (k, v) in sorted(&top) {
        match v {
            Value::Object(t) if !is_sourced(t) => {
                let _ = write!(sections, "\n[{}]\n", key(k));
                lines(t, &mut sections);
            }
            Value::Array(a) if is_tables(a) => {
                for e in a {
                    let _ = write!(sections, "\n[[{}]]\n", key(k));
                    if let Value::Object(t) = e {
                        lines(t, &mut sections);
                    }
                }
            }
            v => {
                let _ = write!(out, "{} = ", key(k));
                inline(v, &mut out);
                out.push('\n');
            }
        }
    }
    Ok(out + &sections)
}

/// Parses TOML into a type; errors name the line and what was expected there.
pub(crate) fn parse<T: DeserializeOwned>(text: &str, file: &str) -> Result<T, MachineError> {
    crate::toml::read(text).map_err(|e| MachineError::Parse {
        file: file.to_string(),
        line: e.line,
        message: e.message,
    })
}

/// The line a field such as `levels[2].read.all` is written in; 0 when it is not.
fn line_of(text: &str, field: &str) -> usize {
    let mut parts = field.split('.');
    let head = parts.next().unwrap_or_default();
    let second = parts.next().unwrap_or_default();
    let (table, index) = match head.split_once('[') {
        Some((t, i)) => (t, i.trim_end_matches(']').parse::<usize>().ok()),
        None => (head, None),
    };
    let starts = |l: &str, k: &str| {
        l.trim_start()
            .strip_prefix(k)
            .is_some_and(|r| r.trim_start().starts_with('='))
    };
    let (single, list) = (format!("[{table}]"), format!("[[{table}]]"));
    let (mut count, mut inside, mut header) = (0usize, false, 0usize);
    for (n, l) in text.lines().enumerate() {
        let t = l.trim();
        if t.starts_with('[') {
            inside = if t.starts_with(&list) {
                count += 1;
                index.is_none_or(|i| count == i + 1)
            } else {
                t.starts_with(&single)
            };
            if inside {
                header = n + 1;
            }
        } else if (inside && !second.is_empty() && starts(l, second))
            || (header == 0 && starts(l, table))
        {
            return n + 1;
        }
    }
    header
}

struct Checker<'a> {
    machine: &'a str,
}

impl Checker<'_> {
    fn fail<T>(&self, field: &str, message: impl Into<String>) -> Result<T, MachineError> {
        Err(MachineError::Field {
            machine: self.machine.into(),
            field: field.into(),
            message: message.into(),
        })
    }
    fn positive(&self, field: &str, v: f64) -> Result<(), MachineError> {
        if v.is_finite() && v > 0.0 {
            return Ok(());
        }
        self.fail(field, format!("{v} must be a finite number above 0"))
    }
    fn not_negative(&self, field: &str, v: f64) -> Result<(), MachineError> {
        if v.is_finite() && v >= 0.0 {
            return Ok(());
        }
        self.fail(field, format!("{v} must be a finite number, 0 or more"))
    }
    fn bandwidth(&self, field: &str, b: &Bandwidth) -> Result<(), MachineError> {
        self.positive(&format!("{field}.per_worker"), b.per_worker.value)?;
        self.positive(&format!("{field}.all"), b.all.value)?;
        let mut last = 0.0;
        for p in &b.curve {
            self.positive(&format!("{field}.curve"), p.1)?;
            if !p.0.is_finite() || p.0 <= last {
                return self.fail(
                    &format!("{field}.curve"),
                    "active workers must be above 0 and rise",
                );
            }
            last = p.0;
        }
        Ok(())
    }
    fn limits(&self, l: &Limits) -> Result<(), MachineError> {
        let fields = [
            ("warp", l.warp),
            ("threads_per_cta", l.threads_per_cta),
            ("warps_per_sm", l.warps_per_sm),
            ("ctas_per_sm", l.ctas_per_sm),
            ("registers_per_sm", l.registers_per_sm),
            ("register_granularity", l.register_granularity),
            ("register_files", l.register_files),
        ];
        for (k, v) in fields {
            if v.is_some_and(|v| v.value == 0) {
                return self.fail(
                    &format!("limits.{k}"),
                    "0 would let nothing run; leave the field out when it is not known",
                );
            }
        }
        if l.shared_carveouts.windows(2).any(|w| w[0] >= w[1]) {
            return self.fail("limits.shared_carveouts", "sizes must rise");
        }
        let rising = l.clustered.windows(2).all(|w| w[0][0] < w[1][0]);
        if !rising || l.clustered.iter().any(|c| c.contains(&0)) {
            return self.fail(
                "limits.clustered",
                "sizes must rise, and some multiprocessors have such clusters",
            );
        }
        Ok(())
    }
    fn level(&self, i: usize, l: &Level, all: &[Level]) -> Result<(), MachineError> {
        let f = |k: &str| format!("levels[{i}].{k}");
        if l.name.trim().is_empty() {
            return self.fail(
                &f("name"),
                "a level needs a name such as L1, L2, device or host",
            );
        }
        if all[..i]
            .iter()
            .any(|o| o.name.eq_ignore_ascii_case(&l.name))
        {
            return self.fail(
                &f("name"),
                format!(
                    "there are two levels called `{}`; names must differ",
                    l.name
                ),
            );
        }
        self.positive(&f("bytes"), l.bytes.value)?;
        if let Some(u) = l.usable {
            self.positive(&f("usable"), u.value)?;
        }
        if l.shared_by == 0 {
            return self.fail(
                &f("shared_by"),
                "0 workers share it; a private level says 1",
            );
        }
        if l.line == 0 {
            return self.fail(
                &f("line"),
                "a line of 0 bytes; give the transfer unit in bytes",
            );
        }
        self.not_negative(&f("latency_s"), l.latency_s.value)?;
        self.bandwidth(&f("read"), &l.read)?;
        self.bandwidth(&f("write"), &l.write)?;
        if let Some(b) = &l.bus {
            self.positive(&f("bus.pin_bits_per_s"), b.pin_bits_per_s.value)?;
            if b.bits.value == 0 || b.bits.value > 1 << 20 {
                return self.fail(
                    &f("bus.bits"),
                    format!("{} data pins; give the bus width in bits", b.bits.value),
                );
            }
        }
        if let Some(same) = &l.same_place_as
            && !all.iter().any(|o| &o.name == same && o.name != l.name)
        {
            return self.fail(
                &f("same_place_as"),
                format!("no other level is called `{same}`"),
            );
        }
        Ok(())
    }
}

pub(crate) fn check(m: &Machine) -> Result<(), MachineError> {
    let c = Checker { machine: &m.name };
    if m.name.trim().is_empty() {
        return c.fail("name", "a machine needs a name");
    }
    if m.workers.count.value == 0 || m.workers.count.value > 1 << 20 {
        return c.fail(
            "workers.count",
            format!("{} must be from 1 to 1048576", m.workers.count.value),
        );
    }
    c.positive("workers.clock_hz", m.workers.clock_hz.value)?;
    if m.workers.lanes.value == 0 {
        return c.fail("workers.lanes", "0 lanes; a scalar machine has 1");
    }
    if m.levels.is_empty() {
        return c.fail(
            "levels",
            "no level is described; at least the main memory is needed",
        );
    }
    for (i, l) in m.levels.iter().enumerate() {
        c.level(i, l, &m.levels)?;
    }
    c.limits(&m.limits)?;
    if m.units.is_empty() {
        return c.fail(
            "units",
            "no unit is described; at least one with class = \"fma\" is needed",
        );
    }
    for (i, u) in m.units.iter().enumerate() {
        c.positive(&format!("units[{i}].per_worker"), u.per_worker.value)?;
        c.positive(&format!("units[{i}].all"), u.all.value)?;
        if u.tile.0 == 0 || u.tile.1 == 0 || u.tile.2 == 0 {
            return c.fail(
                &format!("units[{i}].tile"),
                "a tile has an extent of 0; a vector unit says [1, lanes, 1]",
            );
        }
    }
    for (i, l) in m.links.iter().enumerate() {
        c.positive(&format!("links[{i}].bandwidth"), l.bandwidth.value)?;
        c.not_negative(&format!("links[{i}].latency_s"), l.latency_s.value)?;
        if m.level_index(&l.from).is_none() {
            return c.fail(
                &format!("links[{i}].from"),
                format!("no level is called `{}`", l.from),
            );
        }
    }
    let costs: [(&str, Sourced); 8] = [
        ("launch_s", m.costs.launch_s),
        ("handoff_s", m.costs.handoff_s),
        ("wake_s", m.costs.wake_s),
        ("step_s", m.costs.step_s),
        ("task_s", m.costs.task_s),
        ("tile_s", m.costs.tile_s),
        ("row_s", m.costs.row_s),
        ("call_s", m.costs.call_s),
    ];
    for (k, v) in costs {
        c.not_negative(&format!("costs.{k}"), v.value)?;
    }
    for (k, v) in m.costs.ways.iter().flat_map(|w| w.all()) {
        match k {
            "staged" => c.positive("costs.ways.staged", v.value)?,
            k => c.not_negative(&format!("costs.ways.{k}"), v.value)?,
        }
    }
    c.not_negative("workers.exposed", m.workers.exposed.value)?;
    if let Some(p) = m.power_w {
        c.positive("power_w", p.value)?;
    }
    Ok(())
}

impl Machine {
    /// The TOML form: one line per field, sections for levels, units and links.
    ///
    /// # Errors
    /// [`MachineError::Write`] when a number has no text form.
    pub fn to_toml(&self) -> Result<String, MachineError> {
        to_toml_text(self, &self.name)
    }

    /// Reads and checks the TOML form; `file` names it in errors.
    ///
    /// # Errors
    /// [`MachineError::Parse`] or [`MachineError::FieldAt`], with file, line and what is missing or wrong.
    pub fn from_toml(text: &str, file: &str) -> Result<Machine, MachineError> {
        let m: Machine = parse(text, file)?;
        m.check().map_err(|e| match e {
            MachineError::Field { field, message, .. } => {
                let line = line_of(text, &field);
                MachineError::FieldAt {
                    file: file.to_string(),
                    line,
                    field,
                    message,
                }
            }
            e => e,
        })?;
        Ok(m)
    }

    /// Reads a machine file.
    ///
    /// # Errors
    /// As [`Machine::from_toml`], and [`MachineError::Io`] when it cannot be read.
    pub fn from_file(path: &Path) -> Result<Machine, MachineError> {
        let io = |source| MachineError::Io {
            path: path.to_path_buf(),
            source,
        };
        let text = files::text(path, files::WRITTEN).map_err(io)?;
        Machine::from_toml(&text, &path.display().to_string())
    }

    /// The hash of the whole description: what a plan names as the machine it was made for.
    /// The same description has the same hash in every process.
    pub fn hash(&self) -> [u8; 32] {
        // The text form is canonical: fixed key order, shortest digits that read back exactly.
        let text = self.to_toml().unwrap_or_else(|e| format!("{e}{self:?}"));
        *blake3::hash(text.as_bytes()).as_bytes()
    }

    /// [`Machine::hash`] in hexadecimal.
    pub fn hash_hex(&self) -> String {
        blake3::Hash::from_bytes(self.hash()).to_hex().to_string()
    }

    /// What identifies the hardware regardless of its numbers: name, vendor, ISA, workers and level
    /// sizes, hashed; the key under which a calibration is stored.
    pub fn identity(&self) -> String {
        let mut s = format!(
            "{}|{}|{}|{}|{}",
            self.name,
            self.vendor,
            self.arch,
            self.isa.name,
            self.isa.features.join(",")
        );
        let _ = write!(s, "|{}", self.workers.count.value);
        for l in &self.levels {
            if l.name != "host" {
                let _ = write!(s, "|{}={}/{}", l.name, l.bytes.value, l.shared_by);
            }
        }
        blake3::hash(s.as_bytes()).to_hex()[..32].to_string()
    }
}
