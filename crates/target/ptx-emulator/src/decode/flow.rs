//! Where lanes that branched apart come together: immediate post-dominators.

use crate::program::{ALWAYS, Inst, Op};

/// Sets the reconvergence point of every branch in `code[start..]`, one function.
pub(crate) fn reconverge(code: &mut [Inst], start: usize) {
    let n = code.len() - start;
    // Blocks.
    let mut leader = vec![false; n + 1];
    leader[0] = true;
    for (i, inst) in code[start..].iter().enumerate() {
        match &inst.op {
            Op::Bra(t, _) => {
                leader[*t as usize - start] = true;
                leader[i + 1] = true;
            }
            Op::Brx(b) => {
                for t in &b.0 {
                    leader[*t as usize - start] = true;
                }
                leader[i + 1] = true;
            }
            Op::Exit | Op::Return | Op::Trap => leader[i + 1] = true,
            _ => {}
        }
    }
    let starts: Vec<usize> = (0..n).filter(|i| leader[*i]).collect();
    let count = starts.len();
    let mut block_of = vec![0usize; n];
    for (b, s) in starts.iter().enumerate() {
        let end = starts.get(b + 1).copied().unwrap_or(n);
        block_of[*s..end].fill(b);
    }
    let exit = count;
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); count + 1];
    for b in 0..count {
        let last = starts.get(b + 1).copied().unwrap_or(n) - 1;
        let inst = &code[start + last];
        let falls = match &inst.op {
            Op::Bra(t, _) => {
                next[b].push(block_of[*t as usize - start]);
                inst.guard != ALWAYS
            }
            Op::Brx(t) => {
                for t in &t.0 {
                    next[b].push(block_of[*t as usize - start]);
                }
                inst.guard != ALWAYS
            }
            Op::Exit | Op::Return | Op::Trap => {
                next[b].push(exit);
                inst.guard != ALWAYS
            }
            _ => true,
        };
        if falls {
            next[b].push(if b + 1 < count { b + 1 } else { exit });
        }
    }
    // A loop without an end has no post-dominator of its own: pretend that its last block may
    // leave, so that branches inside it still come together.
    loop {
        let reached = reaches(&next, exit);
        match (0..count).rev().find(|b| !reached[*b]) {
            Some(b) => next[b].push(exit),
            None => break,
        }
    }
    let post = post_dominators(&next, exit);
    for (i, inst) in code[start..].iter_mut().enumerate() {
        let at = match post[block_of[i]] {
            Some(b) if b != exit => (start + starts[b]) as u32,
            _ => u32::MAX,
        };
        match &mut inst.op {
            Op::Bra(_, r) => *r = at,
            Op::Brx(b) => b.2 = at,
            _ => {}
        }
    }
}

fn reversed(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut back = vec![Vec::new(); next.len()];
    for (b, list) in next.iter().enumerate() {
        for t in list {
            back[*t].push(b);
        }
    }
    back
}

fn reaches(next: &[Vec<usize>], exit: usize) -> Vec<bool> {
    let back = reversed(next);
    let mut seen = vec![false; next.len()];
    let mut open = vec![exit];
    seen[exit] = true;
    while let Some(b) = open.pop() {
        for p in &back[b] {
            if !std::mem::replace(&mut seen[*p], true) {
                open.push(*p);
            }
        }
    }
    seen
}

/// Immediate post-dominators, by iteration over the reversed graph in reverse post-order.
fn post_dominators(next: &[Vec<usize>], exit: usize) -> Vec<Option<usize>> {
    let back = reversed(next);
    let mut order = Vec::new();
    let mut state = vec![0u8; next.len()];
    let mut stack = vec![(exit, 0usize)];
    state[exit] = 1;
    while let Some((b, k)) = stack.pop() {
        match back[b].get(k) {
            Some(p) => {
                stack.push((b, k + 1));
                if state[*p] == 0 {
                    state[*p] = 1;
                    stack.push((*p, 0));
                }
            }
            None => order.push(b),
        }
    }
    order.reverse();
    let mut rank = vec![usize::MAX; next.len()];
    for (k, b) in order.iter().enumerate() {
        rank[*b] = k;
    }
    let mut post: Vec<Option<usize>> = vec![None; next.len()];
    post[exit] = Some(exit);
    let mut changed = true;
    while changed {
        changed = false;
        for &b in order.iter().skip(1) {
            let mut new: Option<usize> = None;
            for &s in &next[b] {
                if post[s].is_none() {
                    continue;
                }
                new = Some(match new {
                    None => s,
                    Some(mut x) => {
                        let mut y = s;
                        while x != y {
                            while rank[x] > rank[y] {
                                x = post[x].unwrap_or(exit);
                            }
                            while rank[y] > rank[x] {
                                y = post[y].unwrap_or(exit);
                            }
                        }
                        x
                    }
                });
            }
            if new.is_some() && new != post[b] {
                post[b] = new;
                changed = true;
            }
        }
    }
    post
}
