//! A model file with properties added to its nodes and to itself, everything else byte for byte as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::Range;

use tensor::Bytes;

use super::parse_entry;
use super::wire::Cursor;
use crate::error::Error;

/// Key and value of a property.
pub type Property = (String, String);

enum Piece {
    /// Of the file as it was.
    Kept(Range<usize>),
    Made(Vec<u8>),
}

/// Pieces of a message.
#[derive(Default)]
struct Pieces {
    list: Vec<Piece>,
    len: u64,
}

fn varint(mut v: u64, out: &mut Vec<u8>) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Tag and length of a message in field `number`.
fn head(number: u64, len: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(8);
    varint(number << 3 | 2, &mut out);
    varint(len, &mut out);
    out
}

/// `StringStringEntryProto`s in field `number`.
fn entries(number: u64, list: &[Property]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in list {
        let mut entry = head(1, key.len() as u64);
        entry.extend_from_slice(key.as_bytes());
        entry.extend(head(2, value.len() as u64));
        entry.extend_from_slice(value.as_bytes());
        out.extend(head(number, entry.len() as u64));
        out.extend(entry);
    }
    out
}

impl Pieces {
    fn keep(&mut self, r: Range<usize>) {
        self.len += r.len() as u64;
        match self.list.last_mut() {
            Some(Piece::Kept(last)) if last.end == r.start => last.end = r.end,
            _ => self.list.push(Piece::Kept(r)),
        }
    }

    fn make(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.len += bytes.len() as u64;
            self.list.push(Piece::Made(bytes));
        }
    }

    /// A message in field `number`.
    fn message(&mut self, number: u64, inner: Pieces) {
        self.make(head(number, inner.len));
        self.len += inner.len;
        for p in inner.list {
            match (self.list.last_mut(), p) {
                (Some(Piece::Made(a)), Piece::Made(b)) => a.extend(b),
                (_, p) => self.list.push(p),
            }
        }
    }
}

/// An annotated model, ready to be written; it borrows the file that it was made of.
pub struct Annotated {
    file: Bytes,
    pieces: Pieces,
    nodes: usize,
}

impl Annotated {
    /// Writes the model.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&self, out: &mut impl Write) -> std::io::Result<()> {
        for p in &self.pieces.list {
            match p {
                Piece::Kept(r) => out.write_all(&self.file[r.clone()])?,
                Piece::Made(b) => out.write_all(b)?,
            }
        }
        Ok(())
    }

    /// How many nodes have properties of ours.
    pub fn nodes(&self) -> usize {
        self.nodes
    }
}

struct Facts<'a> {
    /// What the keys that are ours begin with: such properties of an earlier time are dropped.
    own: &'a str,
    of: &'a dyn Fn(&str) -> Vec<Property>,
    names: BTreeSet<String>,
    nodes: usize,
}

/// The model in `bytes`, called `name` in messages, with `facts` of each node of its main graph (by the
/// name that import gives it) and `whole` of the model. Properties whose keys begin with `own` are
/// replaced.
pub fn annotate(
    bytes: &Bytes,
    name: &str,
    own: &str,
    facts: &dyn Fn(&str) -> Vec<Property>,
    whole: &[Property],
) -> Result<Annotated, Error> {
    let mut facts = Facts {
        own,
        of: facts,
        names: BTreeSet::new(),
        nodes: 0,
    };
    let mut c = Cursor::new(bytes, name, "ModelProto");
    let mut pieces = Pieces::default();
    while let Some(f) = c.next_field()? {
        match f.number {
            7 => {
                let inner = c.message(f, "graph", "GraphProto")?;
                pieces.message(7, graph(inner, &mut facts)?);
            }
            14 => {
                if !parse_entry(&mut c, f, "metadata_props")?.0.starts_with(own) {
                    pieces.keep(f.at..c.at());
                }
            }
            _ => {
                c.skip(f)?;
                pieces.keep(f.at..c.at());
            }
        }
    }
    pieces.make(entries(14, whole));
    Ok(Annotated {
        file: bytes.clone(),
        pieces,
        nodes: facts.nodes,
    })
}

