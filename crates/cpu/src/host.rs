//! Host steps: rare operators from `hostops` on dense copies of their buffers.
use layout::DType;
use plan::{HostArg, HostOp, Params};
use tensor::{Attrs, Tensor};

struct CArg {
    buffer: usize,
    dtype: DType,
    shape: Vec<u32>,
}

/// A compiled host step.
pub(crate) struct CHost {
    name: String,
    attrs: Attrs,
    inputs: Vec<Option<CArg>>,
    outputs: Vec<CArg>,
}

impl CArg {
    fn new(a: &HostArg, params: &mut Params) -> CArg {
        CArg {
            buffer: a.buffer as usize,
            dtype: a.dtype,
            shape: a.shape.iter().map(|d| params.intern(d)).collect(),
        }
    }

    fn shape(&self, p: &[i64]) -> Vec<usize> {
        self.shape
            .iter()
            .map(|&d| p[d as usize].max(0) as usize)
            .collect()
    }
}

impl CHost {
    pub(crate) fn new(
        op: &HostOp,
        inputs: &[Option<HostArg>],
        outputs: &[HostArg],
        params: &mut Params,
    ) -> CHost {
        CHost {
            name: op.name.clone(),
            attrs: op.attrs.clone(),
            inputs: inputs
                .iter()
                .map(|a| a.as_ref().map(|a| CArg::new(a, params)))
                .collect(),
            outputs: outputs.iter().map(|a| CArg::new(a, params)).collect(),
        }
    }

    /// Runs it: the only task of its step.
    pub(crate) fn run(&self, p: &[i64], bufs: &[*mut u8]) -> Result<(), String> {
        let mut inputs = Vec::new();
        for a in &self.inputs {
            inputs.push(match a {
                None => None,
                Some(a) => {
                    let shape = a.shape(p);
                    let n = Tensor::byte_len(a.dtype, &shape).map_err(|e| e.to_string())?;
                    let bytes = if n == 0 {
                        Vec::new()
                    } else {
                        // SAFETY: a verified plan's buffer holds its dense tensor.
                        unsafe { std::slice::from_raw_parts(bufs[a.buffer], n) }.to_vec()
                    };
                    Some(Tensor::from_bytes(a.dtype, &shape, bytes).map_err(|e| e.to_string())?)
                }
            });
        }
        let refs: Vec<Option<&Tensor>> = inputs.iter().map(Option::as_ref).collect();
        let shapes: Vec<Vec<usize>> = self.outputs.iter().map(|o| o.shape(p)).collect();
        let made = evaluate(&self.name, &self.attrs, &refs, &shapes)?;
        for (i, (o, shape)) in self.outputs.iter().zip(&shapes).enumerate() {
            let Some(t) = made.get(i) else {
                return Err(format!(
                    "it gave {} outputs, but the plan has {}",
                    made.len(),
                    self.outputs.len()
                ));
            };
            let want = Tensor::byte_len(o.dtype, shape).map_err(|e| e.to_string())?;
            if t.dtype() != o.dtype || t.bytes().len() != want {
                return Err(format!(
                    "output {i} came out as {t:?}, but the plan has {}{shape:?}",
                    o.dtype
                ));
            }
            // SAFETY: a verified plan's buffer holds its dense tensor, and nobody else uses it now.
            unsafe { std::ptr::copy_nonoverlapping(t.bytes().as_ptr(), bufs[o.buffer], want) };
        }
        Ok(())
    }
}

fn evaluate(
    name: &str,
    attrs: &Attrs,
    inputs: &[Option<&Tensor>],
    shapes: &[Vec<usize>],
) -> Result<Vec<Tensor>, String> {
    hostops::run_step(name, attrs, inputs, shapes).map_err(|e| e.to_string())
}
