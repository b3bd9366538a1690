//! How large programs are: `cargo xtask sizes [NAME...]` builds them as they are handed out, prints the bytes of each,
//! and fails where one is larger than it may be.
use crate::wheel::run;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A program, and how large it may be.
struct Program {
    /// What it is asked for by.
    name: &'static str,
    /// What cargo is asked for, behind `build --profile`.
    build: &'static [&'static str],
    /// The profile.
    profile: &'static str,
    /// The file's name.
    file: &'static str,
    /// Most bytes; none where it is a choice of whoever builds it.
    most: Option<u64>,
}

const CLI: &[&str] = &["-p", "shopfloor-cli", "--bin", "shopfloor"];

const PROGRAMS: &[Program] = &[
    Program {
        name: "minimal-unwinding",
        build: &["-p", "minimal", "--bin", "minimal"],
        profile: "dist-unwind",
        file: "minimal",
        // A fifth of it is what unwinding takes: tables, and code that drops what a panic leaves. It has 9.54 MB, which is
        // no aim: the limit shows when it grows.
        most: Some(9_600_000),
    },
    Program {
        name: "minimal",
        build: &["-p", "minimal", "--bin", "minimal"],
        profile: "dist",
        file: "minimal",
        most: Some(8_000_000),
    },
    Program {
        name: "cli",
        build: CLI,
        profile: "dist",
        file: "shopfloor",
        most: Some(15_000_000),
    },
    Program {
        name: "cli-unwinding",
        build: CLI,
        profile: "dist-unwind",
        file: "shopfloor",
        most: None,
    },
    Program {
        name: "cli-webgpu",
        build: &[
            "-p",
            "shopfloor-cli",
            "--bin",
            "shopfloor",
            "--features",
            "webgpu",
        ],
        profile: "dist",
        file: "shopfloor",
        most: None,
    },
];

/// Builds programs, those named or all, and prints their sizes.
///
/// # Errors
/// A name is not known, or something does not build.
pub fn sizes(root: &Path, names: &[String]) -> Result<ExitCode, String> {
    let known: Vec<&str> = PROGRAMS.iter().map(|p| p.name).collect();
    if let Some(n) = names.iter().find(|n| !known.contains(&n.as_str())) {
        return Err(format!(
            "'{n}' is not known; usage: cargo xtask sizes [{}]",
            known.join("] [")
        ));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let asked = |p: &&Program| names.is_empty() || names.iter().any(|n| n == p.name);
    let mut fits = true;
    for p in PROGRAMS.iter().filter(asked) {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        run(Command::new(cargo)
            .current_dir(root)
            .args(["build", "--locked", "--profile", p.profile])
            .args(p.build))?;
        let file = format!("{}{}", p.file, std::env::consts::EXE_SUFFIX);
        let path = target.join(p.profile).join(file);
        let bytes = std::fs::metadata(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let bytes = bytes.len();
        let (line, fit) = verdict(p, bytes);
        println!("{line}");
        fits &= fit;
    }
    Ok(if fits {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What is printed of a program of so many bytes, and whether it may have them.
fn verdict(p: &Program, bytes: u64) -> (String, bool) {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let (most, fits) = match p.most {
        Some(most) if bytes > most => (format!(", more than {} MB", mb(most)), false),
        Some(most) => (format!(", of at most {} MB", mb(most)), true),
        None => (String::new(), true),
    };
    let line = format!("{} ({}): {:.2} MB{most}", p.name, p.profile, mb(bytes));
    (line, fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_have_as_many_bytes_as_it_says_and_no_more() {
        let all = PROGRAMS.iter().filter_map(|p| Some((p, p.most?)));
        for (p, most) in all {
            assert!(verdict(p, most).1);
            let (line, fits) = verdict(p, most + 1);
            assert!(!fits && line.contains("more than"), "{line}");
        }
        assert!(
            PROGRAMS
                .iter()
                .all(|p| p.most.is_some() || verdict(p, u64::MAX).1)
        );
    }
}
