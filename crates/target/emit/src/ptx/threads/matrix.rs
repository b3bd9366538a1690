//! Copies that go on beside what follows, and matrix instructions.
use super::output::Arg;
use super::{Name, Printer, variable};
use crate::simt::ir::{Inst, Reg, Ty, Var};
use expr::Binary;
use kernel::{Fragment, OperandId};
use layout::DType;

/// What a fragment's types are called in instructions: of sums, and of both factors.
pub(super) fn names(f: &Fragment) -> [&'static str; 3] {
    let name = |d: DType| match d {
        DType::F32 => "tf32",
        DType::I8 => "s8",
        DType::U8 => "u8",
        d => name16(d),
    };
    let [left, right] = f.multiplied().map(name);
    let sums = if f.acc == DType::I32 { "s32" } else { "f32" };
    [sums, left, right]
}

/// What the names of sums' variables begin with.
pub(super) fn sums_kind(f: &Fragment) -> &'static str {
    variable(if f.acc == DType::I32 {
        Ty::I32
    } else {
        Ty::F32
    })
}

/// A 16-bit float's name in instructions.
fn name16(d: DType) -> &'static str {
    match d {
        DType::BF16 => "bf16",
        _ => "f16",
    }
}

impl Printer<'_> {
    /// A copy, its groups, or a matrix instruction.
    pub(super) fn together(&mut self, i: &Inst) {
        match i {
            Inst::Copy {
                array,
                to,
                operand,
                index,
                elements,
                guard,
            } => self.copy((*array, *to), (*operand, *index, *elements), *guard),
            Inst::Commit => self.line("cp.async.commit_group;"),
            Inst::Wait(left) => self.line(format_args!("cp.async.wait_group {left};")),
            Inst::LoadMatrix {
                dst,
                array,
                index,
                transposed,
            } => self.load_matrix(*dst, (*array, *index), *transposed),
            Inst::Multiply {
                fragment,
                sums,
                a,
                b,
            } => self.multiply(fragment, *sums, *a, *b),
            _ => {}
        }
    }

    /// Copies elements of an operand to a shared array.
    fn copy(
        &mut self,
        (array, to): (u32, Reg),
        (operand, index, elements): (OperandId, Reg, u32),
        guard: Option<Reg>,
    ) {
        let bytes = self.p.shared[array as usize].dtype.bits() * elements / 8;
        let from = self.global(operand, index, None);
        let to = self.shared_at(array, to);
        let kind = if bytes == 16 { "cg" } else { "ca" };
        let bytes = Arg::Number(bytes.into());
        let mut args = vec![to.arg(), from.arg(), bytes];
        if let Some(g) = guard {
            // A source size of 0 reads nothing and fills with zeros.
            let (size, g) = (self.temp("tr"), self.r(g));
            let none = Arg::Number(0);
            self.ins(&["selp.b32"], &[size.into(), bytes, none, g.into()]);
            args.push(size.into());
        }
        self.ins(&["cp.async.", kind, ".shared.global"], &args);
    }

    /// Loads four 8x8 blocks as a warp's fragments.
    fn load_matrix(&mut self, dst: [Reg; 4], (array, index): (u32, Reg), transposed: bool) {
        let from = self.shared_at(array, index);
        let trans = if transposed { ".trans" } else { "" };
        let dst = dst.map(|r| self.r(r));
        let op = ["ldmatrix.sync.aligned.m8n8.x4", trans, ".shared.b16"];
        self.ins(&op, &[Arg::List(&dst), from.arg()]);
    }

    /// Adds the product of two fragments to sums.
    fn multiply(&mut self, fragment: &Fragment, sums: [Var; 4], a: [Reg; 4], b: [Reg; 2]) {
        let Fragment { m, n, k, .. } = fragment;
        let [acc, left, right] = names(fragment);
        let shape = format!("m{m}n{n}k{k}");
        let kind = sums_kind(fragment);
        let sums = sums.map(|number| Name { kind, number });
        let (a, b) = (a.map(|r| self.r(r)), b.map(|r| self.r(r)));
        let op = [
            "mma.sync.aligned.",
            &shape,
            ".row.col.",
            acc,
            ".",
            left,
            ".",
            right,
            ".",
            acc,
        ];
        let [sums, a, b]: [&[Name]; 3] = [&sums, &a, &b];
        self.ins(&op, &[sums, a, b, sums].map(Arg::List));
    }

    /// `to` becomes two f32 values rounded to 16 bits, `x` in the lower half.
    pub(super) fn pack(&mut self, to: Name, d: DType, x: Name, y: Name) {
        if self.nan {
            // The first source goes to the upper half.
            self.line(format_args!("cvt.rn.{}x2.f32 {to}, {y}, {x};", name16(d)));
            return;
        }
        let words = [x, y].map(|v| {
            let (h, word) = (self.temp("th"), self.temp("tr"));
            self.line(format_args!("cvt.rn.{}.f32 {h}, {v};", name16(d)));
            self.line(format_args!("cvt.u32.u16 {word}, {h};"));
            word
        });
        self.line(format_args!("shl.b32 {}, {}, 16;", words[1], words[1]));
        self.line(format_args!("or.b32 {to}, {}, {};", words[0], words[1]));
    }

    /// `to` becomes numbers of bf16 near two f32 values, `x` in the lower half: the upper halves of sums that are rounded
    /// towards zero, so that none is infinite whose value is finite.
    pub(super) fn pack_near(&mut self, to: Name, x: Reg, y: Reg) {
        let by = Arg::Single(kernel::NEAR_BF16 as f32);
        let near = [x, y].map(|v| {
            let (v, t, word) = (self.r(v), self.temp("tf"), self.temp("tr"));
            self.line(format_args!("fma.rz.f32 {t}, {v}, {by}, {v};"));
            self.line(format_args!("mov.b32 {word}, {t};"));
            word
        });
        self.line(format_args!(
            "prmt.b32 {to}, {}, {}, 30258;",
            near[0], near[1]
        ));
    }

    /// A function of two words of two f16 each.
    pub(super) fn halves(&mut self, to: Name, f: Binary, x: Reg, y: Reg) {
        let (x, y) = (self.r(x), self.r(y));
        self.line(format_args!("{}.rn.f16x2 {to}, {x}, {y};", f.name()));
    }

    /// One of the two f16 of a word.
    pub(super) fn half(&mut self, to: Name, word: Reg, second: bool) {
        let (mut word, h) = (self.r(word), self.temp("th"));
        if second {
            let t = self.temp("tr");
            self.line(format_args!("shr.u32 {t}, {word}, 16;"));
            word = t;
        }
        self.line(format_args!("cvt.u16.u32 {h}, {word};"));
        self.line(format_args!("cvt.f32.f16 {to}, {h};"));
    }
}
