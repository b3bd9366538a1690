//! Calling a kernel that is given as text: its attributes get numbers, its symbols the sizes of the tensors
//! that it is called with. Import of custom operators uses it; reading the text is in `parse` and `read`.
use crate::given::in_code;
use crate::{Given, Kernel, KernelError, Operand, Role, Shape};
use layout::{DType, Dim, Sym};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A kernel with the shapes that its text gives to operands.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// The kernel.
    pub kernel: Kernel,
    /// By operand; `None` where the text says nothing.
    pub shapes: Vec<Option<Shape>>,
    /// How it is to run.
    pub given: Given,
}

/// A number for an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole one: also a size.
    Int(i64),
    /// One of 32 bits, as formulas read it.
    Float(f32),
}

/// A kernel's text before its attributes are numbers: `attribute NAME = DEFAULT` (or without a default)
/// above its first line, `$NAME` where the number is to stand.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    text: String,
    attributes: Vec<(String, Option<String>)>,
}

/// A kernel that is called with tensors of known types.
#[derive(Clone, Debug, PartialEq)]
pub struct Called {
    /// Its sizes in the symbols of the tensors.
    pub kernel: Kernel,
    /// How it is to run, in the same symbols.
    pub given: Given,
    /// What it gives: name, type, shape.
    pub outputs: Vec<(String, DType, Vec<Dim>)>,
    /// Sizes that have to be equal and are not seen to be.
    pub equal: Vec<(Dim, Dim)>,
}

/// Length of the name that `text` begins with.
fn name_len(text: &str) -> usize {
    text.find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(text.len())
}

impl Template {
    /// Reads the lines of attributes.
    ///
    /// # Errors
    /// [`KernelError::Text`]: such a line is another, or one attribute is there twice.
    pub fn parse(text: &str) -> Result<Template, KernelError> {
        let mut attributes: Vec<(String, Option<String>)> = vec![];
        let mut kept = String::with_capacity(text.len());
        for (i, (line, code)) in in_code(text).enumerate() {
            let rest = line.trim().strip_prefix("attribute ").filter(|_| !code);
            // Its line stays, so that later ones keep their numbers.
            if let Some(rest) = rest {
                let (name, default) = match rest.split_once('=') {
                    Some((n, d)) => (n.trim(), Some(d.trim())),
                    None => (rest.trim(), None),
                };
                let number = default.is_none_or(|d| d.parse::<f64>().is_ok_and(f64::is_finite));
                let known = attributes.iter().any(|(n, _)| n == name);
                if name.is_empty() || name_len(name) != name.len() || !number || known {
                    let why = match known {
                        true => format!("attribute '{name}' is there twice"),
                        false => {
                            "it is written as 'attribute NAME' or 'attribute NAME = NUMBER'".into()
                        }
                    };
                    return Err(KernelError::Text {
                        line: i + 1,
                        column: 1,
                        why,
                    });
                }
                attributes.push((name.into(), default.map(Into::into)));
            } else {
                kept.push_str(line);
            }
            kept.push('\n');
        }
        Ok(Template {
            text: kept,
            attributes,
        })
    }

    /// Names of its attributes, and whether each has a default.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, bool)> {
        self.attributes
            .iter()
            .map(|(n, d)| (n.as_str(), d.is_some()))
    }

    /// The kernel with `values` for its attributes, and their defaults for others.
    ///
    /// # Errors
    /// [`KernelError::Call`] for an attribute that is missing, not known or not finite;
    /// [`KernelError::Text`] for a text that cannot be read.
    pub fn with(&self, values: &BTreeMap<String, Number>) -> Result<Declared, KernelError> {
        let wrong = |why: String| Err(KernelError::Call(why));
        let all: Vec<&str> = self.attributes.iter().map(|(n, _)| n.as_str()).collect();
        if let Some(name) = values.keys().find(|n| !all.contains(&n.as_str())) {
            return wrong(format!(
                "attribute '{name}' is not one of the kernel's ({}); remove it, or write 'attribute {name}' above the kernel's first line",
                if all.is_empty() {
                    "it has none".into()
                } else {
                    all.join(", ")
                }
            ));
        }
        let mut numbers: BTreeMap<&str, String> = BTreeMap::new();
        for (name, default) in &self.attributes {
            let number = match (values.get(name), default) {
                (Some(Number::Int(n)), _) => n.to_string(),
                (Some(Number::Float(x)), _) if x.is_finite() => format!("{x:?}"),
                (Some(Number::Float(x)), _) => {
                    return wrong(format!(
                        "attribute '{name}' is {x}, which no kernel can compute with"
                    ));
                }
                (None, Some(d)) => d.clone(),
                (None, None) => {
                    return wrong(format!(
                        "attribute '{name}' is missing, and the kernel has no default for it; give the node one, or write 'attribute {name} = NUMBER'"
                    ));
                }
            };
            numbers.insert(name, number);
        }
        let mut text = String::with_capacity(self.text.len());
        for (i, (line, code)) in in_code(&self.text).enumerate() {
            let mut rest = line;
            // Labels of PTX begin with '$' too.
            while !code
                && !line.trim_start().starts_with('#')
                && let Some(at) = rest.find('$')
            {
                let name = &rest[at + 1..][..name_len(&rest[at + 1..])];
                let Some(number) = numbers.get(name) else {
                    return Err(KernelError::Text {
                        line: i + 1,
                        column: line.len() - rest.len() + at + 1,
                        why: format!(
                            "'${name}' is no attribute; write 'attribute {name} = NUMBER' above the kernel's first line"
                        ),
                    });
                };
                text.push_str(&rest[..at]);
                text.push_str(number);
                rest = &rest[at + 1 + name.len()..];
            }
            text.push_str(rest);
            text.push('\n');
        }
        Declared::parse(&text)
    }
}

