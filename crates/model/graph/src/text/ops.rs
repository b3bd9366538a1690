//! Ops with their attributes.
use super::cursor::{Cursor, quoted};
use crate::shape::list;
use crate::{
    AttentionSpec, ContractSpec, ConvSpec, Graph, KernelSpec, Op, PadMode, PoolKind, PoolSpec,
    RecurrentSpec, ResampleSpec, ScatterReduce, Undefined, View,
};
use expr::{Expr, Monoid};
use layout::Dim;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tensor::{Attrs, WeightStore};

/// Name and attributes of `op`; bodies are written apart.
pub(super) fn head(op: &Op) -> String {
    let name = op.name();
    match op {
        Op::Map(e) => format!("map {{{e}}}"),
        Op::View(View::Reshape(s) | View::Expand(s)) => format!("{name} {}", list(s)),
        Op::View(View::Permute(p)) => format!("permute {p:?}"),
        Op::View(View::Slice {
            starts,
            steps,
            extents,
        }) => format!(
            "slice starts={} steps={steps:?} extents={}",
            list(starts),
            list(extents)
        ),
        Op::Concat { axis } | Op::Gather { axis, batch: 0 } => format!("{name} axis={axis}"),
        Op::Gather { axis, batch } => format!("{name} axis={axis} batch={batch}"),
        Op::Pad {
            before,
            after,
            mode,
        } => format!(
            "pad before={} after={} mode={}",
            list(before),
            list(after),
            pad_name(*mode)
        ),
        Op::ScatterNd(r) => format!("scatter_nd {}", scatter_name(*r)),
        Op::Contract(s) => format!(
            "contract {},{}->{}",
            labels(&s.a),
            labels(&s.b),
            labels(&s.out)
        ),
        Op::Conv(s) => format!(
            "conv kernel={:?} strides={:?} dilations={:?} before={} after={} groups={} transposed={}{}",
            s.kernel,
            s.strides,
            s.dilations,
            list(&s.before),
            list(&s.after),
            s.groups,
            s.transposed,
            match s.outside {
                0 => String::new(),
                v => format!(" outside={v}"),
            }
        ),
        Op::Pool(s) => {
            let kind = match s.kind {
                PoolKind::Max => "max".to_string(),
                PoolKind::Average { include_pad: true } => "average_with_pad".into(),
                PoolKind::Average { include_pad: false } => "average".into(),
                PoolKind::Lp { p } => format!("lp p={p}"),
            };
            format!(
                "pool {kind} kernel={:?} strides={:?} dilations={:?} before={} after={}",
                s.kernel,
                s.strides,
                s.dilations,
                list(&s.before),
                list(&s.after)
            )
        }
        Op::Reduce { monoid, axes, keep } => {
            format!("reduce axes={axes:?} keep={keep} {monoid}")
        }
        Op::Scan {
            monoid,
            axis,
            exclusive,
            reverse,
        } => format!("scan axis={axis} exclusive={exclusive} reverse={reverse} {monoid}"),
        Op::Attention(s) => {
            let undefined = match s.undefined {
                Undefined::Nan => "",
                Undefined::ZeroUnseen => "undefined=zero_unseen ",
                Undefined::Zero => "undefined=zero ",
            };
            format!("attention {undefined}{{{}}}", s.score)
        }
        Op::Sort {
            axis,
            k,
            descending,
        } => format!("sort axis={axis} k=[{k}] descending={descending}"),
        Op::Recurrent(s) => format!("recurrent {}", json(s)),
        Op::Resample(s) => format!("resample {}", json(s)),
        Op::Kernel(s) => format!("kernel {}", json(s)),
        Op::Host { name, attrs } => format!("host {} {}", quoted(name), json(attrs)),
        Op::If { .. } => "if".into(),
        Op::Loop {
            carried,
            has_trip,
            has_cond,
            ..
        } => format!("loop carried={carried} has_trip={has_trip} has_cond={has_cond}"),
    }
}

fn json<T: serde::Serialize>(v: &T) -> String {
    // Plain structs and maps with text keys always have a JSON form.
    serde_json::to_string(v).unwrap_or_default()
}

/// Letters stand for themselves; other labels are written as numbers.
fn labels(l: &[u8]) -> String {
    l.iter()
        .map(|&b| match b.is_ascii_alphabetic() {
            true => (b as char).to_string(),
            false => format!("<{b}>"),
        })
        .collect()
}

