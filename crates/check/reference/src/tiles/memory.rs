//! Operands' memory while a tile program is interpreted.
use crate::RefError;
use kernel::{Kernel, OperandId, Role};
use std::collections::BTreeMap;
use tensor::Tensor;

/// Buffers by operand. Two operands may share one (in-place steps).
#[derive(Clone, Debug, Default)]
pub struct Memory {
    buffers: Vec<Tensor>,
    of: BTreeMap<OperandId, usize>,
}

impl Memory {
    /// No buffers.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Gives `operand` a buffer of its own: the elements of `t` in row-major order.
    pub fn bind(&mut self, operand: OperandId, t: Tensor) {
        self.of.insert(operand, self.buffers.len());
        self.buffers.push(t);
    }

    /// Lets `operand` share the buffer of `other`; false when that has none.
    pub fn share(&mut self, operand: OperandId, other: OperandId) -> bool {
        let at = self.of.get(&other).copied();
        at.is_some_and(|b| {
            self.of.insert(operand, b);
            true
        })
    }

    /// The buffer of `operand`, in the shape that it was bound with.
    pub fn get(&self, operand: OperandId) -> Option<&Tensor> {
        self.buffers.get(*self.of.get(&operand)?)
    }

    /// Index of `operand`'s buffer.
    pub(crate) fn buffer(&self, operand: OperandId) -> usize {
        self.of.get(&operand).copied().unwrap_or(usize::MAX)
    }

    /// Buffer `i`.
    pub(crate) fn at(&mut self, i: usize) -> Option<&mut Tensor> {
        self.buffers.get_mut(i)
    }

    /// Elements of buffer `i`; 0 when there is none.
    pub(crate) fn elements(&self, i: usize) -> usize {
        self.buffers.get(i).map_or(0, Tensor::len)
    }

    /// Number of buffers.
    pub(crate) fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Every operand has a buffer of its type; gives per buffer whether it is read and written.
    pub(crate) fn check(&self, k: &Kernel) -> Result<Vec<[bool; 2]>, RefError> {
        let mut roles = vec![[false; 2]; self.buffers.len()];
        for (i, o) in k.operands.iter().enumerate() {
            let wrong = |why: String| RefError::Kernel {
                kernel: k.name.clone(),
                place: format!("operand '{}'", o.name),
                why,
            };
            let t = self
                .get(i as OperandId)
                .ok_or_else(|| wrong("it has no buffer; bind one".into()))?;
            if t.dtype() != o.dtype {
                return Err(wrong(format!(
                    "its buffer holds {}, not {}",
                    t.dtype(),
                    o.dtype
                )));
            }
            roles[self.buffer(i as OperandId)][(o.role == Role::Write) as usize] = true;
        }
        Ok(roles)
    }
}