/// The shape that plain strides say: row-major over the axes of the address.
fn of_strides(kernel: &Kernel, o: &Operand) -> Option<Vec<Dim>> {
    let a = &o.access;
    if !a.bounds.is_empty() || !a.indexed.is_empty() || !a.offset.is_zero() {
        return None;
    }
    let mut left: Vec<(&Dim, &Dim)> = vec![];
    for t in &a.terms {
        left.push((t.stride()?, &kernel.axes[t.axis as usize].extent));
    }
    let (mut inner, mut shape) = (Dim::ONE, vec![]);
    while let Some(at) = left.iter().position(|(stride, _)| **stride == inner) {
        let (_, extent) = left.remove(at);
        inner = inner * extent.clone();
        shape.insert(0, extent.clone());
    }
    left.is_empty().then_some(shape)
}

fn list(shape: &[Dim]) -> String {
    let parts: Vec<String> = shape.iter().map(Dim::to_string).collect();
    format!("[{}]", parts.join(", "))
}

impl Declared {
    /// The shape of operand `at`: as it is written, else as its plain strides say.
    pub fn shape(&self, at: usize) -> Option<Shape> {
        let written = self.shapes.get(at).cloned().flatten();
        let o = self.kernel.operands.get(at)?;
        written.or_else(|| of_strides(&self.kernel, o).map(Shape::Dims))
    }

    /// Whether `shape` holds what the kernel touches of operand `o`.
    pub fn holds(o: &Operand, shape: &[Dim]) -> bool {
        let room = Dim::product(shape);
        room == o.elements || o.elements.provably_le(&room)
    }

    /// As [`Declared::shape`]; that there is none is an error.
    fn needs_shape(&self, at: usize) -> Result<Shape, String> {
        let o = &self.kernel.operands[at];
        let word = match o.role {
            Role::Read => "read",
            Role::Write => "write",
        };
        self.shape(at).ok_or_else(|| {
            format!(
                "the address of operand '{0}' of kernel '{2}' does not say its shape; write it behind its type: {word} {0} {1} [rows, cols] = ...",
                o.name, o.dtype, self.kernel.name
            )
        })
    }

    /// What each input's text asks for beside what is given, extent by extent.
    fn extents(&self, given: &[(DType, Vec<Dim>)]) -> Result<Extents, String> {
        let title = &self.kernel.name;
        let reads: Vec<usize> = (0..self.kernel.operands.len())
            .filter(|&i| self.kernel.operands[i].role == Role::Read)
            .collect();
        if reads.len() != given.len() {
            let names: Vec<&str> =
                (reads.iter().map(|&i| self.kernel.operands[i].name.as_str())).collect();
            return Err(format!(
                "it has {} inputs where kernel '{title}' reads {} ({}); give it as many",
                given.len(),
                reads.len(),
                names.join(", ")
            ));
        }
        let mut pairs: Vec<(Dim, Dim, usize)> = vec![];
        let mut any: Vec<(Dim, Vec<Dim>)> = vec![];
        for (n, (&at, (dtype, shape))) in reads.iter().zip(given).enumerate() {
            let o = &self.kernel.operands[at];
            if o.dtype != *dtype {
                return Err(format!(
                    "input {n} is {dtype} where kernel '{title}' reads '{}' as {}; put a Cast before it, or bind a kernel for {dtype}",
                    o.name, o.dtype
                ));
            }
            match self.needs_shape(at)? {
                Shape::Any(elements) => {
                    pairs.push((elements.clone(), Dim::product(shape), n));
                    any.push((elements, shape.clone()));
                }
                Shape::Dims(want) if want.len() == shape.len() => {
                    let both = want.into_iter().zip(shape.iter().cloned());
                    pairs.extend(both.map(|(w, s)| (w, s, n)));
                }
                Shape::Dims(want) => {
                    return Err(format!(
                        "input {n} has shape {} where kernel '{title}' reads '{}' as {}; give it that rank, or write its shape as [n..] if any will do",
                        list(shape),
                        o.name,
                        list(&want)
                    ));
                }
            }
        }
        let mut sizes: BTreeMap<Sym, Dim> = BTreeMap::new();
        for (want, is, _) in &pairs {
            if let Some(s) = want.as_sym() {
                sizes.entry(s.into()).or_insert_with(|| is.clone());
            }
        }
        Ok(Extents {
            reads,
            pairs,
            any,
            sizes,
        })
    }

