//! PTX of every family, assembled by ptxas where it is to be had.
use emit::ptx;
use kernel::TileProgram;
use shopfloor_conformance::{
    Failure, InParts, Picks, Rng, Subject, arch, attending, boxed_windows, cases, copied_ahead,
    in_clusters, parts_in_clusters, run, seeds,
};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tensor::Tensor;

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

/// "Used N registers" in what `ptxas -v` says.
fn registers(log: &str) -> Option<u32> {
    let (_, rest) = log.split_once("Used ")?;
    rest.split(' ').next()?.parse().ok()
}

/// "N bytes spill stores" in the same.
fn spilled(log: &str) -> Option<u32> {
    let (before, _) = log.split_once(" bytes spill stores")?;
    before.rsplit(' ').next()?.parse().ok()
}

/// Registers of a thread at most.
const REGISTERS: u32 = 255;
/// Those that a launch of two kernels has for what both need, while the first one runs.
const OF_BOTH: u32 = 8;

/// A program each of whose CTAs copies for itself.
fn alone(program: &TileProgram) -> Result<TileProgram, String> {
    let mut s = program.schedule().clone();
    if let kernel::Mapping::Gpu(g) = &mut s.mapping {
        g.cluster = 1;
    }
    TileProgram::new(program.kernel().clone(), s).map_err(|e| e.to_string())
}

/// Assembles instead of running.
struct Assembler {
    /// Which of the programs are assembled.
    share: testing::Share,
    tool: PathBuf,
    folder: tempfile::TempDir,
    done: Cell<usize>,
    /// Estimated and taken.
    registers: RefCell<Vec<(u32, u32)>>,
}

impl Assembler {
    /// What came of a text, what the assembler said of it, and that with all that it tells.
    fn assemble(&self, text: &str, arch: &str) -> Result<(Output, String, String), Failure> {
        let broken = |e: std::io::Error| Failure::Broken(e.to_string());
        let file = self.folder.path().join("kernel.ptx");
        std::fs::write(&file, text).map_err(broken)?;
        let out = Command::new(&self.tool)
            .args(["-v", "--gpu-name", arch, "-o", "/dev/null"])
            .arg(&file)
            .output()
            .map_err(broken)?;
        let said = String::from_utf8_lossy(&out.stderr).to_string();
        let log = said.clone() + &String::from_utf8_lossy(&out.stdout);
        Ok((out, said, log))
    }
}

impl Subject for Assembler {
    fn name(&self) -> String {
        "ptxas".into()
    }

    fn kind(&self) -> kernel::TargetKind {
        kernel::TargetKind::Ptx
    }

    fn run(
        &self,
        program: &TileProgram,
        _: &[(&str, i64)],
        _: &[Tensor],
    ) -> Result<Vec<Tensor>, Failure> {
        let n = self.done.get();
        self.done.set(n + 1);
        if !self.share.picks(n as u64) {
            return Err(Failure::Refused("left to another share".into()));
        }
        let arch = arch(program, n / self.share.of as usize);
        let text = ptx::emit(program, arch).map_err(|e| Failure::Refused(e.to_string()))?;
        let (out, said, log) = self.assemble(&text.text, arch)?;
        if let Some(used) = registers(&log) {
            self.registers
                .borrow_mut()
                .push((text.registers_estimate, used));
        }
        // What is said of products of warpgroups that are put in a row is no warning.
        let serial = log.contains("(C75");
        // Random schedules may hold more than there are registers; that is theirs to answer for, and not their clusters'.
        let mut more = false;
        if text.cluster > 1 {
            let alone = alone(program).map_err(Failure::Broken)?;
            let plain = ptx::emit(&alone, arch).map_err(|e| Failure::Broken(e.to_string()))?;
            let (_, _, without) = self.assemble(&plain.text, arch)?;
            more = spilled(&log).is_none() || spilled(&log) > spilled(&without);
        }
        match out.status.success() && !said.contains("warning") && !serial && !more {
            // Nothing was run: there is nothing to compare.
            true => Ok(vec![]),
            false => Err(Failure::Broken(format!("{said}\n{}", text.text))),
        }
    }
}

