//! TOML that people write, read into a type; errors name the line and what is wrong there.

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

/// Why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct TomlError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong and what is expected, and in which section.
    pub message: String,
}

/// Reads a text.
///
/// # Errors
/// It is not TOML, or does not hold what the type needs.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, TomlError> {
    if let Some(line) = too_deep(text) {
        let message = format!("more than {DEEPEST} values or names inside each other; write fewer");
        return Err(TomlError { line, message });
    }
    let mut value: Value = basic_toml::from_str(text).map_err(|e| said(text, &e))?;
    if let Some(path) = first_null(&value) {
        let message = format!("{} is not finite; write a number that is", path.join("."));
        return Err(mistake(text, &path, &message));
    }
    // Types are read from values, and not from the text by its reader: that would compile most of the reader again for
    // each of them.
    let read = |value: &Value| T::deserialize(value).map_err(|e| e.to_string());
    read(&value).map_err(|message| {
        let mut faulty = Faulty {
            value: &mut value,
            message: &message,
            said: &|v| read(v).err(),
        };
        let path = faulty.path();
        mistake(text, &path, &message)
    })
}

/// Values or names inside each other at most. The reader calls itself for each, and the stack is not endless.
const DEEPEST: usize = 64;

/// The line, from 1, where values or names are deeper inside each other than [`DEEPEST`].
fn too_deep(text: &str) -> Option<usize> {
    let (mut line, mut open, mut names) = (1, 0usize, 0);
    let mut rest = text.as_bytes();
    while let Some(&first) = rest.first() {
        let len = match first {
            b'#' => rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()),
            b'"' | b'\'' => string_len(rest),
            _ => 1,
        };
        match first {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            b'.' => names += 1,
            b',' | b'=' | b'\n' => names = 0,
            _ => {}
        }
        if open.max(names) > DEEPEST {
            return Some(line);
        }
        let (token, after) = rest.split_at(len);
        line += token.iter().filter(|&&b| b == b'\n').count();
        rest = after;
    }
    None
}

/// Bytes of the string that a text begins with, quotes included.
fn string_len(text: &[u8]) -> usize {
    let quote = text[0];
    let three = text.starts_with(&[quote; 3]);
    let ends = &text[..if three { 3 } else { 1 }];
    let mut at = ends.len();
    while at < text.len() && !text[at..].starts_with(ends) && (three || text[at] != b'\n') {
        at += 1 + usize::from(quote == b'"' && text[at] == b'\\');
    }
    at += ends.len();
    // Two quotes may stand before the three that end it.
    for _ in 0..2 {
        at += usize::from(three && text.get(at) == Some(&quote));
    }
    at.min(text.len())
}

/// What the reader says, its place taken off, and the line.
fn said(text: &str, e: &basic_toml::Error) -> TomlError {
    let (line, column) = e.line_col().unwrap_or_default();
    let all = e.to_string();
    let place = format!(" at line {} column {}", line + 1, column + 1);
    let message = all.strip_suffix(&place).unwrap_or(&all).replace('\n', "; ");
    let headers = text.lines().take(line + 1).filter(|l| is_header(l));
    in_section(line + 1, &message, headers.last())
}

fn in_section(line: usize, message: &str, header: Option<&str>) -> TomlError {
    let message = match header {
        Some(header) => format!("{message} (in {})", header.trim()),
        None => message.to_string(),
    };
    TomlError { line, message }
}

/// Names of tables, and places in arrays, from the whole to a part of it.
type Path = Vec<String>;

/// The first number that is not finite: as a value it is none.
fn first_null(value: &Value) -> Option<Path> {
    let inside = |k: String, v: &Value| {
        first_null(v).map(|mut path| {
            path.insert(0, k);
            path
        })
    };
    match value {
        Value::Null => Some(Path::new()),
        Value::Array(all) => (all.iter().enumerate()).find_map(|(i, v)| inside(i.to_string(), v)),
        Value::Object(all) => all.iter().find_map(|(k, v)| inside(k.clone(), v)),
        _ => None,
    }
}

/// What a path leads to; paths are made of what there is.
fn part<'a>(mut value: &'a mut Value, path: &[String]) -> &'a mut Value {
    for k in path {
        value = match value {
            Value::Array(all) => &mut all[k.parse::<usize>().unwrap_or(0)],
            other => &mut other[k],
        };
    }
    value
}

/// A value that cannot be read, and what is said of it.
struct Faulty<'a> {
    value: &'a mut Value,
    message: &'a str,
    /// What is said of another value; nothing where it can be read.
    said: &'a dyn Fn(&Value) -> Option<String>,
}

