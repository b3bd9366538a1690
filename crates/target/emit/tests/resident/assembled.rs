//! Resident modules, assembled by ptxas where it is to be had.
use crate::resident::rig::IDLE;
use crate::resident::{families, model};
use conformance::Rng;
use shopfloor_emit::ptx::ARCHS;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of ptxas, or why it is left out.
fn ptxas() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let out = Command::new("sh")
        .arg(root.join("scripts/fetch-ptxas.sh"))
        .output()
        .map_err(|e| e.to_string())?;
    match out.status.success() {
        true => Ok(PathBuf::from(String::from_utf8_lossy(&out.stdout).trim())),
        false => Err(String::from_utf8_lossy(&out.stderr).trim().to_string()),
    }
}

#[test]
fn resident_modules_are_assembled() {
    if !testing::turn("resident_modules_are_assembled") {
        return;
    }
    let tool = match ptxas() {
        Ok(t) => t,
        Err(e) => {
            testing::skip("ptxas: resident modules", &e);
            return;
        }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let share = testing::Share::of_run(2 * ARCHS.len() as u64);
    println!("{share}");
    for (n, arch) in (0..).zip(ARCHS) {
        let mut rng = Rng::new(40 + n);
        let both = [
            ("chain", model(&mut rng, true)),
            ("families", families(&mut rng, false).model),
        ];
        let own = (2 * n..).zip(both).filter(|(n, _)| share.picks(*n));
        for (_, (what, m)) in own {
            let r = m.emit(arch, 16, IDLE);
            let file = folder.path().join("resident.ptx");
            std::fs::write(&file, &r.text).expect("a file");
            let out = Command::new(&tool)
                .args(["-v", "--gpu-name", arch, "-o", "/dev/null"])
                .arg(&file)
                .output()
                .expect("ptxas");
            let said = String::from_utf8_lossy(&out.stderr);
            if let Ok(keep) = std::env::var("SHOPFLOOR_KEEP_PTX") {
                let to = Path::new(&keep).join(format!("{what}_{arch}.ptx"));
                std::fs::write(to, &r.text).expect("a file");
            }
            assert!(
                out.status.success() && !said.contains("warning"),
                "{what} for {arch}: {said}"
            );
            println!("{what} for {arch}: {} bodies\n{said}", r.bodies.len());
        }
    }
}
