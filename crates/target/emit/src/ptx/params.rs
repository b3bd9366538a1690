//! Parameters of an entry: pointers of operands, one number per distinct dimension expression, and operands as tensors.
use kernel::{OperandId, Swizzle, TensorView};
use layout::{DType, Dim};

/// Bytes of a parameter that describes a tensor (`CUtensorMap`).
pub const MAP_BYTES: usize = 128;

/// What a parameter of an entry is.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamValue {
    /// Device address of an operand's buffer: `.u64`, aligned to 16 bytes.
    Operand(OperandId),
    /// Value of a dimension expression: `.s64`.
    Dim(Dim),
    /// An operand as a tensor, boxes of which are copied: 128 bytes that the driver makes, aligned to 64.
    Tensor(TensorParam),
    /// Number of tasks, where a CTA walks those that the launch's number of CTAs leaves it: `.s64`.
    Tasks(Dim),
    /// Device address of a 32-bit word that takes the number of a fault, counted from 1: `.u64`.
    Fault,
}

/// One parameter of an entry, 8 bytes wide where it is no tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// Name in the text.
    pub name: String,
    /// What it holds.
    pub value: ParamValue,
}

/// An operand as a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorParam {
    /// Operand.
    pub operand: OperandId,
    /// Type of its elements.
    pub dtype: DType,
    /// Its dimensions, with those of a box.
    pub view: TensorView,
    /// How a box' elements change places in shared memory.
    pub swizzle: Swizzle,
}

/// The arguments of `cuTensorMapEncodeTiled` for a buffer: dimensions, the innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    /// Type of the elements.
    pub dtype: DType,
    /// Bytes from the buffer's address to the tensor's.
    pub offset: u64,
    /// Elements along each dimension.
    pub extents: Vec<u64>,
    /// Bytes from one element to the next along all dimensions but the innermost.
    pub strides: Vec<u64>,
    /// Elements from the first to the last of a box.
    pub boxes: Vec<u32>,
    /// Every how manieth element of the tensor is in a box.
    pub steps: Vec<u32>,
    /// Bytes within which elements change places: 0 (none), 32, 64 or 128.
    pub swizzle_bytes: u32,
}

impl TensorLayout {
    /// The elements' type as `CUtensorMapDataType` numbers it; those of no type that is copied as bytes.
    pub fn data_type(&self) -> u32 {
        match (self.dtype, self.dtype.bits()) {
            (DType::F16, _) => 6,
            (DType::F32, _) => 7,
            (DType::BF16, _) => 9,
            (_, 16) => 1,
            (_, 32) => 2,
            _ => 0,
        }
    }
}

impl TensorParam {
    /// What the driver is asked for, where `value` gives dimension expressions theirs; `None` where one has none.
    pub fn layout(&self, value: impl Fn(&Dim) -> Option<i64>) -> Option<TensorLayout> {
        let bits = u64::from(self.dtype.bits());
        let bytes = |d: &Dim| Some(u64::try_from(value(d)?).ok()?.checked_mul(bits)? / 8);
        let dims = &self.view.dims;
        // Of an extent of 0 nothing is copied; the driver wants one.
        let extents = dims
            .iter()
            .map(|d| Some(u64::try_from(value(&d.extent)?).ok()?.max(1)));
        let strides = dims.iter().skip(1).map(|d| bytes(&d.stride));
        let small = |n: i64| u32::try_from(n).ok();
        Some(TensorLayout {
            dtype: self.dtype,
            offset: bytes(&self.view.offset)?,
            extents: extents.collect::<Option<_>>()?,
            strides: strides.collect::<Option<_>>()?,
            boxes: dims
                .iter()
                .map(|d| small(d.reach()))
                .collect::<Option<_>>()?,
            steps: dims.iter().map(|d| small(d.step)).collect::<Option<_>>()?,
            swizzle_bytes: match self.swizzle.bits {
                0 => 0,
                bits => 16 << bits.min(3),
            },
        })
    }
}
