//! Stores of a matrix instruction's results, which lanes exchange before: of a fragment a lane has two neighbours in
//! every eight columns, the four lanes of a quad have those of one row. Of 16 bits these are a word each, half a sector
//! of memory together; behind the exchange each lane has eight neighbours.
use super::groups::LANES;
use super::state::{Lower, Result};
use crate::simt::ir::{Op, Reg, Ty};
use expr::{Binary, Compare};
use kernel::{OperandId, TileId};
use layout::DType;

/// Neighbours that a lane stores, and bytes of them.
const NEIGHBOURS: u32 = 8;
const BYTES: u32 = 16;
/// Lanes of a quad, and blocks of columns that it exchanges.
const QUAD: usize = LANES[0] as usize;

impl Lower<'_> {
    /// Stores a tile whose lanes exchange their elements; gives whether it is one.
    pub(super) fn store_quads(&mut self, operand: OperandId, src: TileId) -> Result<bool> {
        let Some([rows, columns]) = self.in_quads(operand, src) else {
            return Ok(false);
        };
        // A word is of all lanes of a quad.
        let axes = self.kernel.tiles[src as usize].axes.clone();
        if self.first_of_equals(&axes).is_some() {
            return Ok(false);
        }
        let dtype = self.kernel.operands[operand as usize].dtype;
        let lane = self.quad_lane();
        let [first, second] = [1, 2].map(|bit| {
            let (mask, zero) = (self.b.int(bit), self.b.int(0));
            let own = self.b.binary(Binary::And, lane, mask);
            self.b.compare(Compare::Ne, own, zero)
        });
        for row in 0..self.groups[rows].slots {
            let at = self.slot(rows, row, &self.origin());
            for block in (0..self.groups[columns].slots / 2).step_by(QUAD) {
                let mut words = [0; QUAD];
                for (word, n) in words.iter_mut().zip(block..) {
                    let mut pair = [0; 2];
                    for (value, beside) in pair.iter_mut().zip(0..) {
                        let at = self.slot(columns, 2 * n + beside, &at);
                        *value = self.value(src, &at)?;
                    }
                    *word = self.b.op(Ty::U32, Op::Pack(dtype, pair[0], pair[1]));
                }
                // Of four blocks a lane gets the one of its number, of all lanes in their order.
                for (a, b, mask, upper) in [
                    (0, 1, 1, first),
                    (2, 3, 1, first),
                    (0, 2, 2, second),
                    (1, 3, 2, second),
                ] {
                    (words[a], words[b]) = self.between([words[a], words[b]], mask, upper);
                }
                let at = self.neighbours_of_lane(columns, block, &at);
                self.write_run(operand, &at, words.to_vec(), None)?;
            }
        }
        Ok(true)
    }

    /// The rows and the columns of a tile that is stored so.
    fn in_quads(&self, operand: OperandId, src: TileId) -> Option<[usize; 2]> {
        let o = &self.kernel.operands[operand as usize];
        let words = matches!(o.dtype, DType::F16 | DType::BF16) && self.ty(src) == Ty::F32;
        if self.map.store_bytes < BYTES || self.caps.shuffle < 32 || !words {
            return None;
        }
        let axes = &self.kernel.tiles[src as usize].axes;
        let groups = self.groups.iter().enumerate();
        let whole =
            |g: &&(usize, &super::groups::Group)| g.1.axes.iter().all(|a| axes.contains(&a.0));
        let own: Vec<(usize, &super::groups::Group)> = groups.filter(|g| whole(&g)).collect();
        let &[(rows, r), (columns, c)] = &own[..] else {
            return None;
        };
        let apart = |a: &&u16| self.group_of(**a).is_none();
        let alone = axes
            .iter()
            .filter(apart)
            .all(|&a| self.axis(a).bound == Some(1));
        let &(last, tile) = c.axes.last()?;
        let extent = &self.kernel.axes[last as usize].extent;
        let together = o.access.indexed.is_empty()
            && o.access.run(last, extent, tile, NEIGHBOURS) == NEIGHBOURS
            && self.whole(last, NEIGHBOURS.into());
        let wide = tile % i64::from(NEIGHBOURS) == 0 && c.warp % (QUAD as i64 * 8) == 0;
        (r.rows && !c.rows && alone && together && wide && self.map.deep() == 1)
            .then_some([rows, columns])
    }

    /// This lane's number in its quad.
    fn quad_lane(&mut self) -> Reg {
        let mask = self.b.int(i64::from(LANES[0]) - 1);
        self.b.binary(Binary::And, self.thread, mask)
    }

    /// Two words of each lane and of the one whose number differs by `mask`, which is `upper` or not: the lower one has
    /// the first of both then, the upper one the second.
    fn between(&mut self, [a, b]: [Reg; 2], mask: u32, upper: Reg) -> (Reg, Reg) {
        let sent = self.b.select(upper, a, b);
        let got = self.b.op(Ty::U32, Op::Shuffle(sent, mask));
        (self.b.select(upper, got, a), self.b.select(upper, b, got))
    }
}
