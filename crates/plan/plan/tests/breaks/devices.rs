//! Breaks of constraints and of plans over several devices.
use super::{Break, block, kernel_of, pick, step, up};
use layout::Dim;
use shopfloor_plan::*;

pub const BREAKS: &[(&str, Break)] = &[
    ("a constraint forgotten or of other sizes", |p, r| {
        let b = block(p);
        if b.constraints.is_empty() {
            return false;
        }
        match r.usize(..3) {
            0 => b.constraints.clear(),
            1 => {
                b.constraints[0].left = b.constraints[0].left.clone() + Dim::Known(2 * up(r) as i64)
            }
            _ => b.constraints[0].right = b.constraints[0].left.clone(),
        }
        true
    }),
    ("constraints of unknown sizes, or too many", |p, r| {
        let c = Constraint {
            node: "x".into(),
            left: [
                Dim::sym("zz"),
                Dim::Known(9).floor_div(&(Dim::sym("m") - Dim::ONE)),
            ][r.usize(..2)]
            .clone(),
            right: Dim::ONE,
        };
        let n = [1, 5000][r.usize(..2)];
        block(p).constraints.extend(std::iter::repeat_n(c, n));
        true
    }),
    ("memory on another device", |p, r| {
        if p.devices.len() < 2 {
            p.devices.push(p.devices[0].clone());
            block(p).far_arenas = vec![1 << 20];
        }
        let x = pick(&mut block(p).buffers, r).unwrap();
        x.place = 1 - x.place;
        true
    }),
    ("a step on another device", |p, r| {
        if p.devices.len() < 2 {
            p.devices.push(p.devices[0].clone());
        }
        let s = step(p, r);
        // A copy may be driven from either end.
        let copy = kernel_of(s).is_some_and(|(k, ..)| k.name == "copy");
        s.device = 1 - s.device;
        !copy
    }),
    ("a smaller or surplus arena of another device", |p, r| {
        let b = block(p);
        match b.far_arenas.first_mut() {
            Some(a) if r.usize(..2) == 0 => *a = r.u64(..2000),
            _ => b.far_arenas.extend([1 << 20, 1 << 20]),
        }
        true
    }),
];