fn graph(mut c: Cursor<'_>, facts: &mut Facts<'_>) -> Result<Pieces, Error> {
    let mut pieces = Pieces::default();
    while let Some(f) = c.next_field()? {
        if f.number == 1 {
            let inner = c.message(f, "node", "NodeProto")?;
            pieces.message(1, node(inner, facts)?);
        } else {
            c.skip(f)?;
            pieces.keep(f.at..c.at());
        }
    }
    Ok(pieces)
}

fn node(mut c: Cursor<'_>, facts: &mut Facts<'_>) -> Result<Pieces, Error> {
    let mut pieces = Pieces::default();
    let (mut name, mut op, mut output) = (String::new(), String::new(), String::new());
    while let Some(f) = c.next_field()? {
        match f.number {
            2 => {
                let o = c.name(f, "output")?;
                if output.is_empty() {
                    output = o;
                }
            }
            3 => name = c.name(f, "name")?,
            4 => op = c.name(f, "op_type")?,
            9 => {
                if parse_entry(&mut c, f, "metadata_props")?
                    .0
                    .starts_with(facts.own)
                {
                    continue;
                }
            }
            _ => c.skip(f)?,
        }
        pieces.keep(f.at..c.at());
    }
    let name = imported([name, output, op], &mut facts.names);
    let own = (facts.of)(&name);
    facts.nodes += usize::from(!own.is_empty());
    pieces.make(entries(9, &own));
    Ok(pieces)
}

/// As import names nodes: by name, else by what they give, else by operator, the second of a name numbered.
fn imported(all: [String; 3], names: &mut BTreeSet<String>) -> String {
    let base = all.into_iter().find(|n| !n.is_empty()).unwrap_or_default();
    let (mut name, mut k) = (base.clone(), 1);
    while !names.insert(name.clone()) {
        k += 1;
        name = format!("{base}#{k}");
    }
    name
}

/// Where nodes of the main graph come from in their exporter's module tree, as slash-separated paths, by
/// the name that import gives the node; nodes whose exporter left nothing are not there.
pub fn modules(bytes: &Bytes, name: &str) -> Result<BTreeMap<String, String>, Error> {
    let (mut out, mut names) = (BTreeMap::new(), BTreeSet::new());
    let mut c = Cursor::new(bytes, name, "ModelProto");
    while let Some(f) = c.next_field()? {
        if f.number != 7 {
            c.skip(f)?;
            continue;
        }
        let mut graph = c.message(f, "graph", "GraphProto")?;
        while let Some(f) = graph.next_field()? {
            if f.number != 1 {
                graph.skip(f)?;
                continue;
            }
            let mut node = graph.message(f, "node", "NodeProto")?;
            let (mut name, mut op, mut output) = (String::new(), String::new(), String::new());
            let mut path = String::new();
            while let Some(f) = node.next_field()? {
                match f.number {
                    2 if output.is_empty() => output = node.name(f, "output")?,
                    3 => name = node.name(f, "name")?,
                    4 => op = node.name(f, "op_type")?,
                    9 => {
                        let (key, value) = parse_entry(&mut node, f, "metadata_props")?;
                        match key.as_str() {
                            "pkg.torch.onnx.name_scopes" => path = scopes(&value),
                            "namespace" if path.is_empty() => path = namespace(&value),
                            _ => {}
                        }
                    }
                    _ => node.skip(f)?,
                }
            }
            let name = imported([name, output, op], &mut names);
            if !path.is_empty() {
                out.insert(name, path);
            }
        }
    }
    Ok(out)
}

/// The path without its last part, which is the node itself.
fn parents(parts: Vec<&str>) -> String {
    let own = parts.len().saturating_sub(1);
    let all: Vec<&str> = parts[..own]
        .iter()
        .copied()
        .filter(|p| !p.is_empty())
        .collect();
    all.join("/")
}

/// `['', 'layer1', 'layer1.0', 'conv2d_3']`: names from the whole model to the node.
fn scopes(text: &str) -> String {
    let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
    let parts = inner.split(',').map(|p| p.trim().trim_matches(['\'', '"']));
    parents(parts.collect())
}

/// `: Model/layer1: Sequential/conv2d: aten.conv2d`: names and classes from the whole model to the node.
fn namespace(text: &str) -> String {
    let name = |p| str::split(p, ':').next().unwrap_or(p).trim();
    parents(text.split('/').map(name).collect())
}
