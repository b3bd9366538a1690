//! PTX that a kernel's user wrote: its entry, found in the text, against what it is launched with.
use super::{ParamSpec, ParamValue, Ptx};
use crate::EmitError;
use kernel::{Code, Kernel};
use layout::Dim;
use std::sync::Arc;

/// Types of parameters: 8 bytes each.
const WIDE: [&str; 3] = [".u64", ".s64", ".b64"];

/// The text without comments, strings as they are.
fn bare(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let end = if from.starts_with("//") {
            from.find('\n').unwrap_or(from.len())
        } else if from.starts_with("/*") {
            from.find("*/").map_or(from.len(), |e| e + 2)
        } else {
            out.push('/');
            1
        };
        if end > 1 {
            out.push(' ');
        }
        rest = &from[end..];
    }
    out.push_str(rest);
    out
}

/// Names of the entries in a text without comments, and what stands in the brackets behind each.
fn entries(text: &str) -> Vec<(&str, &str)> {
    let mut out = vec![];
    for piece in text.split(".entry").skip(1) {
        // Another directive that begins so.
        if !piece.starts_with(char::is_whitespace) {
            continue;
        }
        let piece = piece.trim_start();
        let end = piece
            .find(|c: char| c.is_whitespace() || c == '(' || c == '{')
            .unwrap_or(piece.len());
        let (name, rest) = piece.split_at(end);
        let rest = rest.trim_start();
        let params = rest
            .strip_prefix('(')
            .and_then(|r| r.split_once(')'))
            .map_or("", |p| p.0);
        out.push((name, params));
    }
    out
}

/// Why `code` cannot be launched for `kernel`, in one sentence.
fn wrong(kernel: &Kernel, code: &Code) -> Option<String> {
    let text = bare(&code.text);
    for directive in [".version", ".target"] {
        if !text.contains(directive) {
            return Some(format!(
                "its PTX has no {directive} line; give the whole module as an assembler takes it"
            ));
        }
    }
    let all = entries(&text);
    let Some((_, params)) = all.iter().find(|e| e.0 == code.entry) else {
        let names: Vec<&str> = all.iter().map(|e| e.0).collect();
        return Some(format!(
            "its PTX has no entry '{}' ({}); write 'ptx ENTRY' with the name behind .entry",
            code.entry,
            match names.is_empty() {
                true => "it has none".into(),
                false => format!("there are {}", names.join(", ")),
            }
        ));
    };
    let params: Vec<&str> = params
        .split(',')
        .map(str::trim)
        .filter(|p| !p.is_empty())
        .collect();
    let (operands, sizes) = (kernel.operands.len(), code.sizes.len());
    if params.len() != operands + sizes {
        return Some(format!(
            "entry '{}' has {} parameters where {operands} addresses ({}) and {sizes} sizes are passed; give it as many",
            code.entry,
            params.len(),
            (kernel.operands.iter().map(|o| o.name.as_str()))
                .collect::<Vec<_>>()
                .join(", ")
        ));
    }
    for (i, p) in params.iter().enumerate() {
        let mut words = p.split_whitespace();
        let wide = words.any(|w| WIDE.contains(&w));
        if !wide || p.contains('[') {
            return Some(format!(
                "parameter {i} of entry '{}' is '{p}', and what is passed has 8 bytes; declare it as .param .{}64",
                code.entry,
                if i < operands { 'u' } else { 's' }
            ));
        }
    }
    None
}

/// A launch's CTAs and threads along x, y and z, and the dynamic shared memory of a CTA in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Shape {
    pub grid: [u32; 3],
    pub threads: [u32; 3],
    pub shared_bytes: u32,
}

impl Ptx {
    /// How it is launched for `tasks` tasks where `value` knows dimensions; `None` where it does not, or
    /// where one of the figures is no number of 31 bits.
    pub fn shape(&self, tasks: u64, value: &dyn Fn(&Dim) -> Option<i64>) -> Option<Shape> {
        let small = |n: i64| u32::try_from(n).ok().filter(|n| *n < 1 << 31);
        let Some(code) = &self.own else {
            return Some(Shape {
                grid: [small(i64::try_from(self.ctas(tasks)).ok()?)?, 1, 1],
                threads: [self.threads, 1, 1],
                shared_bytes: self.shared_bytes,
            });
        };
        let one = |d: &Dim| small(value(d)?);
        let three = |d: &[Dim; 3]| Some([one(&d[0])?, one(&d[1])?, one(&d[2])?]);
        Some(Shape {
            grid: three(&code.grid)?,
            threads: three(&code.threads)?,
            shared_bytes: one(&code.shared)?,
        })
    }
}

/// Checks that `code` has its entry, with a parameter of 8 bytes for every operand of `kernel` and for
/// every size.
///
/// # Errors
/// [`EmitError::Rule`] with the entry or parameter and the remedy.
pub fn check(kernel: &Kernel, code: &Code) -> Result<(), EmitError> {
    match wrong(kernel, code) {
        None => Ok(()),
        Some(why) => Err(EmitError::Rule {
            kernel: kernel.name.clone(),
            statement: "its PTX".into(),
            rule: "code",
            why,
        }),
    }
}

/// `code` as what is launched for `kernel`.
pub(super) fn ptx(kernel: &Kernel, code: &Arc<Code>) -> Result<Ptx, EmitError> {
    check(kernel, code)?;
    let operands = kernel.operands.iter().enumerate().map(|(i, o)| ParamSpec {
        name: o.name.clone(),
        value: ParamValue::Operand(i as u16),
    });
    let sizes = code.sizes.iter().map(|d| ParamSpec {
        name: d.to_string(),
        value: ParamValue::Dim(d.clone()),
    });
    Ok(Ptx {
        text: code.text.clone(),
        entry: code.entry.clone(),
        params: operands.chain(sizes).collect(),
        threads: 0,
        shared_bytes: 0,
        walkers: 0,
        cluster: 1,
        // Nobody has counted them; an assembler decides.
        registers_estimate: 32,
        faults: vec![],
        early: false,
        own: Some(code.clone()),
    })
}
