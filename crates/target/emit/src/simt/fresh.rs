//! Products of warpgroups whose sums are 0 before: their first instruction sets them, and nothing else has to.
use super::ir::{Inst, Op, Reg, Var, Warpgroup};
use foldhash::fast::FixedState;
use std::collections::{HashMap, HashSet};

/// A whole program's instructions, with products that set sums in place of adding to those that were 0.
pub(crate) fn with_fresh_sums(mut body: Vec<Inst>) -> Vec<Inst> {
    within(&mut body, &mut HashSet::default());
    body
}

/// The same of a body, where `zeros` are values of all around it that are 0.
fn within(body: &mut Vec<Inst>, zeros: &mut HashSet<Reg, FixedState>) {
    // Where in this body each variable was set to 0 that nothing has read since.
    let mut set: HashMap<Var, usize, FixedState> = HashMap::default();
    let mut spared: HashSet<usize, FixedState> = HashSet::default();
    for (at, i) in body.iter_mut().enumerate() {
        match i {
            Inst::Let(r, Op::Const(0)) => {
                zeros.insert(*r);
            }
            Inst::Let(_, Op::Get(v)) => {
                set.remove(v);
            }
            Inst::Let(..) => {}
            Inst::Set(v, r) => match zeros.contains(r) {
                true => {
                    set.insert(*v, at);
                }
                false => {
                    set.remove(v);
                }
            },
            Inst::Warpgroup(Warpgroup::Multiply { sums, fresh, .. }) => {
                let before: Vec<Option<usize>> = sums.iter().map(|v| set.remove(v)).collect();
                if let (false, Some(all)) = (*fresh, before.into_iter().collect::<Option<Vec<_>>>())
                {
                    *fresh = true;
                    spared.extend(all);
                }
            }
            Inst::Multiply { sums, .. } => sums.iter().for_each(|v| {
                set.remove(v);
            }),
            i => {
                if let Some(inner) = i.body_mut() {
                    set.clear();
                    within(inner, zeros);
                }
            }
        }
    }
    let mut at = 0;
    body.retain(|_| {
        at += 1;
        !spared.contains(&(at - 1))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simt::ir::{LeftFactor, Lines};
    use kernel::{Fragment, Swizzle};
    use layout::DType;

    fn product(sums: [Var; 2], fresh: bool) -> Inst {
        let lines = Lines {
            array: 0,
            index: 0,
            line: 64,
            pitch: 512,
            beyond: 0,
            across: false,
            swizzle: Swizzle::default(),
        };
        Inst::Warpgroup(Warpgroup::Multiply {
            fragment: Fragment {
                m: 64,
                n: 8,
                k: 16,
                input: DType::F16,
                acc: DType::F32,
                factors: Default::default(),
                right: None,
            },
            sums: sums.into(),
            fresh,
            a: LeftFactor::Lines(lines),
            b: lines,
        })
    }

    #[test]
    fn sums_that_are_zero_and_unread_are_set_by_their_first_product() {
        let zero = Inst::Let(0, Op::Const(0));
        let one = Inst::Let(1, Op::Const(1f64.to_bits()));
        let [set, read] = [Inst::Set(3, 0), Inst::Let(2, Op::Get(3))];
        let given = |middle: Vec<Inst>| {
            let begin = vec![zero.clone(), one.clone(), Inst::Set(2, 0), set.clone()];
            [
                begin,
                middle,
                vec![product([2, 3], false), product([2, 3], false)],
            ]
            .concat()
        };
        let made = with_fresh_sums(given(vec![]));
        let want = [product([2, 3], true), product([2, 3], false)];
        assert_eq!(made, [&[zero.clone(), one.clone()][..], &want].concat());
        // Read before, or something else than 0.
        for middle in [read, Inst::Set(3, 1)] {
            let all = given(vec![middle]);
            assert_eq!(with_fresh_sums(all.clone()), all);
        }
    }
}
