//! Host steps: rare operators from `hostops`, made ready once, on their buffers' own memory.
use hostops::{In, Out, Prepared};
use plan::{HostArg, HostOp, Params, Size};
use std::sync::Arc;
use tensor::Tensor;

struct CArg {
    buffer: usize,
    size: Size,
}

/// A compiled host step.
pub(crate) struct CHost {
    ready: Arc<Box<dyn Prepared>>,
    inputs: Vec<Option<CArg>>,
    outputs: Vec<CArg>,
    /// Dimensions of all operands together.
    dims: usize,
}

impl CArg {
    fn new(a: &HostArg, params: &mut Params) -> CArg {
        CArg {
            buffer: a.buffer as usize,
            size: Size::new(a.dtype, &a.shape, params),
        }
    }

    /// Takes this operand's shape off `shapes`; its bytes.
    fn shape<'a>(&self, shapes: &mut &'a [usize]) -> Result<(&'a [usize], usize), String> {
        let (own, rest) = shapes.split_at(self.size.rank());
        *shapes = rest;
        let n = Tensor::byte_len(self.size.dtype, own).map_err(|e| e.to_string())?;
        Ok((own, n))
    }
}

impl CHost {
    pub(crate) fn new(
        op: &HostOp,
        inputs: &[Option<HostArg>],
        outputs: &[HostArg],
        params: &mut Params,
    ) -> CHost {
        let inputs: Vec<Option<CArg>> = inputs
            .iter()
            .map(|a| a.as_ref().map(|a| CArg::new(a, params)))
            .collect();
        let outputs: Vec<CArg> = outputs.iter().map(|a| CArg::new(a, params)).collect();
        let ranks = inputs.iter().flatten().chain(&outputs);
        CHost {
            ready: op
                .made
                .get_or_make(|| hostops::prepare(&op.name, &op.attrs)),
            dims: ranks.map(|a| a.size.rank()).sum(),
            inputs,
            outputs,
        }
    }

    /// Runs it: the only task of its step.
    pub(crate) fn run(&self, p: &[i64], bufs: &[*mut u8]) -> Result<(), String> {
        let mut dims: Vec<usize> = Vec::with_capacity(self.dims);
        for a in self.inputs.iter().flatten().chain(&self.outputs) {
            dims.extend(a.size.extents(p));
        }
        let mut left: &[usize] = &dims;
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for a in &self.inputs {
            let Some(a) = a else {
                inputs.push(None);
                continue;
            };
            let (shape, n) = a.shape(&mut left)?;
            let bytes: &[u8] = match n {
                0 => &[],
                // SAFETY: a verified plan's buffer holds its dense tensor, which no step writes
                // while this one reads it; this one writes other buffers only.
                _ => unsafe { std::slice::from_raw_parts(bufs[a.buffer], n) },
            };
            inputs.push(Some(In {
                dtype: a.size.dtype,
                shape,
                bytes,
            }));
        }
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for a in &self.outputs {
            let (shape, n) = a.shape(&mut left)?;
            let bytes: &mut [u8] = match n {
                0 => &mut [],
                // SAFETY: a verified plan's buffer holds its dense tensor, and nobody else uses it
                // now: no two operands of a host step share bytes when one of them is written.
                _ => unsafe { std::slice::from_raw_parts_mut(bufs[a.buffer], n) },
            };
            outputs.push(Out {
                dtype: a.size.dtype,
                shape,
                bytes,
            });
        }
        self.ready
            .run(&inputs, &mut outputs)
            .map_err(|e| e.to_string())
    }
}