/// What assembles one in `of` programs, where ptxas is to be had.
fn assembler(name: &str, of: u64) -> Option<Assembler> {
    let tool = match ptxas() {
        Ok(t) => t,
        Err(e) => {
            testing::skip(name, &e);
            return None;
        }
    };
    Some(Assembler {
        share: testing::Share::of_run(of),
        tool,
        folder: tempfile::tempdir().expect("a folder"),
        done: Cell::new(0),
        registers: RefCell::default(),
    })
}

/// Runs what `picks` picks of as many seeds as a run has, through ptxas.
fn assembled(name: &str, of: u64, picks: &Picks<'_>, seed: u64) {
    let Some(a) = assembler(name, of) else {
        return;
    };
    let own = testing::Share::cases(16, 1);
    let count = (own.end - own.start) as usize;
    let out = run(&a, picks, seed + own.start, seeds(count)).unwrap_or_else(|e| panic!("{e}"));
    println!("{:?}, registers {:?}", out.agreed, a.registers.borrow());
    assert!(out.total() > 3, "{:?}", out.agreed);
    assert!(out.agreed.len() >= 2, "{:?}", out.agreed);
}

#[test]
fn every_family_is_assembled() {
    assembled("ptxas: every family", 9, &|_| true, 3000);
}

#[test]
fn matrix_instructions_are_assembled() {
    let before = cases(&mut Rng::new(0)).len() as u64;
    assembled(
        "ptxas: matrix instructions",
        2,
        &|case| case >= before,
        9000,
    );
}

/// Programs of one kind from a seed on, until so many agreed; gives the last seed.
type OfKind = fn(&dyn Subject, u64, usize) -> Result<u64, String>;

fn assembled_of_kind(name: &str, programs: OfKind, seed: u64) {
    let Some(a) = assembler(name, 2) else {
        return;
    };
    let last = programs(&a, seed, seeds(12)).unwrap_or_else(|e| panic!("{e}"));
    println!("up to seed {last}, registers {:?}", a.registers.borrow());
}

#[test]
fn clusters_are_assembled() {
    assembled_of_kind("ptxas: clusters", in_clusters, 500_000);
}

#[test]
fn parts_in_clusters_are_assembled() {
    if !testing::turn("parts_in_clusters_are_assembled") {
        return;
    }
    let Some(a) = assembler("ptxas: parts in clusters", 1) else {
        return;
    };
    let run = |case: &InParts| {
        let [first, second] = &case.programs;
        let text = ptx::in_cluster(first, second, "sm_90a");
        let text = text.map_err(|e| Failure::Refused(e.to_string()))?;
        let (out, said, log) = a.assemble(&text.text, "sm_90a")?;
        // Random schedules may hold more than there are registers, or all but a few of them; that is theirs to answer for.
        let mut alone = false;
        for p in [first, second] {
            let plain = ptx::emit(p, "sm_90a").map_err(|e| Failure::Broken(e.to_string()))?;
            let (_, _, log) = a.assemble(&plain.text, "sm_90a")?;
            let left = registers(&log).map_or(0, |n| REGISTERS.saturating_sub(n));
            alone |= spilled(&log) != Some(0) || left < OF_BOTH;
        }
        let fits = alone || spilled(&log) == Some(0);
        match out.status.success() && !said.contains("warning") && !log.contains("(C75") && fits {
            true => Ok(vec![]),
            false => Err(Failure::Broken(format!("{said}\n{}", text.text))),
        }
    };
    let first = 1000 * testing::Share::cases(20, 1).start;
    let last = parts_in_clusters(&run, 800_000 + first, seeds(3)).unwrap_or_else(|e| panic!("{e}"));
    println!("from seed {} up to {last}", 800_000 + first);
}

#[test]
fn factors_that_warps_copy_are_assembled() {
    assembled_of_kind("ptxas: factors that warps copy", copied_ahead, 9500);
}

#[test]
fn windows_that_are_boxes_are_assembled() {
    assembled_of_kind("ptxas: boxes of tensors", boxed_windows, 9300);
}

#[test]
fn attention_by_warpgroups_is_assembled() {
    if !testing::turn("attention_by_warpgroups_is_assembled") {
        return;
    }
    assembled_of_kind("ptxas: attention by warpgroups", attending, 9900);
}
