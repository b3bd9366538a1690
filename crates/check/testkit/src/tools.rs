//! Programs that tests fetch and do not need.
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of ptxas or nvdisasm.
///
/// # Errors
/// Why it is left out.
pub fn tool(name: &str) -> Result<PathBuf, String> {
    fetched("scripts/fetch-ptxas.sh", &[name])
}

/// The path that a script of the repository prints.
fn fetched(script: &str, args: &[&str]) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let out = Command::new("sh")
        .arg(root.join(script))
        .args(args)
        .output()
        .map_err(|e| format!("sh could not be started: {e}"))?;
    match out.status.success() {
        true => Ok(PathBuf::from(String::from_utf8_lossy(&out.stdout).trim())),
        false => Err(String::from_utf8_lossy(&out.stderr).trim().to_string()),
    }
}

/// The folder of the ONNX standard's own tests.
///
/// # Errors
/// Why they are left out.
pub fn node_tests() -> Result<PathBuf, String> {
    fetched("scripts/fetch-node-tests.sh", &[])
}
