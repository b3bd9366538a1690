//! Kernels as text that [`Kernel::parse`] reads back, and tile programs as text for people: grid, loops and
//! statements on whole tiles, as a page would write them. (What programs are stored as is kernel and
//! schedule, by serde.)
use crate::parse::{read_map, short_monoid};
use crate::{
    Access, AxisId, Combined, Edge, Kernel, Mapping, Node, OperandId, Place, Role, Seen, Stmt,
    Swizzle, TileId, TileProgram,
};
use expr::{Expr, Names};
use layout::DType;
use std::fmt::{self, Write};

impl fmt::Display for TileProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let k = self.kernel();
        writeln!(f, "{}", head(k))?;
        let s = self.schedule();
        let mut depth = 1;
        match s.grid.is_empty() {
            true => writeln!(f, "one task")?,
            false => writeln!(
                f,
                "grid {}, chunk {}, raster {}",
                cut(k, &s.grid),
                s.chunk,
                s.raster
            )?,
        }
        writeln!(f, "  mapping {}", mapping(k, &s.mapping))?;
        body(f, self, self.body(), &mut depth)
    }
}

/// Axes, operands and statements, which [`Kernel::parse`] reads back.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&head(self))?;
        let mut seen: Vec<TileId> = vec![];
        for t in self.body.iter().flat_map(Stmt::writes) {
            if !seen.contains(&t) {
                seen.push(t);
            }
        }
        if !seen.iter().copied().eq(0..self.tiles.len() as TileId) {
            let all: Vec<&str> = self.tiles.iter().map(|t| t.name.as_str()).collect();
            write!(f, "\n  tiles  {}", all.join(", "))?;
        }
        for s in &self.body {
            write!(f, "\n  {}", statement(self, s, None))?;
        }
        Ok(())
    }
}

/// Name, axes and operands.
fn head(k: &Kernel) -> String {
    let mut out = format!("kernel {} ({:?})", k.name, k.family);
    let axes: Vec<String> = k
        .axes
        .iter()
        .map(|a| format!("{}: {}", a.name, a.extent))
        .collect();
    let _ = write!(out, "\n  space  {}", axes.join("  "));
    for o in &k.operands {
        let role = if o.role == Role::Read {
            "read "
        } else {
            "write"
        };
        let _ = write!(
            out,
            "\n  {role}  {} {} = {} of {}",
            o.name,
            o.dtype,
            address(k, &o.access),
            o.elements
        );
    }
    out
}

