//! Operations and least traffic of the two shapes that textbooks reason with.

/// Arithmetic and the least memory traffic of a computation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ideal {
    /// Operations; a multiply-add counts as two.
    pub ops: f64,
    /// Bytes moved when every operand crosses memory once.
    pub bytes: f64,
}

impl Ideal {
    /// A matrix product C[m, n] = A[m, k] B[k, n] with elements of `width` bytes.
    pub fn matmul(m: u64, n: u64, k: u64, width: f64) -> Ideal {
        let (m, n, k) = (m as f64, n as f64, k as f64);
        Ideal {
            ops: 2.0 * m * n * k,
            bytes: (m * k + k * n + m * n) * width,
        }
    }

    /// One operation on each of `n` elements of `inputs` tensors, one result each, `width` bytes wide.
    pub fn map(n: u64, inputs: u64, width: f64) -> Ideal {
        Ideal {
            ops: n as f64,
            bytes: n as f64 * (inputs as f64 + 1.0) * width,
        }
    }

    /// Operations for every byte; 0 when no byte moves.
    pub fn intensity(&self) -> f64 {
        if self.bytes > 0.0 {
            self.ops / self.bytes
        } else {
            0.0
        }
    }

    /// Seconds of arithmetic at `rate` operations a second and of memory at `bandwidth` bytes a second;
    /// the roofline's time is the larger.
    pub fn seconds(&self, rate: f64, bandwidth: f64) -> (f64, f64) {
        (self.ops / rate, self.bytes / bandwidth)
    }
}
