//! Host steps: rare operators on copies of their operands.
use device::DeviceError;
use layout::DType;
use plan::{HostArg, HostOp, Params};
use tensor::Tensor;

struct Arg {
    buffer: usize,
    dtype: DType,
    shape: Vec<u32>,
}

/// A host step made ready.
pub(crate) struct Host {
    ready: Box<dyn hostops::Prepared>,
    inputs: Vec<Option<Arg>>,
    outputs: Vec<Arg>,
}

impl Arg {
    fn new(a: &HostArg, params: &mut Params) -> Arg {
        Arg {
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

impl Host {
    pub fn new(
        op: &HostOp,
        inputs: &[Option<HostArg>],
        outputs: &[HostArg],
        params: &mut Params,
    ) -> Host {
        Host {
            ready: hostops::prepare(&op.name, &op.attrs),
            inputs: inputs
                .iter()
                .map(|a| a.as_ref().map(|a| Arg::new(a, params)))
                .collect(),
            outputs: outputs.iter().map(|a| Arg::new(a, params)).collect(),
        }
    }

    /// Runs it: `read` gives the bytes of a buffer, `write` takes them.
    pub fn run(
        &self,
        p: &[i64],
        read: &mut dyn FnMut(usize, usize) -> Result<Vec<u8>, DeviceError>,
        write: &mut dyn FnMut(usize, &[u8]),
        fail: &dyn Fn(String) -> DeviceError,
    ) -> Result<(), DeviceError> {
        let size = |a: &Arg, shape: &[usize]| {
            Tensor::byte_len(a.dtype, shape).map_err(|e| fail(e.to_string()))
        };
        let mut given = vec![];
        for a in &self.inputs {
            given.push(match a {
                None => None,
                Some(a) => {
                    let shape = a.shape(p);
                    let bytes = read(a.buffer, size(a, &shape)?)?;
                    Some((a.dtype, shape, bytes))
                }
            });
        }
        let mut made = vec![];
        for a in &self.outputs {
            let shape = a.shape(p);
            let n = size(a, &shape)?;
            made.push((a.dtype, shape, vec![0u8; n]));
        }
        let inputs: Vec<Option<hostops::In>> = given
            .iter()
            .map(|g| {
                g.as_ref().map(|(dtype, shape, bytes)| hostops::In {
                    dtype: *dtype,
                    shape,
                    bytes,
                })
            })
            .collect();
        let mut outputs: Vec<hostops::Out> = made
            .iter_mut()
            .map(|(dtype, shape, bytes)| hostops::Out {
                dtype: *dtype,
                shape,
                bytes,
            })
            .collect();
        let done = self.ready.run(&inputs, &mut outputs);
        done.map_err(|e| fail(e.to_string()))?;
        for (a, (_, _, bytes)) in self.outputs.iter().zip(&made) {
            write(a.buffer, bytes);
        }
        Ok(())
    }
}