/// Cut axes with the sizes of their pieces.
pub(crate) fn cut(k: &Kernel, list: &[crate::AxisTile]) -> String {
    let one = |t: &crate::AxisTile| format!("{} by {}", axis(k, t.axis), t.tile);
    list.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn axis(k: &Kernel, a: AxisId) -> &str {
    k.axes.get(a as usize).map_or("?", |a| &a.name)
}

fn tile(k: &Kernel, t: TileId) -> &str {
    k.tiles.get(t as usize).map_or("?", |t| &t.name)
}

fn axes(k: &Kernel, list: &[AxisId]) -> String {
    list.iter()
        .map(|&a| axis(k, a))
        .collect::<Vec<_>>()
        .join(",")
}

fn operands(k: &Kernel, list: &[OperandId]) -> String {
    list.iter()
        .map(|&o| k.operands.get(o as usize).map_or("?", |o| &o.name))
        .collect::<Vec<_>>()
        .join(",")
}

pub(crate) fn names(k: &Kernel, list: &[TileId]) -> String {
    list.iter()
        .map(|&t| tile(k, t))
        .collect::<Vec<_>>()
        .join(", ")
}

/// `offset + axis*stride + ... where 0 <= sum < extent else value`.
fn address(k: &Kernel, a: &Access) -> String {
    let mut parts = vec![];
    if !a.offset.is_zero() {
        parts.push(a.offset.to_string());
    }
    for t in &a.terms {
        let extent = k.axes.get(t.axis as usize).map(|a| &a.extent);
        match t.leaves.as_slice() {
            [l] if Some(&l.extent) == extent => {
                parts.push(format!("{}*({})", axis(k, t.axis), l.stride));
            }
            many => {
                let list = |f: &dyn Fn(&layout::Leaf) -> String| {
                    many.iter().map(f).collect::<Vec<_>>().join(",")
                };
                let (e, s) = (
                    list(&|l| l.extent.to_string()),
                    list(&|l| l.stride.to_string()),
                );
                parts.push(format!("{} as ({e})*({s})", axis(k, t.axis)));
            }
        }
    }
    for i in &a.indexed {
        let by = k.operands.get(i.by as usize).map_or("?", |o| &o.name);
        let extent = match i.extent.known().is_some() || i.extent.as_sym().is_some() {
            true => i.extent.to_string(),
            false => format!("({})", i.extent),
        };
        parts.push(format!("{by}[..]*({}) below {extent}", i.stride));
    }
    let mut out = if parts.is_empty() {
        "0".to_string()
    } else {
        parts.join(" + ")
    };
    for (i, b) in a.bounds.iter().enumerate() {
        out += if i == 0 { " where " } else { ", " };
        let mut sum: Vec<String> = b
            .terms
            .iter()
            .map(|(a, c)| format!("{}*({c})", axis(k, *a)))
            .collect();
        sum.push(b.base.to_string());
        let _ = write!(out, "0 <= {} < {}", sum.join(" + "), b.extent);
    }
    if !a.bounds.is_empty() {
        let _ = write!(out, " else {}", a.outside);
    }
    out
}

/// What a mapping says whose clusters make the parts of one sum ([`Combined::InCluster`]).
pub(crate) const PARTS: &str = "each a part";

/// What a mapping says that has [`crate::GpuMapping::triggers`].
pub(crate) const TRIGGERS: &str = "the next kernel behind its wait";

pub(crate) fn mapping(k: &Kernel, m: &Mapping) -> String {
    match m {
        Mapping::Cpu(c) => {
            let micro = c.micro.map_or("rows by vectors".to_string(), |m| {
                format!("micro-kernel {}x{}", m.mr, m.nr)
            });
            let lanes = c.lanes.map_or("-", |a| axis(k, a));
            format!("{micro}, rows {}, lanes {lanes}", axes(k, &c.rows))
        }
        Mapping::Gpu(g) => {
            let fragment = g.fragment.map_or("fma".to_string(), |f| f.name());
            let one = |s: &crate::Spread| {
                let each = if s.each > 1 {
                    format!(" of {}", s.each)
                } else {
                    String::new()
                };
                format!("{} over {}x{}{each}", axis(k, s.axis), s.count, s.stride)
            };
            let spread = match g.spread.is_empty() {
                true => String::new(),
                false => format!(
                    ", {}",
                    g.spread.iter().map(one).collect::<Vec<_>>().join(", ")
                ),
            };
            format!(
                "cta {} threads, warps {}, rows {}, columns {}, {fragment}{spread}, loads of {} B{}{}, {} registers{}{}{}{}",
                g.threads,
                g.warps_text(),
                axes(k, &g.rows),
                axes(k, &g.columns),
                g.load_bytes,
                match g.unroll {
                    1 => String::new(),
                    n => format!(", loops {n} times"),
                },
                match g.store_bytes {
                    0 => String::new(),
                    n => format!(", stores of {n} B"),
                },
                g.registers,
                match g.walkers {
                    0 => String::new(),
                    n => format!(", {n} CTAs that walk"),
                },
                match (g.cluster, g.combined) {
                    (1, Combined::ByLast) => String::new(),
                    (n, Combined::ByLast) => format!(", clusters of {n} CTAs"),
                    (n, Combined::InCluster) => format!(", clusters of {n} CTAs, {PARTS}"),
                },
                match g.constants.as_slice() {
                    [] => String::new(),
                    list => format!(", constants {}", operands(k, list)),
                },
                match g.triggers {
                    true => format!(", {TRIGGERS}"),
                    false => String::new(),
                }
            )
        }
    }
}

fn swizzled(s: Swizzle) -> String {
    match (s.bits, s.base, s.shift) {
        (0, _, _) => String::new(),
        (b, m, s) => format!(", swizzle({b},{m},{s})"),
    }
}

pub(crate) fn place(p: Place) -> String {
    match p {
        Place::InPlace => "in place".into(),
        Place::Register => "in registers".into(),
        Place::Recompute => "where it is used".into(),
        Place::Cluster => "in the cluster".into(),
        Place::Shared { swizzle, stages } => {
            format!("in shared, {stages} stages{}", swizzled(swizzle))
        }
        Place::Tensor { swizzle, stages } => {
            let swizzle = swizzled(swizzle);
            format!("in shared, {stages} stages{swizzle}, by tensor copies")
        }
        Place::Image { stages } => format!("in shared, {stages} stages, as it lies"),
    }
}

/// Which positions of a loop's axis matter: ` where q - 3 <= t < q + 5`.
fn seen(k: &Kernel, looped: AxisId, s: &Seen) -> String {
    if s.is_all() {
        return String::new();
    }
    let edge = |e: &Edge| {
        let own = e.terms.iter().map(|(a, c)| match c.known() {
            Some(1) => axis(k, *a).to_string(),
            Some(-1) => format!("-{}", axis(k, *a)),
            _ => format!("({c})*{}", axis(k, *a)),
        });
        let base = (!e.base.is_zero() || e.terms.is_empty()).then(|| e.base.to_string());
        own.chain(base).collect::<Vec<_>>().join(" + ")
    };
    let from = s
        .from
        .iter()
        .map(|e| format!("{} >= {}", axis(k, looped), edge(e)));
    let to =
        s.to.iter()
            .map(|e| format!("{} < {}", axis(k, looped), edge(e)));
    format!(" where {}", from.chain(to).collect::<Vec<_>>().join(", "))
}

fn body(
    f: &mut fmt::Formatter<'_>,
    p: &TileProgram,
    nodes: &[Node],
    depth: &mut usize,
) -> fmt::Result {
    let k = p.kernel();
    for n in nodes {
        write!(f, "{:1$}", "", *depth * 2)?;
        match n {
            Node::Loop {
                axis: a,
                seen: s,
                body: inner,
            } => {
                writeln!(
                    f,
                    "loop {} by {}{}",
                    axis(k, a.axis),
                    a.tile,
                    seen(k, a.axis, s)
                )?;
                *depth += 1;
                body(f, p, inner, depth)?;
                *depth -= 1;
            }
            Node::Stmt(s) => writeln!(f, "{}", statement(k, s, Some(p)))?,
        }
    }
    Ok(())
}

/// What a map computes: a formula, and where that would not be read back, the program's own text.
fn computed(k: &Kernel, dst: TileId, expr: &Expr, args: &[TileId]) -> String {
    let name = |t: &TileId| tile(k, *t);
    let of = |t: &TileId| {
        (
            name(t),
            k.tiles.get(*t as usize).map_or(DType::F32, |t| t.dtype),
        )
    };
    let named: Vec<(&str, DType)> = args.iter().map(of).collect();
    let axes: Vec<&str> = k.axes.iter().map(|a| a.name.as_str()).collect();
    let names = Names {
        args: &named,
        axes: &axes,
    };
    let formula = expr.formula(names).filter(|text| {
        let back = read_map(k, &|_| true, text, of(&dst).1);
        back.is_ok_and(|(e, a)| e.in_order() == expr.in_order() && a == args)
    });
    formula.unwrap_or_else(|| {
        let args: Vec<&str> = args.iter().map(name).collect();
        format!("program({}) {{ {expr} }}", args.join(", "))
    })
}

/// A statement; with a program, the places of its tiles too, and formulas cut to a readable length.
fn statement(k: &Kernel, s: &Stmt, p: Option<&TileProgram>) -> String {
    // A defined tile with its type, axes and place.
    let defined = |t: TileId| {
        let Some(info) = k.tiles.get(t as usize) else {
            return "?".to_string();
        };
        let at = p.map_or(String::new(), |p| {
            format!(" {}", place(p.schedule().place(t)))
        });
        format!(
            "{} : {} [{}]{at}",
            info.name,
            info.dtype,
            axes(k, &info.axes)
        )
    };
    let operand_name = |o: u16| k.operands.get(o as usize).map_or("?", |o| o.name.as_str());
    match s {
        Stmt::Load { dst, operand } => {
            format!("{} = load {}", defined(*dst), operand_name(*operand))
        }
        Stmt::Store { operand, src } => {
            format!("store {} = {}", operand_name(*operand), tile(k, *src))
        }
        Stmt::Map { dst, expr, args } => {
            let list: Vec<&str> = args.iter().map(|&t| tile(k, t)).collect();
            let what = match p {
                Some(_) => expr.pretty(&list),
                None => computed(k, *dst, expr, args),
            };
            format!("{} = {what}", defined(*dst))
        }
        Stmt::Contract { acc, a, b, over } => {
            format!(
                "{} += contract {} . {} over {}",
                tile(k, *acc),
                tile(k, *a),
                tile(k, *b),
                axes(k, over)
            )
        }
        Stmt::Relabel {
            dst,
            src,
            labels,
            along,
        } => {
            let one = |l: &crate::Label| match l.first.is_zero() {
                true => format!("{} as {}", axis(k, l.from), axis(k, l.to)),
                false => format!("{} as {} + {}", axis(k, l.from), l.first, axis(k, l.to)),
            };
            let labels: Vec<String> = labels.iter().map(one).collect();
            let next = along.map_or(String::new(), |a| format!(", for the next {}", axis(k, a)));
            format!(
                "{} = {}[{}]{next}",
                defined(*dst),
                tile(k, *src),
                labels.join(", ")
            )
        }
        Stmt::Fold {
            monoid,
            state,
            args,
            over,
            rescale,
        } => {
            let r = rescale.as_ref().map_or(String::new(), |r| {
                let by = match p {
                    Some(_) => String::new(),
                    None => format!(" by {{ {} }}", r.factor),
                };
                format!(", rescaling {}{by}", names(k, &r.tiles))
            });
            let of = |t: Option<&TileId>| {
                let t = t.and_then(|t| k.tiles.get(*t as usize));
                t.map_or(DType::F32, |t| t.dtype)
            };
            let short = short_monoid(&monoid.name, of(args.first()), of(state.first()));
            let monoid = match p.is_some() || short.as_ref() == Some(monoid) {
                true => monoid.name.clone(),
                false => monoid.to_string(),
            };
            format!(
                "{} = fold {} of {} over {}{r}",
                names(k, state),
                monoid,
                names(k, args),
                axes(k, over)
            )
        }
    }
}
