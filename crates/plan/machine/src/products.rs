//! What the tiles of a library's products cost beside their multiplications.
use serde::{Deserialize, Serialize};

/// What the tiles of products take of the units' time and beside it, fitted to what a library was measured to take. A
/// thread, or a matrix instruction, has other instructions to do besides: those grow with the rim of its tile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProductCosts {
    /// What each row and column of a CTA's tile costs, in cells of that tile, where matrix units multiply.
    pub matrix_rim: f64,
    /// What each row and column of a thread's tile costs, in cells of that tile, where threads multiply and add.
    pub thread_rim: f64,
    /// Bytes of a row that take as long as a multiply-add, where both factors lie along the sum and are read by threads
    /// in rows far apart; `None` where that costs nothing.
    pub far_row: Option<f64>,
    /// Share of the rate that is left where windows over a factor overlap: convolutions.
    pub windows: f64,
    /// How much faster multiply-adds are where fewer do: windows of 3 x 3 in single steps (Winograd's).
    pub fewer: f64,
    /// Seconds that each round of CTAs takes besides.
    pub round_s: f64,
}

/// How a product is cut, and what of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TiledProduct {
    /// Rows of a CTA's tile.
    pub rows: f64,
    /// Columns of a CTA's tile.
    pub columns: f64,
    /// Threads of a CTA.
    pub threads: u32,
    /// Whether matrix units multiply.
    pub matrix: bool,
    /// Bytes of a row, where both factors lie along the sum.
    pub along: Option<f64>,
    /// Whether windows over a factor overlap.
    pub windows: bool,
    /// Whether they are 3 x 3 in single steps.
    pub fewer: bool,
}

impl TiledProduct {
    /// Rows and columns of one thread's tile: powers of two as near to a square as they come.
    fn of_a_thread(&self) -> (f64, f64) {
        let cells = (self.rows * self.columns / f64::from(self.threads.max(1))).max(1.0) as u64;
        let rows = 1u64 << cells.ilog2().div_ceil(2);
        (rows as f64, cells as f64 / rows as f64)
    }
}

impl ProductCosts {
    /// Share of the units' rate that is left for multiplications.
    pub fn share(&self, p: &TiledProduct) -> f64 {
        let rim = |(rows, columns): (f64, f64)| 1.0 / rows + 1.0 / columns;
        let beside = match p.matrix {
            true => self.matrix_rim * rim((p.rows, p.columns)),
            false => {
                let far = self
                    .far_row
                    .zip(p.along)
                    .map_or(0.0, |(each, row)| row / each);
                self.thread_rim * rim(p.of_a_thread()) + far
            }
        };
        let windows = if p.windows { self.windows } else { 1.0 };
        let fewer = if p.fewer && !p.matrix {
            self.fewer
        } else {
            1.0
        };
        windows * fewer / (1.0 + beside)
    }
}
