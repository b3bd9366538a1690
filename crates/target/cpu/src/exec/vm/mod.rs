//! Scalar programs as vector programs over rows of up to [`CH`] elements.
//!
//! Every value is a row in one of five forms: f32 (also for f16 and bf16, whose results are rounded
//! operation by operation), f64, i32 (signed integers up to its width and unsigned ones below it), i64
//! (all other integers) and masks (`Bool`, as f32 0 or 1). f32 runs on the
//! micro-kernels; the others on plain loops with the exact rules of [`expr::Scalar`].

mod compile;
mod rows;

use super::Axes;
use crate::ukr::Kernels;
use crate::ukr::kernels::{BinaryFn, ScalarFn, UnaryFn};
use expr::{Binary, Compare, Scalar, Unary};
use layout::DType;

/// Elements per row of a register.
pub(crate) const CH: usize = 512;
/// Arguments that a program may have on this backend.
pub(crate) const MAX_ARGS: usize = 32;

/// How a register holds its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F,
    D,
    W,
    I,
    M,
}

impl Kind {
    pub(crate) fn of(d: DType) -> Kind {
        match d {
            DType::F32 | DType::F16 | DType::BF16 => Kind::F,
            DType::F64 => Kind::D,
            DType::Bool => Kind::M,
            DType::I64 | DType::U64 | DType::U32 => Kind::I,
            _ => Kind::W,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Kind::F | Kind::M | Kind::W => 4,
            Kind::D | Kind::I => 8,
        }
    }
}

/// How often a value changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Once per run.
    Const,
    /// Once per row.
    Row,
    /// With every element.
    Lane,
}

/// Bytes of an element of type `d`, where registers hold it as memory does: such rows are read in place.
fn as_it_lies(d: DType) -> Option<i64> {
    match d {
        DType::F32 | DType::I32 => Some(4),
        DType::F64 | DType::I64 | DType::U64 => Some(8),
        _ => None,
    }
}

type R = usize;

#[derive(Clone, Copy, Debug)]
enum VOp {
    Arg(usize),
    Const(Scalar),
    Index(usize),
    Dim(u32),
    /// Fills a row with a uniform value.
    Splat(R),
    FUn(UnaryFn, R),
    /// Both lanes, or both uniform.
    FBin(BinaryFn, R, R),
    /// Lanes with a uniform value.
    FBinK(ScalarFn, R, R),
    Fma(R, R, R),
    /// Lanes (or all uniform) f32 choice.
    FSelect(R, R, R),
    /// 1 where 0, else 0.
    MNot(R),
    Un(Unary, R),
    Bin(Binary, R, R),
    Cmp(Compare, R, R),
    Sel(R, R, R),
    Cast(R, DType, DType),
    /// An f32 result rounded to the type of 16 bits that it is of.
    Round(R),
    /// `(f32(sum + offset) + before) * scale + after` of rows; those that are not there are left out. The
    /// last is uniform: the offset is taken away as often as it says.
    Scaled([Option<R>; 6]),
    /// A row divided by and moved by uniform values (1 and 0 where they are not there), rounded before it
    /// is moved and saturated between bounds.
    Quantise(R, [Option<R>; 2], [f32; 2]),
    /// `(x - zero) * by` of an argument of bytes, signed or not; the last is uniform.
    Dequantise(usize, bool, f32, R),
}

#[derive(Clone, Copy, Debug)]
struct VInst {
    op: VOp,
    /// Type that the operation works in.
    dtype: DType,
    /// Form of the result.
    kind: Kind,
    class: Class,
    /// Offset of its register in the scratch, or `usize::MAX` (an argument read in place).
    at: usize,
}

/// A compiled program.
#[derive(Debug)]
pub(crate) struct Program {
    insts: Vec<VInst>,
    /// Result registers with their types.
    outputs: Vec<(R, DType)>,
    /// Output 0 may be computed in the destination.
    direct: bool,
    /// The program gives argument 0 back.
    pub identity: bool,
    /// The program is this function of an argument of f32, which is given by its slot.
    pub unary: Option<(UnaryFn, usize)>,
    /// Bit set of `Index` axes.
    pub index: u32,
    /// Scratch bytes.
    pub bytes: usize,
}

