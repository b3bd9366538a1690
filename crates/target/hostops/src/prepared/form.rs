//! What fast forms take and give.

use crate::error::R;
use layout::DType;
use tensor::Attrs;

/// A dense row-major operand that is read.
#[derive(Clone, Copy)]
pub struct In<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: &'a [usize],
    /// Elements, little endian; exactly as many as the shape has.
    pub bytes: &'a [u8],
}

/// A dense row-major operand that is written.
pub struct Out<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: &'a [usize],
    /// Elements, little endian; exactly as many as the shape has. Every one is written.
    pub bytes: &'a mut [u8],
}

/// What a fast form answers: done, or that these operands are not for it.
pub(crate) type Fast = R<bool>;

/// A form that takes some operand types only.
pub(super) trait Form: Send + Sync {
    fn run(&self, inputs: &[Option<In<'_>>], outputs: &mut [Out<'_>]) -> Fast;
}

/// A Rust type that elements of some dtype are.
pub(crate) trait Elem: Copy + Send + Sync + 'static {
    /// Its bytes.
    type Bytes: AsRef<[u8]> + Copy;
    /// Elements of `b`, whose remainder is left out.
    fn chunks(b: &[u8]) -> &[Self::Bytes];
    /// Elements of `b` to be written.
    fn chunks_mut(b: &mut [u8]) -> &mut [Self::Bytes];
    /// From little-endian bytes.
    fn get(b: Self::Bytes) -> Self;
    /// As little-endian bytes.
    fn put(self) -> Self::Bytes;
}

macro_rules! elem {
    ($($t:ty, $n:literal;)*) => {$(
        impl Elem for $t {
            type Bytes = [u8; $n];
            #[inline(always)]
            fn chunks(b: &[u8]) -> &[[u8; $n]] {
                b.as_chunks().0
            }
            #[inline(always)]
            fn chunks_mut(b: &mut [u8]) -> &mut [[u8; $n]] {
                b.as_chunks_mut().0
            }
            #[inline(always)]
            fn get(b: [u8; $n]) -> $t {
                <$t>::from_le_bytes(b)
            }
            #[inline(always)]
            fn put(self) -> [u8; $n] {
                self.to_le_bytes()
            }
        }
    )*};
}

elem! {
    f32, 4;
    f64, 8;
    i32, 4;
    i64, 8;
    u8, 1;
    i8, 1;
}

/// Input `i`, which a fast form needs.
pub(crate) fn input<'a>(inputs: &[Option<In<'a>>], i: usize) -> Option<In<'a>> {
    inputs.get(i).copied().flatten()
}

/// The operands as the model gives them; `None` where optional ones are left out in between.
pub(crate) fn whole(attrs: &Attrs) -> Option<()> {
    match attrs.get("present") {
        None => Some(()),
        Some(tensor::Attr::Ints(p)) => p.iter().all(|p| *p != 0).then_some(()),
        Some(_) => None,
    }
}
