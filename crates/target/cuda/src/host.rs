//! Host steps: rare operators on copies of their operands.
use device::DeviceError;
use hostops::HostTensor;
use plan::{HostArg, HostOp, Params, Size};
use std::sync::Arc;

struct Operand {
    buffer: usize,
    size: Size,
}

/// A host step made ready.
pub(crate) struct Host {
    ready: Arc<Box<dyn hostops::Prepared>>,
    inputs: Vec<Option<Operand>>,
    outputs: Vec<Operand>,
}

/// Fills in the bytes of a buffer.
type Read<'a> = dyn Fn(usize, &mut [u8]) -> Result<(), DeviceError> + 'a;
/// Takes the bytes of a buffer.
type Write<'a> = dyn Fn(usize, &[u8]) -> Result<(), DeviceError> + 'a;

impl Operand {
    fn new(a: &HostArg, params: &mut Params) -> Operand {
        Operand {
            buffer: a.buffer as usize,
            size: Size::new(a.dtype, &a.shape, params),
        }
    }

    fn host_tensor(&self, p: &[i64]) -> Result<HostTensor, String> {
        let shape = self.size.extents(p).collect();
        HostTensor::new(self.size.dtype, shape).map_err(|e| e.to_string())
    }
}

impl Host {
    pub fn new(
        op: &HostOp,
        inputs: &[Option<HostArg>],
        outputs: &[HostArg],
        params: &mut Params,
    ) -> Host {
        let mut operand = |a: &HostArg| Operand::new(a, params);
        Host {
            ready: op
                .made
                .get_or_make(|| hostops::prepare(&op.name, &op.attrs)),
            inputs: inputs
                .iter()
                .map(|a| a.as_ref().map(&mut operand))
                .collect(),
            outputs: outputs.iter().map(operand).collect(),
        }
    }

    /// Buffers read, and buffers written.
    pub fn touches(&self) -> (Vec<usize>, Vec<usize>) {
        (
            self.inputs.iter().flatten().map(|a| a.buffer).collect(),
            self.outputs.iter().map(|a| a.buffer).collect(),
        )
    }

    /// Runs it: `read` fills in the bytes of a buffer, `write` takes them.
    pub fn run(
        &self,
        p: &[i64],
        read: &Read<'_>,
        write: &Write<'_>,
        fail: &dyn Fn(String) -> DeviceError,
    ) -> Result<(), DeviceError> {
        let mut given = vec![];
        for a in &self.inputs {
            given.push(match a {
                None => None,
                Some(a) => {
                    let mut h = a.host_tensor(p).map_err(fail)?;
                    read(a.buffer, &mut h.bytes)?;
                    Some(h)
                }
            });
        }
        let mut made = vec![];
        for a in &self.outputs {
            made.push(a.host_tensor(p).map_err(fail)?);
        }
        let done = self.ready.run_on_host_tensors(&given, &mut made);
        done.map_err(|e| fail(e.to_string()))?;
        for (a, h) in self.outputs.iter().zip(&made) {
            write(a.buffer, &h.bytes)?;
        }
        Ok(())
    }
}
