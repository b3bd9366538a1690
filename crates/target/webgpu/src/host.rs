//! Host steps: rare operators on copies of their operands.
use device::DeviceError;
use hostops::HostTensor;
use plan::{HostArg, HostOp, Params, Size};
use std::sync::Arc;

struct Arg {
    buffer: usize,
    size: Size,
}

/// A host step made ready.
pub(crate) struct Host {
    ready: Arc<Box<dyn hostops::Prepared>>,
    inputs: Vec<Option<Arg>>,
    outputs: Vec<Arg>,
}

impl Arg {
    fn new(a: &HostArg, params: &mut Params) -> Arg {
        Arg {
            buffer: a.buffer as usize,
            size: Size::new(a.dtype, &a.shape, params),
        }
    }

    fn hold(&self, p: &[i64]) -> Result<HostTensor, String> {
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
        Host {
            ready: op
                .made
                .get_or_make(|| hostops::prepare(&op.name, &op.attrs)),
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
        let mut given = vec![];
        for a in &self.inputs {
            given.push(match a {
                None => None,
                Some(a) => {
                    let mut h = a.hold(p).map_err(fail)?;
                    h.bytes = read(a.buffer, h.bytes.len())?;
                    Some(h)
                }
            });
        }
        let made: Result<Vec<HostTensor>, String> =
            self.outputs.iter().map(|a| a.hold(p)).collect();
        let mut made = made.map_err(fail)?;
        let done = self.ready.run_on_host_tensors(&given, &mut made);
        done.map_err(|e| fail(e.to_string()))?;
        for (a, h) in self.outputs.iter().zip(&made) {
            write(a.buffer, &h.bytes);
        }
        Ok(())
    }
}
