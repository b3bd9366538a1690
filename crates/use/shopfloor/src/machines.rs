//! Machines by name, and the calibration of the present one.
use crate::{Error, Machine};
use cpu::calibrate;
pub use machine::{Extent, Measurements};
use machine::{MachineError, MachineKind, Source};
pub use report::MachineEntry;
use std::path::{Path, PathBuf};

/// Every machine that a name is known for: this CPU with its stored calibration (`cpu`), the same without
/// (`detected`), and the catalog.
pub fn list() -> Vec<MachineEntry> {
    let mut out: Vec<MachineEntry> = machine::catalog()
        .iter()
        .map(|e| MachineEntry {
            name: e.machine.name.clone(),
            aliases: e.machine.aliases.clone(),
            from: "catalog".into(),
            machine: e.machine.clone(),
        })
        .collect();
    for (name, machine) in [
        ("cpu", cpu::detect::present()),
        ("detected", cpu::detect::detect()),
    ] {
        out.push(MachineEntry {
            name: name.into(),
            aliases: vec![],
            from: name.into(),
            machine,
        });
    }
    out
}

/// The machine called `name`: `cpu` for this CPU, `detected` for the same without its calibration, a name or
/// alias of the catalog, or the path of a TOML file.
///
/// # Errors
/// No such machine, or a file that does not read.
pub fn find(name: &str) -> Result<Machine, Error> {
    Ok(match name {
        "cpu" => cpu::detect::present(),
        "detected" => cpu::detect::detect(),
        _ if is_gpu_device(name) => {
            return Err(Error::Usage(format!(
                "'{name}' is a device that runs, and a machine is needed to plan for; name the GPU, such as h100"
            )));
        }
        _ => Machine::load(name).map_err(|e| match e {
            // Who gave the name can give another.
            MachineError::Unknown { .. } | MachineError::Ambiguous { .. } => {
                Error::Usage(e.to_string())
            }
            e => e.into(),
        })?,
    })
}

/// Whether `name` is a GPU that runs, by WebGPU, by NVIDIA's driver or emulated.
fn is_gpu_device(name: &str) -> bool {
    let kind = name.split(':').next().unwrap_or(name);
    matches!(kind, "wgpu" | "cuda" | "emulated")
}

/// Reads a machine file and gives it with what looks like a slip in it, a sentence each.
///
/// # Errors
/// A file that cannot be read, with line and what is missing or wrong there.
pub fn check(file: &Path) -> Result<(Machine, Vec<String>), Error> {
    let m = Machine::from_file(file)?;
    let odd = m.oddities();
    Ok((m, odd))
}

/// The file in which a calibration of this CPU is kept, whether or not there is one; `None` where the system names
/// no folder for data.
pub fn file() -> Option<PathBuf> {
    calibrate::calibration_path(&cpu::detect::detect())
}

/// The calibration that is kept for this CPU; `None` where there is none.
///
/// # Errors
/// A file that does not read.
pub fn calibration() -> Result<Option<Measurements>, Error> {
    Ok(calibrate::load_calibration(&cpu::detect::detect())?)
}

/// Removes the calibration that is kept for this CPU and gives the file that it was in; `None` where there
/// was none.
///
/// # Errors
/// A file that cannot be removed.
pub fn forget() -> Result<Option<PathBuf>, Error> {
    Ok(calibrate::forget_calibration(&cpu::detect::detect())?)
}

/// Keeps measurements for every later plan on this machine, or writes the calibrated description to
/// `out`, where `--machine` finds it. Gives the file written.
///
/// # Errors
/// A file that cannot be written.
pub fn keep(measurements: &Measurements, out: Option<&Path>) -> Result<PathBuf, Error> {
    let detected = cpu::detect::detect();
    match out {
        None => Ok(calibrate::store_calibration(&detected, measurements)?),
        Some(path) => {
            let text = detected.calibrated(measurements).to_toml()?;
            crate::write_file(path, text)?;
            Ok(path.to_path_buf())
        }
    }
}

/// Whether nobody has measured this CPU: its rates are then those of its kind, and predictions as far off as
/// those.
pub fn is_assumed(machine: &Machine) -> bool {
    let measured = |l: &machine::Level| l.read.per_worker.source == Source::Measured;
    machine.kind == MachineKind::Cpu && !machine.levels.iter().any(measured)
}

/// The detected machine with `measurements` in place of what was assumed.
pub fn calibrated(measurements: &Measurements) -> Machine {
    cpu::detect::detect().calibrated(measurements)
}

#[cfg(test)]
mod tests {
    use super::is_assumed;

    #[test]
    fn a_cpu_is_assumed_until_it_is_measured() {
        let named = |n: &str| machine::lookup(n).expect("of the catalog");
        // Calibrated by this project; described from its data sheet; a GPU, which nobody calibrates here.
        assert!(!is_assumed(&named("zen5-2core")));
        assert!(is_assumed(&named("core-i9-13900k")));
        assert!(!is_assumed(&named("a100")));
    }
}
