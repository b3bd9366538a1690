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

/// A case as it is sent: after its length in four bytes, little-endian. One of no length ends them.
#[derive(Serialize, Deserialize)]
struct Recorded {
    name: String,
    isa: String,
    plan: Plan,
    symbols: Vec<(String, i64)>,
    inputs: Vec<Vec<u8>>,
    /// What was in the outputs before.
    outputs: Vec<Vec<u8>>,
}

/// Sends programs in place of running them.
struct Recorder<'a> {
    device: &'a CpuDevice,
    /// The case that comes next.
    name: &'a RefCell<String>,
    out: &'a RefCell<dyn Write>,
    heard: &'a Cell<bool>,
    /// Cases that are passed over.
    skip: &'a Cell<usize>,
}

impl Subject for Recorder<'_> {
    fn name(&self) -> String {
        "recorder".into()
    }

    fn kind(&self) -> TargetKind {
        TargetKind::Cpu
    }

    /// Refuses every program once it is sent: there is nothing to compare.
    fn run(
        &self,
        program: &TileProgram,
        symbols: &[(&str, i64)],
        buffers: &[Tensor],
    ) -> Result<Vec<Tensor>, Failure> {
        let recorded = || Failure::Refused("recorded".into());
        // Those that the reference refuses do not come here, so they do not count.
        if let Some(less) = self.skip.get().checked_sub(1) {
            self.skip.set(less);
            return Err(recorded());
        }
        let operands = program.kernel().operands.iter().zip(buffers);
        let of = |role: Role| {
            let own = operands.clone().filter(|(o, _)| o.role == role);
            own.map(|(_, b)| b.bytes().to_vec()).collect()
        };
        let case = Recorded {
            name: self.name.borrow().clone(),
            isa: self.device.isa().to_string(),
            plan: OneStep::plan(self.device, program, symbols)?,
            symbols: symbols.iter().map(|(s, v)| (s.to_string(), *v)).collect(),
            inputs: of(Role::Read),
            outputs: of(Role::Write),
        };
        let bytes = postcard::to_allocvec(&case).map_err(|e| Failure::Broken(e.to_string()))?;
        let sent = send(&mut *self.out.borrow_mut(), &bytes);
        self.heard.set(sent.is_ok());
        Err(recorded())
    }
}

fn send(out: &mut dyn Write, bytes: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(bytes)
}

fn receive(from: &mut dyn Read) -> Result<Vec<u8>, String> {
    let mut length = [0; 4];
    let cut = |e: std::io::Error| format!("the cases end early: {e}");
    from.read_exact(&mut length).map_err(cut)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut bytes).map_err(cut)?;
    Ok(bytes)
}

/// Sends the cases that are asked for but the first `skip` to standard output, for as long as somebody reads them.
///
/// # Errors
/// There is no device of an instruction set that was asked for, or there are cases that cannot be made: says which on
/// standard error.
pub(super) fn record(asked: &Asked, skip: usize) -> Result<(), String> {
    let out = RefCell::new(std::io::BufWriter::new(std::io::stdout().lock()));
    let (skip, heard) = (Cell::new(skip), Cell::new(true));
    let (name, unmade) = (RefCell::new(String::new()), Cell::new(0));
    let mut hears = |case: &str, came: Option<Came>| match came {
        None => {
            name.replace(case.to_string());
            asked.wants(case) && heard.get()
        }
        Some(Came::Wrong(why)) => {
            eprintln!("{case}: {why}");
            unmade.set(unmade.get() + 1);
            heard.get()
        }
        Some(_) => heard.get(),
    };
    each_device(asked, &heard, &mut hears, &mut |device, run| {
        let recorder = Recorder {
            device,
            name: &name,
            out: &out,
            heard: &heard,
            skip: &skip,
        };
        run(&[("Heap", &recorder)]);
    })?;
    let mut out = out.borrow_mut();
    // Who reads no longer has ended, and says why itself.
    let _ = send(&mut *out, &[]).and_then(|()| out.flush());
    match unmade.get() {
        0 => Ok(()),
        n => Err(format!("{n} cases cannot be made")),
    }
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
        let bytes = receive(&mut from)?;
        if bytes.is_empty() {
            return say(&mut out, DONE, "").map_err(|e| e.to_string());
        }
        let case: Recorded = reading(|| postcard::from_bytes(&bytes)).map_err(|e| e.to_string())?;
        say(&mut out, STARTS, &case.name).map_err(|e| e.to_string())?;
        if !devices.contains_key(&case.isa) {
            let isa = Isa::from_name(&case.isa).ok_or("a case is for no instruction set")?;
            devices.insert(case.isa.clone(), device_of(isa)?);
        }
        let came = run_one(&devices[&case.isa], case);
        say_what_came(&mut out, came).map_err(|e| e.to_string())?;
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
