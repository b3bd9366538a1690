//! The parser of single lines of a kernel's text: axes, operands, statements. `read` takes the lines in order.
use crate::{
    Access, Axis, AxisId, Bound, Family, Indexed, Kernel, Label, Operand, OperandId, Rescale, Role,
    Shape, Stmt, Term, Tile, TileId,
};
use expr::{Expr, Monoid, Names};
use layout::{DType, Dim, Leaf};

/// Axes, operands and tiles that a kernel has at most.
const MAX_NAMES: usize = 4096;

/// Why a part cannot be read: where in the text of its line, as the rest of it at that place, and why.
pub(crate) type Fault = (usize, String);
pub(crate) type Read<T> = Result<T, Fault>;

/// An error at the place where `part`, a piece of the text, begins.
pub(crate) fn fail<T>(part: &str, why: impl Into<String>) -> Read<T> {
    Err((part.as_ptr() as usize, why.into()))
}

/// Pieces between `by` that are not inside brackets, braces or back quotes.
pub(crate) fn split<'t>(text: &'t str, by: &str) -> Vec<&'t str> {
    let (mut out, mut from, mut depth, mut quoted) = (vec![], 0, 0i32, false);
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let Some(c) = rest.chars().next() else { break };
        if depth == 0 && !quoted && rest.starts_with(by) {
            out.push(&text[from..at]);
            at += by.len();
            from = at;
            continue;
        }
        match c {
            '`' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth -= 1,
            _ => {}
        }
        at += c.len_utf8();
    }
    out.push(&text[from..]);
    out
}

/// What stands before and behind the first `by` that is not inside brackets.
pub(crate) fn cut<'t>(text: &'t str, by: &str) -> Option<(&'t str, &'t str)> {
    let first = split(text, by)[0];
    let behind = text.get(first.len() + by.len()..)?;
    Some((first, behind))
}

/// What stands before and behind `over`, which a line may end with: no axis is none too few.
fn over(text: &str) -> Option<(&str, &str)> {
    cut(text, " over ").or_else(|| Some((text.strip_suffix(" over")?, "")))
}

pub(crate) fn dim(text: &str) -> Read<Dim> {
    let text = text.trim();
    let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')'));
    let inner = inner.filter(|t| balanced(t));
    match inner.unwrap_or(text).parse() {
        Ok(d) => Ok(d),
        Err(e) => fail(text, format!("'{text}' is no dimension: {e}")),
    }
}

/// Whether every bracket that is closed was opened in it.
fn balanced(text: &str) -> bool {
    let mut depth = 0i32;
    text.chars().all(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth >= 0
    }) && depth == 0
}

pub(crate) fn dtype(text: &str) -> Read<DType> {
    match DType::from_name(text) {
        Some(d) => Ok(d),
        None => fail(
            text,
            format!("'{text}' is no element type; f32, f16, i64 are some"),
        ),
    }
}

fn list(names: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = names.collect();
    match all.is_empty() {
        true => "none".into(),
        false => all.join(", "),
    }
}

pub(crate) fn id(at: usize, what: &str) -> Read<u16> {
    match u16::try_from(at) {
        Ok(n) if at < MAX_NAMES => Ok(n),
        _ => fail(what, format!("there are more than {MAX_NAMES} of them")),
    }
}

pub(crate) fn axis(k: &Kernel, name: &str) -> Read<AxisId> {
    let name = name.trim();
    match k.axes.iter().position(|a| a.name == name) {
        Some(i) => id(i, name),
        None => fail(
            name,
            format!(
                "there is no axis '{name}'; there are {}",
                list(k.axes.iter().map(|a| a.name.clone()))
            ),
        ),
    }
}

pub(crate) fn axes(k: &Kernel, names: &str) -> Read<Vec<AxisId>> {
    match names.trim().is_empty() {
        true => Ok(vec![]),
        false => names.split(',').map(|n| axis(k, n)).collect(),
    }
}