impl Faulty<'_> {
    /// What is said once the part that a path leads to is changed.
    fn said_with(&mut self, path: &[String], edit: impl FnOnce(&mut Value)) -> Option<String> {
        let before = part(self.value, path).clone();
        edit(part(self.value, path));
        let now = (self.said)(self.value);
        *part(self.value, path) = before;
        now
    }

    /// Whether something else is said then, or nothing.
    fn changes(&mut self, path: &[String], edit: impl FnOnce(&mut Value)) -> bool {
        self.said_with(path, edit).as_deref() != Some(self.message)
    }

    /// Whether the table that a path leads to is the one that `name` is missing from: others do not know it.
    fn lacks(&mut self, path: &[String], name: &str) -> bool {
        let now = self.said_with(path, |v| v[name] = Value::Null);
        now.is_none_or(|now| now != self.message && !now.starts_with("unknown field `"))
    }

    /// Whether the part called `key` of the one that a path leads to is read before the fault, or holds it: parts are
    /// read in their order, and something senseless in place of one that is read changes what is said.
    fn reaches(&mut self, path: &[String], key: &str) -> bool {
        let own = [path, &[key.to_string()]].concat();
        let mut kinds = senseless().into_iter();
        kinds.any(|other| self.changes(&own, |v| *v = other))
    }

    /// The part that the fault is in.
    fn path(&mut self) -> Path {
        let message = self.message;
        let named = |what: &str| message.strip_prefix(what)?.split('`').next();
        let (missing, unknown) = (named("missing field `"), named("unknown field `"));
        let mut path = Path::new();
        loop {
            let here = part(self.value, &path);
            let table = here.is_object();
            let keys: Vec<String> = match here {
                Value::Array(all) => (0..all.len()).map(|i| i.to_string()).collect(),
                Value::Object(all) => all.keys().cloned().collect(),
                _ => return path,
            };
            let has = |name: &str| keys.iter().any(|k| k == name);
            if let Some(name) = unknown.filter(|n| table && has(n))
                && self.changes(&path, |v| {
                    drop(v.as_object_mut().and_then(|v| v.remove(name)))
                })
            {
                path.push(name.to_string());
                return path;
            }
            if let Some(name) = missing.filter(|n| table && !has(n))
                && self.lacks(&path, name)
            {
                return path;
            }
            match keys.partition_point(|k| self.reaches(&path, k)) {
                0 => return path,
                read => path.push(keys[read - 1].clone()),
            }
        }
    }
}

/// What no part takes, of two kinds: what is said of one may be the message itself.
fn senseless() -> [Value; 2] {
    [
        serde_json::json!([[true]]),
        serde_json::json!({"\0": [true]}),
    ]
}

/// The mistake in the line of the part that a path leads to, and with the section that the line is in.
fn mistake(text: &str, path: &[String], message: &str) -> TomlError {
    let (mut line, mut header, mut rest) = (1, None, path);
    // How many elements each array of tables has so far, by its path.
    let mut arrays: BTreeMap<Path, usize> = BTreeMap::new();
    for (n, l) in text.lines().enumerate().filter(|(_, l)| is_header(l)) {
        let section = section(l, &mut arrays);
        if let Some(after) = path.strip_prefix(&section[..]) {
            (line, header, rest) = (n + 1, Some(l), after);
        }
    }
    if let Some(name) = rest.first() {
        let inside = text
            .lines()
            .enumerate()
            .skip(line - usize::from(header.is_none()));
        let mut inside = inside.take_while(|(_, l)| !is_header(l));
        line = inside
            .find(|(_, l)| gives(l, name))
            .map_or(line, |(n, _)| n + 1);
    }
    in_section(line, message, header)
}

fn is_header(line: &str) -> bool {
    line.trim_start().starts_with('[')
}

/// Whether a line gives `name`, or a part of it, a value.
fn gives(line: &str, name: &str) -> bool {
    let line = line.trim_start();
    let bare = line.trim_start_matches(['"', '\'']);
    let rest = bare
        .strip_prefix(name)
        .map(|r| r.trim_start_matches(['"', '\'']));
    rest.is_some_and(|r| r.trim_start().starts_with(['=', '.']))
}

/// The path of the section that a header begins. `arrays` has the number of elements of arrays of tables.
fn section(header: &str, arrays: &mut BTreeMap<Path, usize>) -> Path {
    let header = header.trim();
    let names = header.trim_start_matches('[');
    let names = names.split(']').next().unwrap_or_default();
    let mut path = Path::new();
    for name in names.split('.') {
        path.push(name.trim().trim_matches(['"', '\'']).to_string());
        if let Some(n) = arrays.get(&path) {
            path.push((n - 1).to_string());
        }
    }
    if header.starts_with("[[") {
        // The last name's own index is that of the element before this one.
        if arrays.contains_key(&path[..path.len() - 1]) {
            path.pop();
        }
        let n = arrays.entry(path.clone()).or_default();
        *n += 1;
        path.push((*n - 1).to_string());
    }
    path
}
