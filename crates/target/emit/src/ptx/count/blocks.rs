//! A body's text as items: the stretches between its labels and jumps, its loops with the passes that
//! whoever printed them knows, and what the lanes of a warp touch. Integers of the text are gone through once
//! with a value per lane, loops at their first pass; what comes of data is not known.
use super::item::{Item, Reader};
use crate::ptx::{ParamSpec, ParamValue};
use crate::simt::lanes::{LANES, Touch};
use layout::Dim;
use std::collections::HashMap;

type Lanes = [i64; LANES];

/// What a body is printed as.
pub(in crate::ptx) struct Body<'a> {
    pub code: &'a str,
    pub params: &'a [ParamSpec],
    /// Labels that are jumped back to, with the passes of their loops.
    pub loops: &'a [(String, Dim)],
}

/// The items of `body` for the first warp of task `task`.
pub(in crate::ptx) fn items(
    body: &Body,
    task: i64,
    dims: &dyn Fn(&str) -> Option<i64>,
    reader: &mut Reader,
) -> Option<Vec<Item>> {
    let mut look = Look {
        body,
        dims,
        task,
        regs: HashMap::new(),
    };
    // What is open: the loop's label and passes, what came in it, and the stretch at hand.
    let mut open: Vec<(&str, f64, Vec<Item>)> = vec![("", 1.0, vec![])];
    let mut stretch = vec![];
    for line in body.code.lines() {
        let line = line.trim();
        if let Some(label) = line.strip_suffix(':') {
            close(reader, &mut stretch, &mut open);
            if let Some((name, passes)) = body.loops.iter().find(|l| l.0 == label) {
                open.push((name, passes.eval(dims)?.max(0) as f64, vec![]));
            }
            continue;
        }
        reader.read(line, look.line(line), &mut stretch);
        let Some((_, to)) = line.trim_end_matches(';').split_once("bra ") else {
            continue;
        };
        close(reader, &mut stretch, &mut open);
        if open.len() > 1 && open.last().is_some_and(|o| o.0 == to.trim()) {
            let (_, passes, inner) = open.pop()?;
            let part = reader.part(passes, true, inner);
            open.last_mut()?.2.push(part);
        }
    }
    close(reader, &mut stretch, &mut open);
    match open.len() {
        1 => open.pop().map(|o| o.2),
        _ => None,
    }
}

/// What came since the last label or jump becomes a part of its own: nothing is moved past those.
fn close(reader: &mut Reader, stretch: &mut Vec<Item>, open: &mut [(&str, f64, Vec<Item>)]) {
    if let (false, Some(o)) = (stretch.is_empty(), open.last_mut()) {
        let part = reader.part(1.0, false, std::mem::take(stretch));
        o.2.push(part);
    }
}

struct Look<'a> {
    body: &'a Body<'a>,
    dims: &'a dyn Fn(&str) -> Option<i64>,
    task: i64,
    regs: HashMap<&'a str, Lanes>,
}

impl<'a> Look<'a> {
    /// A register, a number or a special register.
    fn of(&self, text: &str) -> Option<Lanes> {
        match text {
            "%tid.x" => return Some(std::array::from_fn(|i| i as i64)),
            "%ctaid.x" => return Some([self.task; LANES]),
            // Where an array begins moves no lane to another bank than its neighbours.
            "shared_bytes" => return Some([0; LANES]),
            _ => {}
        }
        match text.starts_with('%') {
            true => self.regs.get(text).copied(),
            false => text.parse().ok().map(|v| [v; LANES]),
        }
    }

    /// Goes through a line; gives what its lanes touch.
    fn line(&mut self, line: &'a str) -> Touch {
        let none = Touch::default();
        let Some(mut code) = line.strip_suffix(';') else {
            return none;
        };
        let mut active = [1; LANES];
        let guarded = code.starts_with('@');
        if let Some((p, rest)) = code.strip_prefix('@').and_then(|c| c.split_once(' ')) {
            let not = p.starts_with('!');
            if let Some(p) = self.of(p.trim_start_matches('!')) {
                active = p.map(|v| i64::from((v != 0) != not));
            }
            code = rest.trim_start();
        }
        let Some((op, args)) = code.split_once(' ') else {
            return none;
        };
        if op.starts_with('.') {
            return none;
        }
        match op.split('.').next() {
            Some("ld" | "st" | "cp" | "ldmatrix" | "red") if !op.starts_with("ld.param") => {
                return self.memory(op, args, &active);
            }
            _ => {}
        }
        let mut args = args.split(',').map(str::trim);
        let Some(to) = args.next() else { return none };
        let args: Vec<&str> = args.collect();
        let value = match op.starts_with("ld.param") {
            true => args.first().and_then(|a| self.param(a)),
            false => self.value(op, &args),
        };
        let value = match (guarded, value, self.regs.get(to)) {
            (true, Some(v), Some(old)) => Some(std::array::from_fn(|i| match active[i] {
                0 => old[i],
                _ => v[i],
            })),
            (_, v, _) => v,
        };
        match value {
            Some(v) => self.regs.insert(to, v),
            None => self.regs.remove(to),
        };
        none
    }

