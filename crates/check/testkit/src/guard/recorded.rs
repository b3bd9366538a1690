//! Cases that one process makes and another one runs: a checker that makes a process forty times slower, such as
//! valgrind, then sees the kernels, and neither the planner nor the reference.
use super::{Asked, DONE, STARTS, device_of, each_device, say, say_what_came};
use conformance::edges::Came;
use conformance::{Failure, OneStep, Subject};
use cpu::CpuDevice;
use cpu::isa::Isa;
use kernel::{Role, TargetKind, TileProgram};
use layout::reading;
use plan::Plan;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use tensor::Tensor;

/// The argument that makes the program one that records cases, in place of [`super::CHILD`].
pub(super) const RECORD: &str = "--record";
/// The argument that makes the program one that runs recorded cases.
pub(super) const REPLAY: &str = "--replay";

/// What is sent: each after its length in four bytes, little-endian.
#[derive(Serialize, Deserialize)]
enum Message {
    /// A case comes next, of this name.
    Starts(String),
    /// It is to be run.
    Run(Box<Recorded>),
    /// It cannot be: the reference refuses it.
    Refused(String),
    /// It cannot even be made.
    Wrong(String),
    /// That was all.
    Done,
}

/// A program as a plan's only step, with what it runs on.
#[derive(Serialize, Deserialize)]
struct Recorded {
    isa: String,
    plan: Plan,
    symbols: Vec<(String, i64)>,
    inputs: Vec<Vec<u8>>,
    /// What was in the outputs before.
    outputs: Vec<Vec<u8>>,
}

/// Where messages go, until nobody reads them.
struct Sender {
    out: RefCell<std::io::BufWriter<std::io::StdoutLock<'static>>>,
    heard: Cell<bool>,
}

impl Sender {
    /// # Errors
    /// It has no form, or is too long; where nobody reads it nothing is wrong.
    fn send(&self, message: &Message) -> Result<(), String> {
        let bytes = postcard::to_allocvec(message).map_err(|e| e.to_string())?;
        let length = u32::try_from(bytes.len()).map_err(|e| e.to_string())?;
        let mut out = self.out.borrow_mut();
        let sent = out
            .write_all(&length.to_le_bytes())
            .and_then(|()| out.write_all(&bytes));
        self.heard.set(self.heard.get() && sent.is_ok());
        Ok(())
    }
}

fn receive(from: &mut dyn Read) -> Result<Message, String> {
    let mut length = [0; 4];
    let cut = |e: std::io::Error| format!("the cases end early: {e}");
    from.read_exact(&mut length).map_err(cut)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut bytes).map_err(cut)?;
    reading(|| postcard::from_bytes(&bytes)).map_err(|e| e.to_string())
}

/// Sends programs in place of running them.
struct Recorder<'a> {
    device: &'a CpuDevice,
    to: &'a Sender,
}

/// What a [`Recorder`] refuses programs with that it sent: there is nothing to compare.
const RECORDED: &str = "recorded";

impl Subject for Recorder<'_> {
    fn name(&self) -> String {
        "recorder".into()
    }

    fn kind(&self) -> TargetKind {
        TargetKind::Cpu
    }

    fn run(
        &self,
        program: &TileProgram,
        symbols: &[(&str, i64)],
        buffers: &[Tensor],
    ) -> Result<Vec<Tensor>, Failure> {
        let operands = program.kernel().operands.iter().zip(buffers);
        let of = |role: Role| {
            let own = operands.clone().filter(|(o, _)| o.role == role);
            own.map(|(_, b)| b.bytes().to_vec()).collect()
        };
        let case = Recorded {
            isa: self.device.isa().to_string(),
            plan: OneStep::plan(self.device, program, symbols)?,
            symbols: symbols.iter().map(|(s, v)| (s.to_string(), *v)).collect(),
            inputs: of(Role::Read),
            outputs: of(Role::Write),
        };
        let sent = self.to.send(&Message::Run(Box::new(case)));
        sent.map_err(Failure::Broken)?;
        Err(Failure::Refused(RECORDED.into()))
    }
}

/// Sends the cases that are asked for but the first `skip` to standard output, for as long as somebody reads them.
///
/// # Errors
/// There is no device of an instruction set that was asked for.
pub(super) fn record(asked: &Asked, skip: usize) -> Result<(), String> {
    let to = Sender {
        out: RefCell::new(std::io::BufWriter::new(std::io::stdout().lock())),
        heard: Cell::new(true),
    };
    let mut at = 0;
    let mut hears = |case: &str, came: Option<Came>| {
        let message = match came {
            None if !asked.wants(case, &mut at, skip) => return false,
            None => Message::Starts(case.to_string()),
            Some(Came::Refused(why)) if why == RECORDED => return to.heard.get(),
            Some(Came::Refused(why)) => Message::Refused(why),
            Some(Came::Wrong(why)) => Message::Wrong(why),
            // Nothing is run here.
            Some(Came::Agreed) => return to.heard.get(),
        };
        to.send(&message).is_ok() && to.heard.get()
    };
    each_device(asked, &to.heard, &mut hears, &mut |device, run| {
        run(&[("Heap", &Recorder { device, to: &to })]);
    })?;
    to.send(&Message::Done)?;
    // Who reads no longer has ended, and says why itself.
    let _ = to.out.borrow_mut().flush();
    Ok(())
}

/// Runs the cases that come by standard input, each twice, and says on standard output what it does. Nothing is
/// compared but the two runs: who recorded a case may compare it.
///
/// # Errors
/// The cases end early or cannot be read.
pub(super) fn replay() -> Result<(), String> {
    let (mut from, mut out) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut devices: BTreeMap<String, CpuDevice> = BTreeMap::new();
    loop {
        let said = match receive(&mut from)? {
            Message::Done => return say(&mut out, DONE, "").map_err(|e| e.to_string()),
            Message::Starts(name) => say(&mut out, STARTS, &name),
            Message::Refused(why) => say_what_came(&mut out, Came::Refused(why)),
            Message::Wrong(why) => say_what_came(&mut out, Came::Wrong(why)),
            Message::Run(case) => {
                if !devices.contains_key(&case.isa) {
                    let isa =
                        Isa::from_name(&case.isa).ok_or("a case is for no instruction set")?;
                    devices.insert(case.isa.clone(), device_of(isa)?);
                }
                let came = run_one(&devices[&case.isa], *case);
                say_what_came(&mut out, came)
            }
        };
        said.map_err(|e| e.to_string())?;
    }
}

fn run_one(device: &CpuDevice, case: Recorded) -> Came {
    let symbols: Vec<(&str, i64)> = case.symbols.iter().map(|x| (&*x.0, x.1)).collect();
    let inputs: Vec<&[u8]> = case.inputs.iter().map(|b| &b[..]).collect();
    let mut outputs = case.outputs;
    let ran = OneStep::of(device, case.plan, &symbols)
        .and_then(|mut step| step.run_twice(&inputs, &mut outputs));
    match ran {
        Ok(()) => Came::Agreed,
        Err(Failure::Refused(why)) => Came::Refused(why),
        Err(Failure::Broken(why)) => Came::Wrong(why),
    }
}
