//! Sessions on an emulated GPU of their own, whose driver counts calls.
use cuda::{CudaDevice, CudaOptions};
use cuda_emulated::{EmulatedDriver, EmulatedGpu};
use device::Device;
use planner::{PlanOptions, Planner};
use runtime::Engine;
use shopfloor::{Error, Launch, Machine, Model, Session, SessionBuilder, Tensor};
use std::sync::Arc;

/// A driver with one GPU, and a session of a model on it.
pub struct Emulated {
    pub driver: EmulatedDriver,
    pub session: Session,
}

impl Emulated {
    /// `model` on `gpu`, planned for as the machine `name`.
    pub fn new(name: &str, gpu: EmulatedGpu, launch: Option<Launch>, model: Model) -> Emulated {
        Emulated::of(name, gpu, launch, |b| b.commit(model))
    }

    /// The session that `commit` makes on `gpu`, planned for as the machine `name`.
    pub fn of(
        name: &str,
        gpu: EmulatedGpu,
        launch: Option<Launch>,
        commit: impl FnOnce(SessionBuilder) -> Result<Session, Error>,
    ) -> Emulated {
        let driver = EmulatedDriver::new(vec![gpu]);
        let machine = Machine::load(name).unwrap();
        let options = CudaOptions {
            launch,
            ..CudaOptions::default()
        };
        let device = CudaDevice::open("emulated", &driver, 0, machine, options).unwrap();
        let own = (device.machine().clone(), device.target().clone());
        let planner = Planner::new(vec![own], PlanOptions::default());
        let engine = Engine::new(Arc::new(device), Arc::new(planner));
        let builder = Session::builder().with_engine(engine);
        Emulated {
            session: commit(builder).unwrap(),
            driver,
        }
    }

    /// The first output of a request.
    pub fn answer(&self, inputs: &[(&str, &Tensor)]) -> Tensor {
        let mut outputs = self.session.run(inputs).unwrap().into_vec();
        outputs.remove(0).1
    }

    /// How often a function of the driver was called.
    pub fn calls(&self, name: &str) -> u64 {
        self.driver.calls(0).get(name).copied().unwrap_or(0)
    }
}
