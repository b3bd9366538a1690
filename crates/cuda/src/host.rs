//! Host steps: rare operators on copies of their operands.
use device::DeviceError;
use layout::DType;
use plan::{HostArg, HostOp, Params};
use tensor::Tensor;

struct Operand {
    buffer: usize,
    dtype: DType,
    shape: Vec<u32>,
}

/// A host step made ready.
pub(crate) struct Host {
    ready: Box<dyn hostops::Prepared>,
    inputs: Vec<Option<Operand>>,
    outputs: Vec<Operand>,
}

/// Fills in the bytes of a buffer.
type Read<'a> = dyn Fn(usize, &mut [u8]) -> Result<(), DeviceError> + 'a;
/// Takes the bytes of a buffer.
type Write<'a> = dyn Fn(usize, &[u8]) -> Result<(), DeviceError> + 'a;

/// A dense tensor in host memory.
struct Held {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Operand {
    fn new(a: &HostArg, params: &mut Params) -> Operand {
        Operand {
            buffer: a.buffer as usize,
            dtype: a.dtype,
            shape: a.shape.iter().map(|d| params.intern(d)).collect(),
        }
    }

    fn hold(&self, p: &[i64]) -> Result<Held, String> {
        let size = |&d: &u32| p[d as usize].max(0) as usize;
        let shape: Vec<usize> = self.shape.iter().map(size).collect();
        let n = Tensor::byte_len(self.dtype, &shape).map_err(|e| e.to_string())?;
        Ok(Held {
            dtype: self.dtype,
            shape,
            bytes: vec![0; n],
        })
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
            ready: hostops::prepare(&op.name, &op.attrs),
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
                    let mut h = a.hold(p).map_err(fail)?;
                    read(a.buffer, &mut h.bytes)?;
                    Some(h)
                }
            });
        }
        let mut made = vec![];
        for a in &self.outputs {
            made.push(a.hold(p).map_err(fail)?);
        }
        let inputs: Vec<Option<hostops::In>> = given
            .iter()
            .map(|g| {
                g.as_ref().map(|h| hostops::In {
                    dtype: h.dtype,
                    shape: &h.shape,
                    bytes: &h.bytes,
                })
            })
            .collect();
        let mut outputs: Vec<hostops::Out> = made
            .iter_mut()
            .map(|h| hostops::Out {
                dtype: h.dtype,
                shape: &h.shape,
                bytes: &mut h.bytes,
            })
            .collect();
        let done = self.ready.run(&inputs, &mut outputs);
        done.map_err(|e| fail(e.to_string()))?;
        drop(outputs);
        for (a, h) in self.outputs.iter().zip(&made) {
            write(a.buffer, &h.bytes)?;
        }
        Ok(())
    }
}