fn pad_name(m: PadMode) -> &'static str {
    match m {
        PadMode::Constant => "constant",
        PadMode::Edge => "edge",
        PadMode::Reflect => "reflect",
        PadMode::Wrap => "wrap",
    }
}

fn scatter_name(r: ScatterReduce) -> &'static str {
    match r {
        ScatterReduce::Replace => "replace",
        ScatterReduce::Add => "add",
        ScatterReduce::Mul => "mul",
        ScatterReduce::Max => "max",
        ScatterReduce::Min => "min",
    }
}

fn empty() -> Box<Graph> {
    Box::new(Graph {
        name: String::new(),
        values: vec![],
        nodes: vec![],
        inputs: vec![],
        outputs: vec![],
        symbols: vec![],
        assumptions: vec![],
        weights: Arc::new(WeightStore::new()),
    })
}

/// Reads what [`head`] writes; bodies are left empty.
pub(super) fn read(c: &mut Cursor) -> Result<Op, String> {
    let name = c.key()?;
    Ok(match name {
        "map" => Op::Map(program(c)?),
        "reshape" => Op::View(View::Reshape(c.dims()?)),
        "expand" => Op::View(View::Expand(c.dims()?)),
        "permute" => Op::View(View::Permute(c.list()?)),
        "slice" => read_slice(c)?,
        "concat" | "gather" => {
            c.field("axis")?;
            let axis = c.number()?;
            match name {
                "concat" => Op::Concat { axis },
                _ => Op::Gather {
                    axis,
                    batch: match c.given("batch") {
                        true => c.number()?,
                        false => 0,
                    },
                },
            }
        }
        "pad" => read_pad(c)?,
        "scatter_nd" => read_scatter(c)?,
        "contract" => {
            let a = read_labels(c)?;
            c.expect(",")?;
            let b = read_labels(c)?;
            c.expect("->")?;
            let out = read_labels(c)?;
            Op::Contract(ContractSpec { a, b, out })
        }
        "conv" => read_conv(c)?,
        "pool" => read_pool(c)?,
        "reduce" => {
            c.field("axes")?;
            let axes = c.list()?;
            let keep = c.flag("keep")?;
            Op::Reduce {
                monoid: monoid(c)?,
                axes,
                keep,
            }
        }
        "scan" => {
            c.field("axis")?;
            let axis = c.number()?;
            let exclusive = c.flag("exclusive")?;
            let reverse = c.flag("reverse")?;
            Op::Scan {
                monoid: monoid(c)?,
                axis,
                exclusive,
                reverse,
            }
        }
        "attention" => read_attention(c)?,
        "sort" => {
            c.field("axis")?;
            let axis = c.number()?;
            c.field("k")?;
            let k = c.dims()?;
            let [k] = k.as_slice() else {
                return Err("k is one extent".into());
            };
            Op::Sort {
                axis,
                k: k.clone(),
                descending: c.flag("descending")?,
            }
        }
        "recurrent" => Op::Recurrent(from_json::<RecurrentSpec>(c)?),
        "resample" => Op::Resample(from_json::<ResampleSpec>(c)?),
        "kernel" => Op::Kernel(from_json::<KernelSpec>(c)?),
        "host" => Op::Host {
            name: c.word(None)?,
            attrs: from_json::<Attrs>(c)?,
        },
        "if" => Op::If {
            then_branch: empty(),
            else_branch: empty(),
        },
        "loop" => {
            c.field("carried")?;
            let carried = c.number()?;
            Op::Loop {
                body: empty(),
                carried,
                has_trip: c.flag("has_trip")?,
                has_cond: c.flag("has_cond")?,
            }
        }
        other => return Err(format!("there is no op '{other}'")),
    })
}

fn read_slice(c: &mut Cursor) -> Result<Op, String> {
    c.field("starts")?;
    let starts = c.dims()?;
    c.field("steps")?;
    let steps = c.list()?;
    c.field("extents")?;
    Ok(Op::View(View::Slice {
        starts,
        steps,
        extents: c.dims()?,
    }))
}

fn read_pad(c: &mut Cursor) -> Result<Op, String> {
    let (before, after) = rims(c)?;
    c.field("mode")?;
    let word = c.key()?;
    let all = [
        PadMode::Constant,
        PadMode::Edge,
        PadMode::Reflect,
        PadMode::Wrap,
    ];
    let mode = all.into_iter().find(|m| pad_name(*m) == word);
    Ok(Op::Pad {
        before,
        after,
        mode: mode.ok_or_else(|| format!("there is no pad mode '{word}'"))?,
    })
}