    /// A parameter by its name in brackets. Buffers begin anywhere on 128 bytes.
    fn param(&self, name: &str) -> Option<Lanes> {
        let name = name.trim_matches(['[', ']']);
        let spec = self.body.params.iter().find(|p| p.name == name)?;
        match &spec.value {
            ParamValue::Dim(d) => d.eval(self.dims).map(|v| [v; LANES]),
            ParamValue::Operand(_) | ParamValue::Fault => Some([0; LANES]),
        }
    }

    fn value(&self, op: &str, args: &[&str]) -> Option<Lanes> {
        let mut parts = op.split('.');
        let (name, second) = (parts.next()?, parts.next().unwrap_or(""));
        let last = op.rsplit('.').next().unwrap_or("");
        if matches!(last, "f16" | "f32" | "f64" | "bf16" | "f16x2" | "bf16x2") {
            return None;
        }
        let a = |n: usize| args.get(n).and_then(|t| self.of(t));
        let one = |f: &dyn Fn(i64) -> i64| Some(a(0)?.map(f));
        let two = |f: &dyn Fn(i64, i64) -> i64| {
            let (x, y) = (a(0)?, a(1)?);
            Some(std::array::from_fn(|i| f(x[i], y[i])))
        };
        match name {
            "mov" | "cvta" => a(0),
            "cvt" => match last {
                "u32" => one(&|v| v & 0xffff_ffff),
                "s32" | "s64" | "u64" => a(0),
                _ => None,
            },
            "add" => two(&i64::wrapping_add),
            "sub" => two(&i64::wrapping_sub),
            "mul" => two(&i64::wrapping_mul),
            "mad" => {
                let (x, y, z) = (a(0)?, a(1)?, a(2)?);
                Some(std::array::from_fn(|i| {
                    x[i].wrapping_mul(y[i]).wrapping_add(z[i])
                }))
            }
            "div" => two(&|x, y| x.checked_div(y).unwrap_or(0)),
            "rem" => two(&|x, y| x.checked_rem(y).unwrap_or(0)),
            "min" => two(&i64::min),
            "max" => two(&i64::max),
            "and" => two(&|x, y| x & y),
            "or" => two(&|x, y| x | y),
            "xor" => two(&|x, y| x ^ y),
            "shl" => two(&|x, y| x.wrapping_shl(y as u32)),
            "shr" => two(&|x, y| (x as u64).wrapping_shr(y as u32) as i64),
            "selp" => {
                let (x, y, p) = (a(0)?, a(1)?, a(2)?);
                Some(std::array::from_fn(|i| if p[i] != 0 { x[i] } else { y[i] }))
            }
            "setp" => {
                // Below 0 is far above as an unsigned number.
                let wide = |v: i64| match last {
                    "u32" => v & 0xffff_ffff,
                    _ => v,
                };
                let own = two(&|x, y| {
                    let (x, y) = (wide(x), wide(y));
                    i64::from(match second {
                        "eq" => x == y,
                        "ne" => x != y,
                        "lt" => x < y,
                        "le" => x <= y,
                        "gt" => x > y,
                        _ => x >= y,
                    })
                })?;
                match (op.contains(".and."), a(2)) {
                    (true, Some(p)) => Some(std::array::from_fn(|i| own[i] & p[i])),
                    (true, None) => None,
                    _ => Some(own),
                }
            }
            _ => None,
        }
    }

