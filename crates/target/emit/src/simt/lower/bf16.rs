//! Words of bf16 that threads make of f32 in registers: of numbers near the elements, or of their upper and lower parts.
//!
//! A fragment of bf16 is as deep as two of f32. Of each of these a lane has two elements of a row or column, four depths
//! apart, which become a word: its depths are others than those that the instruction gives it, the same ones in both
//! factors.
use super::matrix::Staged;
use super::state::{Lower, Result};
use crate::simt::ir::{Op, Reg, Ty};
use expr::Binary;
use layout::DType;

/// Depth of a fragment of f32.
const WORDS: i64 = 8;
/// The upper of two numbers of bf16 in a word.
const UPPER: i64 = 0xffff_0000;

impl Lower<'_> {
    /// Whether a factor lies in words of bf16.
    pub(super) fn is_words(&self, s: &Staged) -> bool {
        self.shared[s.home().array as usize].dtype == DType::BF16
    }

    /// Elements of which the words of the block of 16 rows or columns are made, as deep as a fragment of bf16, at
    /// (`own`, `depth`) of this warp's part.
    pub(super) fn pairs(&mut self, s: &Staged, own: i64, depth: i64) -> Result<[[Reg; 2]; 4]> {
        let halves = [
            self.block(s, own, depth)?,
            self.block(s, own, depth + WORDS)?,
        ];
        let words = [0, 1, 2, 3].map(|n| match s.rows() {
            true => [halves[n / 2][n % 2], halves[n / 2][n % 2 + 2]],
            false => [halves[n % 2][n / 2 * 2], halves[n % 2][n / 2 * 2 + 1]],
        });
        Ok(words.map(|pair| pair.map(|w| self.b.op(Ty::F32, Op::Bits(w)))))
    }

    /// The word of numbers of bf16 near two f32.
    pub(super) fn pair_near(&mut self, [x, y]: [Reg; 2]) -> Reg {
        self.b.op(Ty::U32, Op::PackNear(x, y))
    }

    /// The words of the upper parts of two f32, the numbers of bf16 nearest to them, and of the lower ones, nearest to what
    /// is left.
    pub(super) fn pair_in_parts(&mut self, pair: [Reg; 2]) -> [Reg; 2] {
        let word = |l: &mut Self, [x, y]: [Reg; 2]| l.b.op(Ty::U32, Op::Pack(DType::BF16, x, y));
        let upper = word(self, pair);
        let (half, bits) = (
            self.b.constant(16, Ty::U32),
            self.b.constant(UPPER, Ty::U32),
        );
        let first = self.b.binary(Binary::Shl, upper, half);
        let second = self.b.binary(Binary::And, upper, bits);
        let mut rest = [0; 2];
        for ((rest, x), bits) in rest.iter_mut().zip(pair).zip([first, second]) {
            let part = self.b.op(Ty::F32, Op::Bits(bits));
            *rest = self.b.binary(Binary::Sub, x, part);
        }
        [upper, word(self, rest)]
    }
}