fn read_scatter(c: &mut Cursor) -> Result<Op, String> {
    let word = c.key()?;
    let all = [
        ScatterReduce::Replace,
        ScatterReduce::Add,
        ScatterReduce::Mul,
        ScatterReduce::Max,
        ScatterReduce::Min,
    ];
    let how = all.into_iter().find(|r| scatter_name(*r) == word);
    let how = how.ok_or_else(|| format!("there is no reduction '{word}'"))?;
    Ok(Op::ScatterNd(how))
}

fn read_conv(c: &mut Cursor) -> Result<Op, String> {
    let (kernel, strides, dilations) = window(c)?;
    let (before, after) = rims(c)?;
    c.field("groups")?;
    let groups = c.number()?;
    let transposed = c.flag("transposed")?;
    let outside = match c.given("outside") {
        true => c.number()?,
        false => 0,
    };
    Ok(Op::Conv(ConvSpec {
        kernel,
        strides,
        dilations,
        before,
        after,
        groups,
        transposed,
        outside,
    }))
}

fn read_pool(c: &mut Cursor) -> Result<Op, String> {
    let kind = match c.key()? {
        "max" => PoolKind::Max,
        "average" => PoolKind::Average { include_pad: false },
        "average_with_pad" => PoolKind::Average { include_pad: true },
        "lp" => {
            c.field("p")?;
            PoolKind::Lp { p: c.number()? }
        }
        other => return Err(format!("there is no pool '{other}'")),
    };
    let (kernel, strides, dilations) = window(c)?;
    let (before, after) = rims(c)?;
    Ok(Op::Pool(PoolSpec {
        kind,
        kernel,
        strides,
        dilations,
        before,
        after,
    }))
}

fn read_attention(c: &mut Cursor) -> Result<Op, String> {
    let undefined = match c.given("undefined") {
        false => Undefined::Nan,
        true => match c.key()? {
            "zero_unseen" => Undefined::ZeroUnseen,
            "zero" => Undefined::Zero,
            other => return Err(format!("there is no undefined={other}")),
        },
    };
    Ok(Op::Attention(AttentionSpec {
        score: program(c)?,
        undefined,
    }))
}

fn program(c: &mut Cursor) -> Result<Expr, String> {
    c.enclosed('{', '}')?
        .parse()
        .map_err(|e: expr::ExprError| e.to_string())
}

fn monoid(c: &mut Cursor) -> Result<Monoid, String> {
    c.space();
    let start = c.rest;
    c.take(|ch| ch != '{');
    for _ in 0..4 {
        c.enclosed('{', '}')?;
    }
    start[..start.len() - c.rest.len()]
        .parse()
        .map_err(|e: expr::ExprError| e.to_string())
}

fn from_json<T: DeserializeOwned>(c: &mut Cursor) -> Result<T, String> {
    c.space();
    let mut stream = serde_json::Deserializer::from_str(c.rest).into_iter::<T>();
    let v = match stream.next() {
        Some(v) => v.map_err(|e| e.to_string())?,
        None => return Err("attributes are missing".into()),
    };
    c.rest = &c.rest[stream.byte_offset()..];
    Ok(v)
}

type Window = (Vec<i64>, Vec<i64>, Vec<i64>);

fn window(c: &mut Cursor) -> Result<Window, String> {
    c.field("kernel")?;
    let kernel = c.list()?;
    c.field("strides")?;
    let strides = c.list()?;
    c.field("dilations")?;
    Ok((kernel, strides, c.list()?))
}

fn rims(c: &mut Cursor) -> Result<(Vec<Dim>, Vec<Dim>), String> {
    c.field("before")?;
    let before = c.dims()?;
    c.field("after")?;
    Ok((before, c.dims()?))
}

fn read_labels(c: &mut Cursor) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    c.space();
    loop {
        match c.rest.as_bytes().first() {
            Some(b) if b.is_ascii_alphabetic() => {
                out.push(*b);
                c.rest = &c.rest[1..];
            }
            Some(b'<') => {
                c.rest = &c.rest[1..];
                out.push(c.number()?);
                c.expect(">")?;
            }
            _ => return Ok(out),
        }
    }
}
