//! The same operations in PyTorch, where it is and sees the GPU.
use crate::lines::{check, left, now};
use crate::options::Options;
use std::process::Command;

/// What times them.
const SCRIPT: &str = include_str!("beside.py");

/// Asks PyTorch; its lines are this part's.
pub fn run(o: &Options) -> Result<(), String> {
    if o.emulated() {
        left("PyTorch", "the GPU is emulated");
        return Ok(());
    }
    let asked = "import torch; assert torch.cuda.is_available(), 'PyTorch sees no GPU'";
    now("looking for PyTorch");
    let there = Command::new("python3").args(["-c", asked]).output();
    let missing = match &there {
        Ok(out) if out.status.success() => None,
        Ok(out) => {
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            Some(said.lines().last().unwrap_or("python3 failed").to_string())
        }
        Err(e) => Some(format!("python3: {e}")),
    };
    if let Some(why) = missing {
        left("PyTorch", why);
        return Ok(());
    }
    let Some(operations) = &o.operations else {
        left(
            "PyTorch",
            "no kernel was timed that it could be asked about",
        );
        return Ok(());
    };
    let ordinal = o.on.split_once(':').map_or("0", |(_, n)| n);
    now("timing operations in PyTorch");
    let status = Command::new("python3")
        .args(["-c", SCRIPT])
        .arg(operations)
        .arg(ordinal.parse::<u32>().unwrap_or(0).to_string())
        .arg(format!("{:.0}", o.rest().as_secs_f64() * 0.8))
        .status();
    let came = match status {
        Ok(s) if s.success() => Ok(String::new()),
        Ok(s) => Err(format!("it ended with {s}")),
        Err(e) => Err(e.to_string()),
    };
    check("PyTorch", came);
    Ok(())
}
