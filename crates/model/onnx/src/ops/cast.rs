//! Conversions: Cast, CastLike.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, narrow_name, to_dtype};
use crate::proto::DataType;
use graph::ValueId;
use layout::DType;
use tensor::Attr;

pub(crate) const OPS: &[OpDef] = &[op("Cast", lower), op("CastLike", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = n.input(0)?;
    // They matter for floats of 8 bits only.
    let saturate = n.int("saturate", 1)?;
    let round = n.text("round_mode", "up")?;
    let (to, narrow) = match n.op {
        "Cast" => {
            let code = target(n)?;
            (to_dtype(code)?, i32::try_from(code).ok().and_then(narrow_name))
        }
        _ => (c.dtype(n.input(1)?), c.narrow(n.input(1)?)),
    };
    if c.dtype(x).is_held() || to.is_held() {
        return super::text::cast(c, n, x, to);
    }
    let from = c.narrow(x);
    let same = c.dtype(x) == to && from == narrow;
    let y = if same {
        let s = c.shape(x);
        c.reshape(n, n.name(0), x, s)?
    } else if from.is_some() || narrow.is_some() || to.bits() < 8 {
        recoded(c, n, n.name(0), x, (to, narrow), saturate, &round)?
    } else {
        c.map(n, n.name(0), &[x], |e, a| e.cast(a[0], to))?
    };
    c.set_narrow(y, narrow);
    c.set(n, 0, y);
    Ok(())
}

/// The number of the type that a Cast converts to; before opset 6 its name.
fn target(n: &NodeView<'_>) -> Lowered<i64> {
    if n.opset >= 6 {
        return n.int_opt("to")?.ok_or_else(|| "attribute 'to' is missing".into());
    }
    let name = n.text("to", "")?;
    let mut all = (1..).map_while(DataType::from_code);
    let found = all.find(|t| t.name().eq_ignore_ascii_case(&name));
    found.map(|t| t.code().into()).ok_or_else(|| format!("attribute 'to' is '{name}', which is no element type").into())
}

/// A conversion from or to a type that is held as codes, or to one of 4 bits: by the host, for
/// kernels know neither.
pub(crate) fn recoded<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    name: String,
    x: ValueId,
    to: (DType, Option<&'static str>),
    saturate: i64,
    round: &str,
) -> Lowered<ValueId> {
    let (d, from) = (c.dtype(x), c.narrow(x));
    let shape = c.shape(x).into_iter().map(Some).collect();
    let text = |s: &str| Attr::Str(s.to_string());
    let attrs = tensor::attrs(vec![
        ("from", text(from.unwrap_or(d.name()))),
        ("to", text(to.1.unwrap_or(to.0.name()))),
        ("saturate", Attr::Int(saturate)),
        ("round_mode", text(round)),
    ]);
    let op = graph::Op::Host { name: "Cast".into(), attrs };
    let out = c.b().node_with_shapes(op, &[x], &[(&name, to.0, shape)], &n.origin);
    let y = out.first().copied().ok_or("a conversion has no output")?;
    c.set_narrow(y, to.1);
    Ok(y)
}