    /// The extents that must be equal though it does not follow from the sizes.
    fn equalities(
        &self,
        given: &[(DType, Vec<Dim>)],
        extents: &Extents,
    ) -> Result<Vec<(Dim, Dim)>, String> {
        let mut equal: Vec<(Dim, Dim)> = vec![];
        for (want, is, n) in &extents.pairs {
            let here = extents.put(want);
            if here == *is || equal.contains(&(here.clone(), is.clone())) {
                continue;
            }
            if here.provably_lt(is) || is.provably_lt(&here) {
                return Err(format!(
                    "input {n} has shape {}, where kernel '{}' wants {want} = {here} of '{}' and finds {is}; give it tensors that fit",
                    list(&given[*n].1),
                    self.kernel.name,
                    self.kernel.operands[extents.reads[*n]].name
                ));
            }
            equal.push((here, is.clone()));
        }
        Ok(equal)
    }

    /// Names, types and shapes of what the kernel writes.
    fn outputs(&self, extents: &Extents) -> Result<Vec<(String, DType, Vec<Dim>)>, String> {
        let mut outputs = vec![];
        for (at, o) in self.kernel.operands.iter().enumerate() {
            if o.role == Role::Write {
                let shape = match self.needs_shape(at)? {
                    Shape::Dims(d) => d.iter().map(|d| extents.put(d)).collect(),
                    Shape::Any(n) => match extents.any.iter().find(|(m, _)| *m == n) {
                        Some((_, shape)) => shape.clone(),
                        None => vec![extents.put(&n)],
                    },
                };
                outputs.push((o.name.clone(), o.dtype, shape));
            }
        }
        match outputs.is_empty() {
            false => Ok(outputs),
            true => Err(format!(
                "kernel '{}' writes nothing; give it a 'write' operand and store to it",
                self.kernel.name
            )),
        }
    }

    /// Calls the kernel with tensors of these types: each symbol of it becomes the size that they give.
    ///
    /// # Errors
    /// One sentence: another number of tensors, another type or rank, sizes that contradict each other.
    pub fn call(self, given: &[(DType, Vec<Dim>)]) -> Result<Called, String> {
        let extents = self.extents(given)?;
        let title = &self.kernel.name;
        let mut kernel = self.kernel.clone();
        let mut used = BTreeSet::new();
        kernel.for_each_dim(&mut |d| d.symbols(&mut used));
        if let Some(s) = used.iter().find(|s| !extents.sizes.contains_key(*s)) {
            return Err(format!(
                "no input gives kernel '{title}' the size '{s}'; make it an extent of what it reads, or an attribute (attribute {s}, and ${s} where it stands)"
            ));
        }
        let equal = self.equalities(given, &extents)?;
        let outputs = self.outputs(&extents)?;
        kernel.for_each_dim_mut(&mut |d| *d = extents.put(d));
        let mut how = self.given;
        if let Some(c) = &mut how.code {
            Arc::make_mut(c).for_each_dim_mut(&mut |d| *d = extents.put(d));
        }
        let mut shapes = given.iter().map(|g| &g.1);
        let mut made = outputs.iter().map(|o| &o.2);
        for o in &kernel.operands {
            let shape = match o.role {
                Role::Read => shapes.next(),
                Role::Write => made.next(),
            };
            // What is taken to be equal is proved when it is planned, or not.
            if let Some(shape) = shape.filter(|s| equal.is_empty() && !Declared::holds(o, s)) {
                return Err(format!(
                    "kernel '{title}' touches {} elements of '{}', which shape {} does not hold; give it a shape of so many",
                    o.elements,
                    o.name,
                    list(shape)
                ));
            }
        }
        Ok(Called {
            kernel,
            given: how,
            outputs,
            equal,
        })
    }
}

/// Extents that a kernel's text asks for, and those that are given.
struct Extents {
    /// Operands that are inputs.
    reads: Vec<usize>,
    /// What is asked for, what is there, and of which input.
    pairs: Vec<(Dim, Dim, usize)>,
    /// Inputs of any shape: elements as the text writes them, and the shape.
    any: Vec<(Dim, Vec<Dim>)>,
    /// The kernel's symbols.
    sizes: BTreeMap<Sym, Dim>,
}

impl Extents {
    /// `d` with the sizes put in.
    fn put(&self, d: &Dim) -> Dim {
        d.substitute(&|s| self.sizes.get(s).cloned())
    }
}