pub(crate) fn operand(k: &Kernel, name: &str) -> Read<OperandId> {
    let name = name.trim();
    match k.operands.iter().position(|o| o.name == name) {
        Some(i) => id(i, name),
        None => fail(
            name,
            format!(
                "there is no operand '{name}'; there are {}",
                list(k.operands.iter().map(|o| o.name.clone()))
            ),
        ),
    }
}

/// Tiles that statements so far have defined.
pub(crate) struct Tiles {
    pub defined: Vec<bool>,
}

impl Tiles {
    fn find(&self, k: &Kernel, name: &str) -> Read<TileId> {
        let name = name.trim();
        let known = |i: &usize| self.defined.get(*i).copied().unwrap_or(false);
        match k.tiles.iter().position(|t| t.name == name).filter(known) {
            Some(i) => id(i, name),
            None => {
                let all = k.tiles.iter().enumerate();
                let all = all.filter(|(i, _)| known(i)).map(|(_, t)| t.name.clone());
                fail(
                    name,
                    format!("no tile '{name}' is defined above; there are {}", list(all)),
                )
            }
        }
    }

    fn some(&self, k: &Kernel, names: &str) -> Read<Vec<TileId>> {
        names.split(',').map(|n| self.find(k, n)).collect()
    }

    /// `name : type [axes]`.
    fn define(&mut self, k: &mut Kernel, text: &str) -> Read<TileId> {
        let Some((name, rest)) = text.split_once(" : ") else {
            return fail(text, "a tile is defined as 'name : type [axes] = ...'");
        };
        let (name, rest) = (name.trim(), rest.trim());
        let brackets = rest.split_once('[');
        let Some((kind, inside)) = brackets.and_then(|(d, r)| Some((d, r.strip_suffix(']')?)))
        else {
            return fail(
                rest,
                "a tile's axes stand in brackets behind its type: f32 [m,n]",
            );
        };
        let tile = Tile {
            name: name.into(),
            dtype: dtype(kind.trim())?,
            axes: axes(k, inside)?,
        };
        if name.is_empty() {
            return fail(text, "a tile has a name");
        }
        let Some(at) = k.tiles.iter().position(|t| t.name == name) else {
            k.tiles.push(tile);
            self.defined.push(true);
            return id(k.tiles.len() - 1, name);
        };
        if self.defined[at] && k.tiles[at] != tile {
            return fail(
                name,
                format!("'{name}' has another type or other axes above"),
            );
        }
        self.defined[at] = true;
        k.tiles[at] = tile;
        id(at, name)
    }
}

/// `offset + axis*(stride) + ...` and what is left of it: (terms, offset, gathered).
fn sum<'t>(text: &'t str, mut part: impl FnMut(&'t str) -> Read<bool>) -> Read<Dim> {
    let mut left: Vec<&str> = vec![];
    for p in split(text, " + ") {
        if !part(p.trim())? {
            left.push(p.trim());
        }
    }
    match left.is_empty() {
        true => Ok(Dim::ZERO),
        false => {
            let rest = left.join(" + ");
            rest.parse()
                .or_else(|e| fail(left[0], format!("'{rest}' is no dimension: {e}")))
        }
    }
}

/// `axis*(stride)` or `axis*3`.
fn strided<'t>(k: &Kernel, part: &'t str) -> Read<Option<(AxisId, &'t str)>> {
    let Some((name, by)) = cut(part, "*") else {
        return Ok(None);
    };
    let plain = by.starts_with('(') || by.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let axis = k.axes.iter().position(|a| a.name == name.trim());
    match axis.filter(|_| plain) {
        Some(a) => Ok(Some((id(a, name)?, by))),
        None => Ok(None),
    }
}