/// A row of elements in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub ptr: *mut u8,
    /// Stride in elements.
    pub st: i64,
}

impl Lane {
    pub(crate) const NONE: Lane = Lane {
        ptr: std::ptr::null_mut(),
        st: 0,
    };
}

/// Coordinates of a row's first element, and their change from element to element.
pub(crate) struct Coords<'a> {
    pub at: &'a Axes<i64>,
    pub step: &'a Axes<i64>,
}

/// A program at work.
pub(crate) struct Run<'a> {
    prog: &'a Program,
    k: &'static Kernels,
    base: *mut u8,
    /// Pointer of each value; at the start of the scratch.
    ptrs: *mut *mut u8,
    p: &'a [i64],
}

impl Program {
    /// Whether the program gives 0 whatever it reads.
    pub(crate) fn is_zero(&self) -> bool {
        matches!(self.outputs.as_slice(), [(r, _)]
            if matches!(self.insts[*r].op, VOp::Const(Scalar::Float(0.0) | Scalar::Int(0))))
    }

    /// The functions that a row of elements goes through, in order, with the addresses of their code: those
    /// of the table of `k` without a name.
    pub(crate) fn functions(&self, k: &Kernels) -> Vec<(Option<String>, usize)> {
        let mut out = Vec::new();
        let own = |name: String, code: usize| (Some(name), code);
        for i in self.insts.iter().filter(|i| i.class == Class::Lane) {
            out.extend(match i.op {
                VOp::Arg(_) if as_it_lies(i.dtype).is_some() => None,
                VOp::Arg(_) => {
                    let name = format!("load of a row of {}", i.dtype);
                    Some(own(name, rows::load::code(k.isa)))
                }
                VOp::FUn(f, _) => Some((None, f as *const () as usize)),
                VOp::FBin(f, ..) => Some((None, f as *const () as usize)),
                VOp::FBinK(f, ..) => Some((None, f as *const () as usize)),
                VOp::Fma(..) => Some((None, k.fma as *const () as usize)),
                VOp::FSelect(..) => Some((None, k.select as *const () as usize)),
                VOp::MNot(_) => Some((None, k.rsub_k as *const () as usize)),
                VOp::Scaled(_) => Some((None, k.scaled as *const () as usize)),
                VOp::Quantise(..) => Some((None, k.quantise as *const () as usize)),
                VOp::Dequantise(..) => Some((None, k.dequantise as *const () as usize)),
                VOp::Un(f, _) => {
                    let name = format!("{f:?} of {} one by one", i.dtype);
                    Some(own(name, rows::unary as *const () as usize))
                }
                VOp::Bin(f, ..) => {
                    let name = format!("{f:?} of rows of {}", i.dtype);
                    Some(own(name, rows::binary::code(k.isa)))
                }
                VOp::Cmp(f, ..) => {
                    let name = format!("{f:?} of rows of {}", i.dtype);
                    Some(own(name, rows::compare::code(k.isa)))
                }
                VOp::Sel(..) => {
                    let name = format!("choice between rows of {}", i.dtype);
                    Some(own(name, rows::select::code(k.isa)))
                }
                VOp::Cast(_, from, to) => {
                    Some(own(format!("{from} to {to}"), rows::cast::code(k.isa)))
                }
                VOp::Round(_) => {
                    let name = format!("rounding to {}", i.dtype);
                    Some(own(name, rows::round_half as *const () as usize))
                }
                VOp::Index(_) => Some(own("coordinates of a row".into(), rows::count::code(k.isa))),
                VOp::Const(_) | VOp::Dim(_) | VOp::Splat(_) => None,
            });
        }
        if !self.direct {
            let to = self.outputs.first().map_or(DType::F32, |o| o.1);
            let name = format!("store of a row of {to}");
            out.push(own(name, rows::store::code(k.isa)));
        }
        out
    }

    /// Number of results.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs.len()
    }
}

