//! Programs that tests fetch and do not need.
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of ptxas or nvdisasm.
///
/// # Errors
/// Why it is left out.
pub fn tool(name: &str) -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/fetch-ptxas.sh");
    let out = Command::new("sh")
        .arg(script)
        .arg(name)
        .output()
        .map_err(|e| e.to_string())?;
    match out.status.success() {
        true => Ok(PathBuf::from(String::from_utf8_lossy(&out.stdout).trim())),
        false => Err(String::from_utf8_lossy(&out.stderr).trim().to_string()),
    }
}