fn access(k: &Kernel, text: &str) -> Read<Access> {
    let (address, bounds) = match cut(text, " where ") {
        Some((a, b)) => (a, Some(b)),
        None => (text, None),
    };
    let mut found = Access::strided(Dim::ZERO, vec![]);
    let (terms, indexed) = (&mut found.terms, &mut found.indexed);
    found.offset = sum(address, |p| {
        if let Some((by, rest)) = p.split_once("[..]*") {
            let Some((stride, extent)) = cut(rest, " below ") else {
                return fail(
                    rest,
                    "a gathered part is written as NAME[..]*(stride) below extent",
                );
            };
            indexed.push(Indexed {
                by: operand(k, by)?,
                stride: dim(stride)?,
                extent: dim(extent)?,
            });
            return Ok(true);
        }
        if let Some((name, leaves)) = cut(p, " as ") {
            let Some((extents, strides)) = cut(leaves, "*") else {
                return fail(leaves, "leaves are written as (extents)*(strides)");
            };
            let inner = |t: &str| -> Read<Vec<Dim>> {
                let t = t.trim();
                match t.strip_prefix('(').and_then(|t| t.strip_suffix(')')) {
                    Some("") => Ok(vec![]),
                    Some(i) => split(i, ",").into_iter().map(dim).collect(),
                    None => fail(t, "leaves stand in brackets"),
                }
            };
            let (e, s) = (inner(extents)?, inner(strides)?);
            if e.len() != s.len() {
                return fail(leaves, "there are as many extents as strides");
            }
            terms.push(Term {
                axis: axis(k, name)?,
                leaves: (e.into_iter().zip(s))
                    .map(|(extent, stride)| Leaf { extent, stride })
                    .collect(),
            });
            return Ok(true);
        }
        Ok(match strided(k, p)? {
            Some((a, stride)) => {
                let extent = k.axes[a as usize].extent.clone();
                terms.push(Term::flat(a, extent, dim(stride)?));
                true
            }
            None => p == "0",
        })
    })?;
    if let Some(bounds) = bounds {
        let Some((all, outside)) = cut(bounds, " else ") else {
            return fail(bounds, "bounds end with 'else' and the value outside them");
        };
        found.outside = match outside.trim().parse::<f64>() {
            Ok(v) if !v.is_nan() => v,
            _ => return fail(outside.trim(), format!("'{}' is no number", outside.trim())),
        };
        for b in split(all, ", ") {
            let b = b.trim();
            let inside = b.strip_prefix("0 <= ").and_then(|b| cut(b, " < "));
            let Some((address, extent)) = inside else {
                return fail(b, "a bound is written as 0 <= sum < extent");
            };
            let mut terms = vec![];
            let base = sum(address, |p| {
                Ok(match strided(k, p)? {
                    Some((a, c)) => {
                        terms.push((a, dim(c)?));
                        true
                    }
                    None => false,
                })
            })?;
            found.bounds.push(Bound {
                terms,
                base,
                extent: dim(extent)?,
            });
        }
    }
    Ok(found)
}

/// One more than the largest address: what an operand holds where the text does not say.
fn elements(k: &Kernel, a: &Access) -> Dim {
    let mut top = a.offset.clone() + Dim::ONE;
    for t in &a.terms {
        for l in &t.leaves {
            let extent = match t.leaves.len() {
                1 => &k.axes[t.axis as usize].extent,
                _ => &l.extent,
            };
            top = top + (extent.clone() - Dim::ONE) * l.stride.clone();
        }
    }
    for i in &a.indexed {
        top = top + (i.extent.clone() - Dim::ONE) * i.stride.clone();
    }
    top
}

/// The reductions that are known by their names alone, on elements and states of these types.
pub(crate) fn short_monoid(name: &str, of: DType, state: DType) -> Option<Monoid> {
    Some(match name {
        "sum" => Monoid::sum(of, state),
        "product" => Monoid::product(of, state),
        "max" => Monoid::max(of, state),
        "min" => Monoid::min(of, state),
        "sum_square" => Monoid::sum_square(of, state),
        "l1" => Monoid::l1(of, state),
        "log_sum_exp" => Monoid::log_sum_exp(of, state),
        "welford" => Monoid::welford(of, state, 0),
        "any" => Monoid::any(of),
        "all" => Monoid::all(of),
        _ => return None,
    })
}