impl<'a> Run<'a> {
    /// Starts `prog` with `base`, `prog.bytes` of scratch aligned to 64.
    pub(crate) fn new(
        prog: &'a Program,
        k: &'static Kernels,
        base: *mut u8,
        p: &'a [i64],
    ) -> Run<'a> {
        let r = Run {
            prog,
            k,
            base,
            ptrs: base.cast(),
            p,
        };
        for (i, inst) in prog.insts.iter().enumerate() {
            if inst.at != usize::MAX {
                // SAFETY: the scratch begins with one pointer per instruction.
                unsafe { *r.ptrs.add(i) = base.wrapping_add(inst.at) };
            }
            if inst.class == Class::Const {
                r.step(
                    i,
                    inst,
                    if matches!(inst.op, VOp::Splat(_)) {
                        CH
                    } else {
                        1
                    },
                    None,
                    0,
                );
            }
        }
        r
    }

    fn ptr(&self, r: R) -> *mut u8 {
        // SAFETY: one pointer per instruction.
        unsafe { *self.ptrs.add(r) }
    }

    /// Runs `n` elements; results go to `outs`. `in_place`: a result may be computed in its
    /// destination (no argument but one read element by element with it lies there).
    pub(crate) fn row(&self, args: &[Lane], c: &Coords, outs: &[Lane], n: usize, in_place: bool) {
        let p = self.prog;
        for (i, inst) in p.insts.iter().enumerate() {
            if inst.class == Class::Row {
                let m = if matches!(inst.op, VOp::Splat(_)) {
                    CH.min(n)
                } else {
                    1
                };
                self.step(i, inst, m, Some((args, c)), 0);
            }
        }
        let direct = in_place && p.direct && outs[0].st == 1;
        let mut from = 0;
        while from < n {
            let m = CH.min(n - from);
            if direct {
                // SAFETY: one pointer per instruction; the destination has `n` elements of 4 bytes.
                unsafe { *self.ptrs.add(p.outputs[0].0) = outs[0].ptr.add(from * 4) };
            }
            for (i, inst) in p.insts.iter().enumerate() {
                if inst.class == Class::Lane {
                    self.step(i, inst, m, Some((args, c)), from);
                }
            }
            for (j, &(r, d)) in p.outputs.iter().enumerate() {
                if direct && j == 0 {
                    continue;
                }
                let uniform = p.insts[r].class != Class::Lane;
                // SAFETY: a register of the result's form; the caller names the rows of `outs`.
                unsafe {
                    rows::store(
                        self.k.isa,
                        self.ptr(r),
                        Kind::of(d),
                        uniform,
                        d,
                        outs[j],
                        from,
                        m,
                    )
                };
            }
            from += m;
        }
    }

    fn uniform(&self, r: R) -> bool {
        self.prog.insts[r].class != Class::Lane && !matches!(self.prog.insts[r].op, VOp::Splat(_))
    }

    /// Sums with their scales and what is added, `n` of them at `dst`.
    ///
    /// # Safety
    /// As the registers of [`VOp::Scaled`] have them: `dst` has room for `n` elements.
    #[inline]
    unsafe fn scaled(&self, rows: [Option<R>; 6], dst: *mut u8, n: usize) {
        // SAFETY: the registers hold n elements, and so much room is at `dst`.
        unsafe {
            let [acc, off, before, scale, after, times] =
                rows.map(|r| r.map_or(std::ptr::null(), |r| self.ptr(r).cast_const()));
            let times = match times.is_null() {
                true => 1,
                false => (*times.cast::<i32>()).wrapping_neg(),
            };
            (self.k.scaled)(
                acc.cast(),
                off.cast(),
                times,
                before.cast(),
                scale.cast(),
                after.cast(),
                dst.cast(),
                n,
            );
        }
    }

    fn step(&self, i: usize, inst: &VInst, n: usize, row: Option<(&[Lane], &Coords)>, from: usize) {
        let k = self.k;
        let f = |r: R| self.ptr(r).cast::<f32>();
        let dst = self.ptr(i);
        // SAFETY: registers hold CH elements of their form, n is at most CH; rows in memory have the
        // elements that the caller names.
        unsafe {
            match inst.op {
                VOp::Arg(slot) => {
                    let Some((args, _)) = row else { return };
                    let a = args[slot];
                    let dense = a.st == 1 || inst.class != Class::Lane;
                    if let Some(elem) = as_it_lies(inst.dtype).filter(|_| dense) {
                        *self.ptrs.add(i) =
                            a.ptr.wrapping_offset((from as i64 * a.st * elem) as isize);
                    } else {
                        // The pointer may still be that of an earlier row's memory.
                        let own = self.base.wrapping_add(inst.at);
                        *self.ptrs.add(i) = own;
                        rows::load(k.isa, own, inst.dtype, a, from, n);
                    }
                }
                VOp::Const(s) => rows::put(dst, inst.kind, s),
                VOp::Dim(d) => *dst.cast::<i64>() = self.p[d as usize],
                VOp::Index(a) => {
                    let Some((_, c)) = row else { return };
                    let first = c.at[a] + c.step[a] * from as i64;
                    rows::count(k.isa, dst.cast(), first, c.step[a], n);
                }
                VOp::Splat(a) => rows::splat(dst, self.ptr(a), inst.kind, n),
                VOp::FUn(g, a) => g(f(a), dst.cast(), n),
                VOp::FBin(g, a, b) => g(f(a), f(b), dst.cast(), n),
                VOp::FBinK(g, a, b) => g(f(a), *f(b), dst.cast(), n),
                VOp::Fma(a, b, c) => (k.fma)(f(a), f(b), f(c), dst.cast(), n),
                VOp::FSelect(c, a, b) => (k.select)(f(c), f(a), f(b), dst.cast(), n),
                VOp::MNot(a) => (k.rsub_k)(f(a), 1.0, dst.cast(), n),
                VOp::Un(g, a) => rows::unary(g, inst.dtype, self.ptr(a), dst, n),
                VOp::Bin(g, a, b) => {
                    let (x, y) = (!self.uniform(a) as usize, !self.uniform(b) as usize);
                    rows::binary(k.isa, g, inst.dtype, self.ptr(a), x, self.ptr(b), y, dst, n);
                }
                VOp::Cmp(g, a, b) => {
                    let (x, y) = (!self.uniform(a) as usize, !self.uniform(b) as usize);
                    rows::compare(
                        k.isa,
                        g,
                        inst.dtype,
                        self.ptr(a),
                        x,
                        self.ptr(b),
                        y,
                        dst.cast(),
                        n,
                    );
                }
                VOp::Sel(c, a, b) => {
                    let s = [c, a, b].map(|r| !self.uniform(r) as usize);
                    rows::select(
                        k.isa,
                        inst.kind,
                        self.ptr(c).cast(),
                        self.ptr(a),
                        self.ptr(b),
                        s,
                        dst,
                        n,
                    );
                }
                VOp::Cast(a, from, to) => rows::cast(k.isa, self.ptr(a), from, dst, to, n),
                VOp::Round(a) => rows::round_half(inst.dtype, f(a), dst.cast(), n),
                VOp::Scaled(rows) => self.scaled(rows, dst, n),
                VOp::Quantise(x, [by, zero], [lo, hi]) => {
                    let by = by.map_or(1.0, |r| *f(r));
                    let zero = zero.map_or(0.0, |r| *f(r));
                    (k.quantise)(f(x), by, zero, lo, hi, dst.cast(), n);
                }
                VOp::Dequantise(slot, signed, zero, by) => {
                    let Some((args, _)) = row else { return };
                    let a = args[slot];
                    let mut src = a.ptr.wrapping_offset((from as i64 * a.st) as isize);
                    if a.st != 1 {
                        // Bytes that lie apart are brought to the end of the result, where nothing is
                        // written before it was read.
                        let end = dst.add(CH * 3);
                        for i in 0..n {
                            *end.add(i) = *src.wrapping_offset((i as i64 * a.st) as isize);
                        }
                        src = end;
                    }
                    (k.dequantise)(src, signed, zero, *f(by), dst.cast(), n);
                }
            }
        }
    }
}

pub(crate) use compile::{compile, compile_in};
pub(crate) use rows::{narrow, widen, widen_code};