    /// What the active lanes of an access touch.
    fn memory(&self, op: &str, args: &str, active: &Lanes) -> Touch {
        let parts: Vec<&str> = op.split('.').collect();
        let lanes = (0..LANES).filter(|i| active[*i] != 0);
        let places = |text: &str| -> Option<Vec<i64>> {
            let (base, more) = text.split_once('+').unwrap_or((text, "0"));
            let (base, more) = (self.of(base.trim())?, more.trim().parse::<i64>().ok()?);
            Some(lanes.clone().map(|i| base[i].wrapping_add(more)).collect())
        };
        let mut inner = args.split('[').skip(1).filter_map(|t| t.split(']').next());
        let first = inner.next().unwrap_or("");
        let anywhere = Touch {
            sectors: lanes.clone().count() as f64,
            lines: lanes.clone().count() as f64,
            passes: 1.0,
            bytes: 0.0,
        };
        match parts[0] {
            "ldmatrix" => places(first).map_or(anywhere, |mut p| Touch::of_banks(&mut p, 16)),
            "cp" if parts.get(2).is_some_and(|p| matches!(*p, "ca" | "cg")) => {
                let rest: Vec<&str> = args.rsplit(',').take(2).map(str::trim).collect();
                // Bytes to fill, and of those to read where that is said.
                let (bytes, read) = match (rest[0].parse::<i64>(), rest.get(1)) {
                    (Ok(n), _) => (n, None),
                    (Err(_), Some(n)) => (n.parse().unwrap_or(16), self.of(rest[0])),
                    _ => (16, None),
                };
                let to = places(first).map(|mut p| Touch::of_banks(&mut p, bytes));
                let reads = |i: &usize| read.is_none_or(|r| r[*i] != 0);
                let from = inner.next().and_then(|t| self.of(t.trim()));
                let from = from.map(|f| -> Vec<i64> {
                    let taken = lanes.clone().filter(reads);
                    taken.map(|i| f[i]).collect()
                });
                let from = from.map_or(anywhere, |mut f| Touch::of_operand(&mut f, bytes));
                Touch {
                    passes: to.map_or(1.0, |t| t.passes),
                    ..from
                }
            }
            "cp" => Touch::default(),
            _ => {
                let bits = parts.last().and_then(|t| t[1..].parse::<i64>().ok());
                let several = parts.iter().find_map(|p| p.strip_prefix('v')?.parse().ok());
                let own = bits.unwrap_or(32) / 8 * several.unwrap_or(1i64);
                match (places(first), parts.get(1)) {
                    (Some(mut p), Some(&"shared")) => Touch::of_banks(&mut p, own),
                    (Some(mut p), _) => Touch::of_operand(&mut p, own),
                    (None, _) => anywhere,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::Kind;
    use super::*;

    /// Kinds and touches of the instructions of `items` that touch memory, each with its passes.
    fn flat(items: &[Item], times: f64, out: &mut Vec<(Kind, Touch, f64)>) {
        for i in items {
            match i {
                Item::Word(w, t) if *t != Touch::default() => out.push((w.kind, *t, times)),
                Item::Word(..) => {}
                Item::Part {
                    times: own, body, ..
                } => flat(body, times * own, out),
            }
        }
    }

    #[test]
    fn loops_go_round_and_lanes_touch_what_their_addresses_say() {
        let code = "\
            \t.reg .b32 %r<9>;
            \tld.param.u64 %d0, [operand0];
            \tld.param.s64 %d1, [dim0];
            \tmov.u32 %r0, %tid.x;
            \tmul.lo.u32 %r1, %r0, 16;
            \tcvt.s64.s32 %d2, %r1;
            \tadd.s64 %d3, %d0, %d2;
            \tsetp.lt.u32 %p0, %r0, 8;
            \tselp.b32 %r2, 16, 0, %p0;
            $L1_loop:
            \tcp.async.cg.shared.global [%r1], [%d3], 16, %r2;
            \tcp.async.commit_group;
            \t@%p0 ld.global.f32 %f0, [%d3+64];
            \tldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r1];
            \t@%p1 bra $L2_skip;
            \tst.shared.b32 [%r0], %r3;
            $L2_skip:
            \t@%p2 bra $L1_loop;
            \tst.global.v2.f32 [%f0], {%f0, %f0};
            \tret;"
            .replace("            ", "");
        let params = [
            ParamSpec {
                name: "operand0".into(),
                value: ParamValue::Operand(0),
            },
            ParamSpec {
                name: "dim0".into(),
                value: ParamValue::Dim(Dim::sym("n")),
            },
        ];
        let loops = [("$L1_loop".to_string(), Dim::sym("n"))];
        let body = Body {
            code: &code,
            params: &params,
            loops: &loops,
        };
        let of = |n: Option<i64>| items(&body, 0, &|_| n, &mut Reader::default());
        assert!(of(None).is_none(), "the passes are not known");
        let mut out = vec![];
        flat(&of(Some(5)).unwrap(), 1.0, &mut out);
        let kinds: Vec<(Kind, f64)> = out.iter().map(|o| (o.0, o.2)).collect();
        assert_eq!(
            kinds,
            [
                (Kind::Copy, 5.0),
                (Kind::Load, 5.0),
                (Kind::LoadShared, 5.0),
                (Kind::StoreShared, 5.0),
                (Kind::Store, 1.0)
            ]
        );
        // Eight lanes read 16 bytes each, all fill as much of shared memory.
        let copy = out[0].1;
        assert_eq!((copy.sectors, copy.lines, copy.passes), (4.0, 1.0, 4.0));
        // Eight lanes that lie 16 bytes apart.
        assert_eq!((out[1].1.sectors, out[1].1.bytes), (4.0, 32.0));
        assert_eq!(out[2].1.passes, 4.0);
        // An address of which nothing is known: no two lanes share anything.
        assert_eq!(out[4].1.sectors, 32.0);
    }
}