/// A map: a formula whose names are tiles for which `known`, or a program with its arguments. Its
/// arguments are those tiles in the order in which they appear.
pub(crate) fn read_map(
    k: &Kernel,
    known: &dyn Fn(TileId) -> bool,
    text: &str,
    result: DType,
) -> Result<(Expr, Vec<TileId>), (usize, String)> {
    let mut used: Vec<TileId> = vec![];
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut braces = 0;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
        if end == 0 {
            braces += i32::from(c == '{') - i32::from(c == '}');
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let (w, behind) = rest.split_at(end);
        rest = behind;
        let tile = k.tiles.iter().position(|t| t.name == w);
        if let Some(t) = tile.and_then(|t| TileId::try_from(t).ok())
            && braces == 0
            && !behind.starts_with('(')
            && known(t)
            && !used.contains(&t)
        {
            used.push(t);
        }
    }
    let tile = |t: &TileId| &k.tiles[*t as usize];
    let args: Vec<(&str, DType)> = used
        .iter()
        .map(|t| (tile(t).name.as_str(), tile(t).dtype))
        .collect();
    let axes: Vec<&str> = k.axes.iter().map(|a| a.name.as_str()).collect();
    let names = Names {
        args: &args,
        axes: &axes,
    };
    match Expr::from_formula(text, names, result) {
        Ok(e) => Ok((e, used)),
        Err(expr::ExprError::Formula { column, why }) => {
            Err((text.as_ptr() as usize + column - 1, why))
        }
        Err(e) => fail(text, e.to_string()),
    }
}

/// `{ program }` at the start of the text: the program and what follows.
fn program(text: &str) -> Read<(Expr, &str)> {
    let Some(inside) = text.trim_start().strip_prefix('{') else {
        return fail(text, "a program stands in braces");
    };
    let mut quoted = false;
    let end = inside.char_indices().find(|&(_, c)| {
        quoted ^= c == '`';
        c == '}' && !quoted
    });
    let Some((end, _)) = end else {
        return fail(text, "'{' has no '}'");
    };
    match inside[..end].trim().parse() {
        Ok(e) => Ok((e, &inside[end + 1..])),
        Err(e) => fail(inside, format!("{e}")),
    }
}

fn fold(k: &Kernel, tiles: &Tiles, state: &str, text: &str) -> Read<Stmt> {
    let Some((monoid, rest)) = cut(text, " of ") else {
        return fail(
            text,
            "a fold is written as 'fold REDUCTION of TILES over AXES'",
        );
    };
    let Some((args, rest)) = over(rest) else {
        return fail(rest, "'over' and the axes are missing");
    };
    let state = tiles.some(k, state)?;
    let args = tiles.some(k, args)?;
    let of = |t: &TileId| k.tiles[*t as usize].dtype;
    let monoid = match monoid.trim().starts_with("monoid ") {
        true => match monoid.trim().parse::<Monoid>() {
            Ok(m) => m,
            Err(e) => return fail(monoid, format!("{e}")),
        },
        false => match short_monoid(monoid.trim(), of(&args[0]), of(&state[0])) {
            Some(m) => m,
            None => {
                return fail(
                    monoid.trim(),
                    format!(
                        "'{}' is no reduction; there are sum, product, max, min, sum_square, l1, log_sum_exp, welford, any, all, and 'monoid NAME {{...}}'",
                        monoid.trim()
                    ),
                );
            }
        },
    };
    let (over, rescale) = match cut(rest, ", rescaling ") {
        None => (rest, None),
        Some((over, what)) => {
            let Some((list, by)) = cut(what, " by ") else {
                return fail(what, "'by' and a program of old and new states are missing");
            };
            let (factor, rest) = program(by)?;
            if !rest.trim().is_empty() {
                return fail(rest, "nothing may follow the program");
            }
            let tiles = tiles.some(k, list)?;
            (over, Some(Rescale { tiles, factor }))
        }
    };
    Ok(Stmt::Fold {
        monoid,
        state,
        args,
        over: axes(k, over)?,
        rescale,
    })
}

