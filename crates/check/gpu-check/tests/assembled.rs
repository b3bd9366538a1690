//! The kernels that a calibration times, as machine code: nothing that they are to measure was left out
//! by the assembler, and nothing spills.
use std::process::Command;
use testkit::tools::tool;

fn tools() -> Result<(std::path::PathBuf, std::path::PathBuf), String> {
    Ok((tool("ptxas")?, tool("nvdisasm")?))
}

/// How often `name` begins an instruction in `sass`.
fn count(sass: &str, name: &str) -> usize {
    sass.lines().filter(|l| l.contains(name)).count()
}

#[test]
fn what_is_timed_is_there() {
    if !testing::turn("what_is_timed_is_there") {
        return;
    }
    let (ptxas, nvdisasm) = match tools() {
        Ok(t) => t,
        Err(e) => return testing::skip("ptxas: what a calibration times", &e),
    };
    let dir = tempfile::tempdir().unwrap();
    for arch in [75, 80, 90] {
        for (name, text) in cuda::calibrate::texts(arch) {
            let (ptx, cubin) = (dir.path().join("k.ptx"), dir.path().join("k.cubin"));
            std::fs::write(&ptx, &text).unwrap();
            let out = Command::new(&ptxas)
                .args(["-v", "-Werror", "-warn-spills", "-warn-lmem-usage"])
                .args(["--gpu-name", &format!("sm_{arch}"), "-o"])
                .args([&cubin, &ptx])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            let said = said + &String::from_utf8_lossy(&out.stdout);
            assert!(out.status.success(), "{name} for sm_{arch}: {said}");
            println!("{name} for sm_{arch}: {said}");
            let sass = Command::new(&nvdisasm)
                .arg("-c")
                .arg(&cubin)
                .output()
                .unwrap();
            let sass = String::from_utf8_lossy(&sass.stdout).into_owned();
            let least: &[(&str, usize)] = match name {
                "memory" => &[("LDG.E.128", 8), ("STG.E.128", 8), ("LDG.E.64", 16)],
                "fma" => &[("FFMA", 128), ("CS2R", 2)],
                "mma" => &[("HMMA", 32)],
                _ => &[("ST.E", 0), ("EXIT", 3)],
            };
            for (instruction, n) in least {
                let found = count(&sass, instruction);
                assert!(
                    found >= *n,
                    "{name} for sm_{arch}: {found} {instruction}, not {n}\n{sass}"
                );
            }
        }
    }
}
