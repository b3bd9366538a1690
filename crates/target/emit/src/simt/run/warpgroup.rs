//! Products of warpgroups, which go on beside what follows: they are made when their group is waited for, and what
//! they read is not written before.
use super::super::ir::{LeftFactor, Lines, Reg, Var, Warpgroup};
use super::matrix::{added, half_value};
use super::proxy::{Factor, GROUP, LeftRead, Product, Seen};
use super::{Machine, Memory, R, StopReason};
use crate::simt::arith::TF32;
use kernel::Fragment;
use layout::DType;

/// Threads of a warp.
const WARP: usize = 32;
/// Lines of a block of a factor.
const BLOCK: i64 = 8;
/// Rows of an instruction.
const ROWS: usize = 64;

/// Elements of a factor of so many rows or columns, `deep` of each.
fn places(f: &Factor, own: i64, deep: i64) -> impl Iterator<Item = i64> + use<> {
    let (l, first) = *f;
    (0..own).flat_map(move |n| {
        (0..deep).map(move |k| {
            let (line, within) = if l.across { (k, n) } else { (n, k) };
            let line = first + line / BLOCK * i64::from(l.pitch) + line % BLOCK * i64::from(l.line);
            let (width, beyond) = (i64::from(l.line), i64::from(l.beyond));
            let within = match beyond {
                0 => within,
                _ => within / width * beyond + within % width,
            };
            swizzled(line + within, &l)
        })
    })
}

/// The elements of 16 bits in a word.
fn halves(d: DType, bits: u64) -> [f64; 2] {
    [bits, bits >> 16].map(|b| half_value(b as u16, d))
}

/// Where element `at` of the array lies.
fn swizzled(at: i64, l: &Lines) -> i64 {
    let s = l.swizzle;
    at ^ (at >> s.shift & ((1 << s.bits) - 1) << s.base)
}