/// `SRC[from as first + to, ...]`, and `, for the next axis`.
fn relabel(k: &Kernel, tiles: &Tiles, dst: TileId, text: &str) -> Read<Option<Stmt>> {
    let (what, along) = match cut(text, ", for the next ") {
        Some((w, a)) => (w, Some(axis(k, a)?)),
        None => (text, None),
    };
    let inside = what
        .split_once('[')
        .and_then(|(s, l)| Some((s, l.strip_suffix(']')?)));
    let Some((src, labels)) = inside else {
        return Ok(None);
    };
    let mut all = vec![];
    for l in split(labels, ", ")
        .into_iter()
        .filter(|l| !l.trim().is_empty())
    {
        let Some((from, to)) = cut(l, " as ") else {
            return fail(
                l,
                "a label is written as 'axis as axis' or 'axis as first + axis'",
            );
        };
        let parts = split(to, " + ");
        let (last, first) = match parts.split_last() {
            Some((last, first)) => (*last, first.join(" + ")),
            None => (to, String::new()),
        };
        all.push(Label {
            from: axis(k, from)?,
            to: axis(k, last)?,
            first: match first.is_empty() {
                true => Dim::ZERO,
                false => first.parse().or_else(|e| fail(to, format!("{e}")))?,
            },
        });
    }
    Ok(Some(Stmt::Relabel {
        dst,
        src: tiles.find(k, src)?,
        labels: all,
        along,
    }))
}

pub(crate) fn statement(k: &mut Kernel, tiles: &mut Tiles, line: &str) -> Read<Stmt> {
    if let Some(rest) = line.strip_prefix("store ") {
        let Some((to, src)) = rest.split_once(" = ") else {
            return fail(rest, "a store is written as 'store OPERAND = TILE'");
        };
        return Ok(Stmt::Store {
            operand: operand(k, to)?,
            src: tiles.find(k, src)?,
        });
    }
    if let Some((acc, rest)) = line.split_once(" += contract ") {
        let (factors, over) = match over(rest) {
            Some(found) => found,
            None => return fail(rest, "'over' and the summed axes are missing"),
        };
        let Some((a, b)) = factors.split_once(" . ") else {
            return fail(
                factors,
                "a product is written as 'acc += contract a . b over axes'",
            );
        };
        return Ok(Stmt::Contract {
            acc: tiles.find(k, acc)?,
            a: tiles.find(k, a)?,
            b: tiles.find(k, b)?,
            over: axes(k, over)?,
        });
    }
    let Some((left, right)) = line.split_once(" = ") else {
        return fail(
            line,
            "a statement defines a tile ('name : type [axes] = ...'), adds to one ('+= contract'), folds or stores",
        );
    };
    if let Some(rest) = right.strip_prefix("fold ") {
        return fold(k, tiles, left, rest);
    }
    // What it computes may read what is redefined, and nothing that is defined by it.
    let known = tiles.defined.clone();
    let dst = tiles.define(k, left)?;
    if let Some(name) = right.strip_prefix("load ") {
        return Ok(Stmt::Load {
            dst,
            operand: operand(k, name)?,
        });
    }
    let before = Tiles { defined: known };
    if let Some(rest) = right.strip_prefix("program(") {
        let Some((args, rest)) = rest.split_once(')') else {
            return fail(rest, "')' is missing behind the arguments");
        };
        let args = match args.trim().is_empty() {
            true => vec![],
            false => before.some(k, args)?,
        };
        let (expr, rest) = program(rest)?;
        if !rest.trim().is_empty() {
            return fail(rest, "nothing may follow the program");
        }
        return Ok(Stmt::Map { dst, expr, args });
    }
    if let Some(s) = relabel(k, &before, dst, right)? {
        return Ok(s);
    }
    let known = |t: TileId| before.defined.get(t as usize).copied().unwrap_or(false);
    let (expr, args) = read_map(k, &known, right, k.tiles[dst as usize].dtype)?;
    Ok(Stmt::Map { dst, expr, args })
}

pub(crate) fn header(line: &str) -> Read<(String, Family)> {
    let inside = line
        .strip_prefix("kernel ")
        .and_then(|r| r.rsplit_once(" ("));
    let Some((name, family)) = inside.and_then(|(n, f)| Some((n, f.strip_suffix(')')?))) else {
        return fail(line, "a kernel begins with 'kernel NAME (FAMILY)'");
    };
    let called = |f: &&Family| format!("{f:?}").eq_ignore_ascii_case(family);
    match Family::ALL.iter().find(called) {
        Some(f) => Ok((name.trim().into(), *f)),
        None => fail(
            family,
            format!(
                "'{family}' is no kind of kernel; there are {}",
                list(Family::ALL.iter().map(|f| format!("{f:?}").to_lowercase()))
            ),
        ),
    }
}

pub(crate) fn space(k: &mut Kernel, text: &str) -> Read<()> {
    for a in split(text, "  ")
        .into_iter()
        .filter(|a| !a.trim().is_empty())
    {
        let Some((name, extent)) = a.split_once(": ") else {
            return fail(
                a.trim(),
                "axes are written as 'name: extent', two blanks apart",
            );
        };
        let name = name.trim();
        if k.axes.iter().any(|a| a.name == name) {
            return fail(name, format!("axis '{name}' is there twice"));
        }
        k.axes.push(Axis {
            name: name.into(),
            extent: dim(extent)?,
        });
        id(k.axes.len(), name)?;
    }
    Ok(())
}

/// `[rows, cols]` or `[n..]`, without the first bracket.
fn shape(text: &str) -> Read<Shape> {
    let Some(inside) = text.trim_end().strip_suffix(']') else {
        return fail(text, "']' is missing behind the shape");
    };
    if let Some(n) = inside.trim().strip_suffix("..") {
        return Ok(Shape::Any(dim(n)?));
    }
    let extents = split(inside, ",").into_iter();
    let extents = extents.filter(|e| !e.trim().is_empty()).map(dim);
    Ok(Shape::Dims(extents.collect::<Read<_>>()?))
}

pub(crate) fn tensor(k: &mut Kernel, role: Role, text: &str) -> Read<Option<Shape>> {
    let Some((left, right)) = text.split_once(" = ") else {
        return fail(text, "an operand is written as 'NAME type = address'");
    };
    let (left, declared) = match left.split_once(" [") {
        Some((left, inside)) => (left, Some(shape(inside)?)),
        None => (left, None),
    };
    let Some((name, kind)) = left.trim().rsplit_once(' ') else {
        return fail(left, "an operand has a name and a type");
    };
    let name = name.trim();
    if k.operands.iter().any(|o| o.name == name) {
        return fail(name, format!("operand '{name}' is there twice"));
    }
    let parts = split(right, " of ");
    let (address, count) = match parts.as_slice() {
        [address] => (*address, None),
        [address, count] => (*address, Some(*count)),
        _ => {
            return fail(
                right,
                "' of ' and the number of elements stand at the end, once",
            );
        }
    };
    let access = access(k, address)?;
    let elements = match count {
        Some(n) => dim(n)?,
        None => elements(k, &access),
    };
    k.operands.push(Operand {
        name: name.into(),
        dtype: dtype(kind)?,
        role,
        access,
        elements,
    });
    id(k.operands.len(), name)?;
    Ok(declared)
}