impl<M: Memory> Machine<'_, M> {
    /// A product of warpgroups, its groups, or a fence.
    pub(super) fn warpgroups(&mut self, w: &Warpgroup, active: &[usize]) -> Result<(), StopReason> {
        if matches!(w, Warpgroup::ProxyFence) {
            active.iter().for_each(|&l| self.proxy.fence(l));
            return Ok(());
        }
        let whole = |g: &[usize]| g.len() == GROUP && g[0].is_multiple_of(GROUP);
        if !active.chunks(GROUP).all(whole) {
            return Err("a product where not all threads of a warpgroup come by".into());
        }
        for first in active.iter().copied().step_by(GROUP) {
            match w {
                Warpgroup::Multiply {
                    fragment,
                    sums,
                    fresh,
                    a,
                    b,
                } => self.begin(first, (fragment, sums, *fresh), (a, b))?,
                Warpgroup::Commit => {
                    let own = &mut self.proxy.products[first / GROUP];
                    let open = std::mem::take(&mut own.open);
                    own.groups.push_back(open);
                }
                Warpgroup::Wait(left) => self.products_but(first, *left as usize)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The warpgroup of thread `first` waits until at most `left` groups of its products are under way.
    fn products_but(&mut self, first: usize, left: usize) -> R<()> {
        while self.proxy.products[first / GROUP].groups.len() > left {
            let done = self.proxy.products[first / GROUP].groups.pop_front();
            for p in done.unwrap_or_default() {
                self.product(first, &p)?;
            }
        }
        Ok(())
    }

    fn begin(
        &mut self,
        first: usize,
        (fragment, sums, fresh): (&Fragment, &[Var], bool),
        (a, b): (&LeftFactor, &Lines),
    ) -> R<()> {
        let from = |l: &Lines| {
            let at = self.int(l.index, first);
            match (first..first + GROUP).all(|lane| self.int(l.index, lane) == at) {
                true => Ok((*l, at)),
                false => Err("threads of a warpgroup differ about a factor's place".to_string()),
            }
        };
        let a = match a {
            LeftFactor::Lines(a) => LeftRead::Lines(from(a)?),
            LeftFactor::Words(words) => {
                let own = (first..first + GROUP).map(|lane| words.map(|r| self.get(r, lane)));
                LeftRead::Words(*words, own.collect())
            }
        };
        let p = Product {
            fragment: *fragment,
            sums: sums.to_vec(),
            fresh,
            a,
            b: from(b)?,
        };
        let left = match &p.a {
            LeftRead::Lines(a) => Some((a, fragment.m)),
            LeftRead::Words(..) => None,
        };
        for (f, lines) in left.into_iter().chain([(&p.b, fragment.n)]) {
            for at in places(f, lines.into(), fragment.k.into()) {
                let i = self.touch(f.0.array, at, first, false)?;
                let e = &mut self.proxy.elements[f.0.array as usize][i];
                if e.0 != Seen::Yes {
                    return Err(
                        "a product of what was written without a fence and a barrier since".into(),
                    );
                }
                e.1 += 1;
            }
        }
        self.proxy.products[first / GROUP].open.push(p);
        Ok(())
    }

    /// Values of a factor, line after line.
    fn factor(&mut self, f: &Factor, lines: u32, deep: u32, first: usize) -> R<Vec<f64>> {
        let d = self.p.shared[f.0.array as usize].dtype;
        let mut out = vec![];
        for at in places(f, lines.into(), deep.into()) {
            let i = self.touch(f.0.array, at, first, false)?;
            self.proxy.elements[f.0.array as usize][i].1 -= 1;
            let bits = self.shared[f.0.array as usize].0[i];
            out.push(match d {
                DType::I8 | DType::U8 => bits as i64 as f64,
                DType::F32 => f32::from_bits(bits as u32 & TF32).into(),
                _ => f32::from_bits(bits as u32).into(),
            });
        }
        Ok(out)
    }

    /// Rows of a left factor of so many elements each that threads have words of, which must be those that the product
    /// began with.
    fn rows(
        &self,
        (f, words, began): (&Fragment, &[Reg; 4], &[[u64; 4]]),
        first: usize,
    ) -> R<Vec<f64>> {
        let [left, _] = f.multiplied();
        let (deep, each) = (f.k as usize, (32 / left.bits()) as usize);
        let mut out = vec![0.0; ROWS * deep];
        for (lane, own) in began.iter().enumerate() {
            if words.map(|r| self.get(r, first + lane)) != *own {
                return Err("words of a left factor change while a product reads them".into());
            }
            let (row, depth) = (lane / WARP * 16 + lane % WARP / 4, lane % 4 * each);
            for (i, &bits) in own.iter().enumerate() {
                let at = (row + i % 2 * 8) * deep + depth + i / 2 * 4 * each;
                match each {
                    1 => out[at] = f32::from_bits(bits as u32 & TF32).into(),
                    _ => out[at..at + 2].copy_from_slice(&halves(left, bits)),
                }
            }
        }
        Ok(out)
    }

    fn product(&mut self, first: usize, p: &Product) -> R<()> {
        let f = p.fragment;
        let left = match &p.a {
            LeftRead::Lines(a) => self.factor(a, f.m, f.k, first)?,
            LeftRead::Words(words, began) => self.rows((&f, words, began), first)?,
        };
        let right = self.factor(&p.b, f.n, f.k, first)?;
        let k = f.k as usize;
        for lane in 0..GROUP {
            let (warp, g, pair) = (lane / WARP, lane % WARP / 4, lane % 4 * 2);
            for (n, &v) in p.sums.iter().enumerate() {
                let row = warp * 16 + g + n / 2 % 2 * 8;
                let column = n / 4 * 8 + pair + n % 2;
                let at = v as usize * self.lanes + first + lane;
                let before = if p.fresh { 0 } else { self.vars[at] };
                let (x, y) = (&left[row * k..][..k], &right[column * k..][..k]);
                self.vars[at] = added(&f, before, x.iter().zip(y));
            }
        }
        Ok(())
    }
}
