//! The present CPU as a [`Machine`]: from CPUID, sysfs, cgroup and affinity, without any clock, so
//! that every process on the machine describes it with the same bytes.
//!
//! Sizes and counts are what the system reports (`spec`); rates follow from the micro-architecture's
//! published widths and a nominal frequency and are marked `assumed`. [`crate::calibrate`] measures
//! them; [`present`] is the detected machine with a stored calibration put in.

#[cfg(target_arch = "x86_64")]
mod cpuid;
mod probe;
mod uarch;

use machine::{
    Bandwidth, Costs, Isa, Level, Limits, Machine, MachineKind, NumType, Sourced, Unit, UnitClass,
    Workers,
};
pub use probe::{Cache, Facts, probe, probe_at};
use uarch::Uarch;

/// CPU ids that workers may be pinned to, one per core, no more than the quota allows; never empty.
/// The caller's thread counts as a worker: N ids are N-1 residents and the caller.
pub fn worker_cpus() -> Vec<usize> {
    probe().worker_cpus()
}

/// Describes the present CPU; the same bytes in every process under the same limits.
pub fn detect() -> Machine {
    describe(&probe())
}

/// The present CPU with its stored calibration where there is one that fits (`--on cpu`).
pub fn present() -> Machine {
    let m = detect();
    match crate::calibrate::load_calibration(&m) {
        Ok(Some(c)) => m.calibrated(&c),
        _ => m,
    }
}

/// L3 that a virtual machine shares with neighbours it cannot see: the share that is counted on.
const GUEST_L3_SHARE: f64 = 0.25;

fn level(
    name: &str,
    bytes: f64,
    shared_by: u64,
    line: u64,
    latency_s: f64,
    read: Bandwidth,
    write: Bandwidth,
) -> Level {
    Level {
        name: name.to_string(),
        bytes: Sourced::spec(bytes),
        usable: None,
        shared_by,
        line,
        latency_s: Sourced::assumed(latency_s),
        read,
        write,
        bus: None,
        same_place_as: None,
    }
}

/// What levels and units follow from.
struct Basis<'a> {
    facts: &'a Facts,
    u: &'a Uarch,
    hz: f64,
    workers: u64,
    vector_bytes: u64,
}

/// Registers, caches and memory.
fn levels(b: &Basis, registers: u64) -> Vec<Level> {
    let Basis {
        facts,
        u,
        hz,
        workers,
        vector_bytes,
    } = *b;
    let per_cycle = |bytes: f64| Bandwidth::private(Sourced::assumed(bytes * hz), workers);
    let line = facts.caches.first().map_or(64, |c| c.line.max(1));
    let mut levels = vec![level(
        "register",
        (registers * vector_bytes) as f64,
        1,
        vector_bytes,
        0.0,
        // Three operands read and one written by each fused multiply-add.
        per_cycle(u.flop_per_cycle_best(facts) / 2.0 * 4.0 * 3.0),
        per_cycle(u.flop_per_cycle_best(facts) / 2.0 * 4.0),
    )];
    levels[0].latency_s = Sourced::spec(0.0);
    for c in &facts.caches {
        let sharers = facts
            .worker_cpus()
            .iter()
            .filter(|w| c.shared.contains(w))
            .count()
            .max(1) as u64;
        let (name, read, write, cycles) = match c.level {
            1 => ("L1", u.l1_read, u.l1_write, 4.0),
            2 => ("L2", u.l2_read, u.l2_read / 2.0, 14.0),
            3 => ("L3", u.l3_read, u.l3_read / 2.0, 55.0),
            _ => continue,
        };
        let mut l = level(
            name,
            c.bytes,
            sharers.min(workers),
            c.line.max(1),
            cycles / hz,
            per_cycle(read),
            per_cycle(write),
        );
        if c.level == 3 {
            let cores = c.shared.len().max(1) as f64 / facts.threads_per_core.max(1) as f64;
            if facts.hypervisor {
                l.usable = Some(Sourced::assumed(c.bytes * GUEST_L3_SHARE));
            } else if cores > workers as f64 {
                l.usable = Some(Sourced::assumed(
                    c.bytes * (workers as f64 / cores).max(GUEST_L3_SHARE),
                ));
            }
        }
        levels.push(l);
    }
    let dram = |per: f64| Bandwidth {
        per_worker: Sourced::assumed(per),
        all: Sourced::assumed(per * (workers as f64).clamp(1.0, u.dram_saturating_cores)),
        curve: Vec::new(),
    };
    let mut host = level(
        "host",
        facts.memory_bytes,
        workers,
        line,
        u.dram_latency_s,
        dram(u.dram_read_per_core),
        dram(u.dram_read_per_core * 0.6),
    );
    if facts.memory_bytes <= 0.0 {
        host.bytes = Sourced::assumed(4e9);
    }
    levels.push(host);
    levels
}

/// Units by what they do, their formats and extensions.
fn units(b: &Basis) -> Vec<Unit> {
    let Basis {
        facts,
        u,
        hz,
        workers,
        vector_bytes,
    } = *b;
    let has = |f: &str| facts.features.iter().any(|x| x == f);
    let mut units = Vec::new();
    let mut unit =
        |name: &str, class, dtype_in, dtype_acc, lanes: u64, isa: &str, per_worker: f64| {
            units.push(Unit {
                name: name.to_string(),
                class,
                dtype_in,
                dtype_acc,
                tile: (1, lanes, 1),
                isa: isa.to_string(),
                per_worker: Sourced::assumed(per_worker),
                all: Sourced::assumed(per_worker * workers as f64),
            });
        };
    let (f32t, fma) = (NumType::F32, UnitClass::Fma);
    if has("avx512f") {
        unit("fma", fma, f32t, f32t, 16, "avx512", u.avx512_flop * hz);
    }
    if has("avx2") && has("fma") {
        unit("fma", fma, f32t, f32t, 8, "avx2", u.avx2_flop * hz);
    }
    unit("fma", fma, f32t, f32t, 4, "portable", u.portable_flop * hz);
    let best = u.flop_per_cycle_best(facts);
    unit(
        "fma",
        fma,
        NumType::F64,
        NumType::F64,
        vector_bytes / 8,
        "",
        best / 2.0 * hz,
    );
    if has("avx512_bf16") {
        unit(
            "fma",
            fma,
            NumType::Bf16,
            f32t,
            32,
            "avx512_bf16",
            best * 2.0 * hz,
        );
    }
    if has("avx512_vnni") || has("avx_vnni") {
        let isa = if has("avx512_vnni") {
            "avx512_vnni"
        } else {
            "avx_vnni"
        };
        unit(
            "fma",
            fma,
            NumType::I8,
            NumType::I32,
            vector_bytes,
            isa,
            best * 4.0 * hz,
        );
    }
    let simple = best / 2.0 * hz;
    let lanes = vector_bytes / 4;
    unit("simple", UnitClass::Simple, f32t, f32t, lanes, "", simple);
    unit(
        "divsqrt",
        UnitClass::Divsqrt,
        f32t,
        f32t,
        lanes,
        "",
        simple / 5.0,
    );
    unit(
        "transcendental",
        UnitClass::Transcendental,
        f32t,
        f32t,
        lanes,
        "",
        simple / 25.0,
    );
    unit(
        "element",
        UnitClass::Element,
        f32t,
        f32t,
        1,
        "",
        simple / (4 * lanes.max(1)) as f64,
    );
    units
}

/// The machine that a set of facts describes; pure.
pub fn describe(facts: &Facts) -> Machine {
    let u = Uarch::of(facts);
    let workers = facts.worker_cpus().len().max(1) as u64;
    let hz = facts.nominal_hz.unwrap_or(u.nominal_hz);
    let has = |f: &str| facts.features.iter().any(|x| x == f);
    let vector_bytes: u64 = if has("avx512f") {
        64
    } else if has("avx2") {
        32
    } else {
        16
    };
    let registers: u64 = if has("avx512f") || facts.arch_name == "aarch64" {
        32
    } else {
        16
    };
    let basis = Basis {
        facts,
        u: &u,
        hz,
        workers,
        vector_bytes,
    };
    let best = u.flop_per_cycle_best(facts);
    Machine {
        name: facts.machine_name(u.name, workers),
        aliases: vec!["detected".to_string()],
        kind: MachineKind::Cpu,
        vendor: facts.vendor.clone(),
        arch: u.name.to_string(),
        note: String::new(),
        power_w: None,
        isa: Isa {
            name: facts.arch_name.clone(),
            features: facts.features.clone(),
            vector_registers: registers,
            vector_bytes,
        },
        workers: Workers {
            count: Sourced::spec(workers),
            clock_hz: if facts.nominal_hz.is_some() {
                Sourced::spec(hz)
            } else {
                Sourced::assumed(hz)
            },
            lanes: Sourced::assumed((best / 2.0) as u64),
            exposed: Sourced::assumed(0.1),
            threads_per_core: facts.threads_per_core.max(1),
        },
        costs: Costs {
            launch_s: Sourced::assumed(1.6e-7),
            handoff_s: Sourced::assumed(8e-8),
            wake_s: Sourced::assumed(4.2e-5),
            step_s: Sourced::assumed(1e-7),
            task_s: Sourced::assumed(3e-8),
            // Paths through code: so many cycles, from seconds that were fitted on a Zen 5, taken to run at 4 GHz.
            tile_s: Sourced::assumed(160.0 / hz),
            row_s: Sourced::assumed(12.0 / hz),
            call_s: Sourced::assumed(40.0 / hz),
            ways: None,
        },
        limits: Limits::default(),
        levels: levels(&basis, registers),
        units: units(&basis),
        links: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detected_twice_is_the_same_bytes_and_passes_its_checks() {
        let a = detect();
        let b = detect();
        a.check().expect("the detected machine is legal");
        assert_eq!(a.to_toml().expect("text"), b.to_toml().expect("text"));
        assert_eq!(a.hash(), b.hash());
        assert_eq!(
            Machine::from_toml(&a.to_toml().expect("text"), "x").expect("reads"),
            a
        );
        assert!(!worker_cpus().is_empty());
        assert_eq!(a.worker_count(), worker_cpus().len());
    }

    #[test]
    fn a_pinned_thread_describes_the_same_machine() {
        let a = detect();
        let cpu = worker_cpus()[0];
        let b = std::thread::spawn(move || {
            crate::calibrate::pin_current_thread(cpu);
            detect()
        });
        assert_eq!(a, b.join().expect("the thread ends"));
    }

    fn facts(root: &std::path::Path) -> Facts {
        probe_at(root, (0..8).collect())
    }

    #[test]
    fn limits_of_the_container_are_kept() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let root = dir.path();
        let put = |p: &str, text: &str| {
            let p = root.join(p);
            std::fs::create_dir_all(p.parent().expect("has a parent")).expect("folder");
            std::fs::write(p, text).expect("file");
        };
        // Nothing there at all: still a legal machine.
        let bare = facts(root);
        assert_eq!(bare.worker_cpus().len(), 8);
        describe(&bare).check().expect("legal without sysfs");

        put("proc/self/cgroup", "0::/a/b\n");
        put("proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");
        put("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
        put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
        put("sys/fs/cgroup/a/b/memory.max", "8388608\n");
        let f = facts(root);
        assert_eq!(
            f.worker_cpus(),
            [0, 1, 2],
            "a quota of 2.5 CPUs needs three workers"
        );
        assert_eq!(f.memory_bytes, 8388608.0);
        put("sys/fs/cgroup/a/b/cpuset.cpus.effective", "2-3,6\n");
        put("sys/fs/cgroup/a/cpu.max", "max 100000\n");
        assert_eq!(facts(root).worker_cpus(), [2, 3, 6]);
        // Hardware threads of one core make one worker.
        put(
            "sys/devices/system/cpu/cpu2/topology/thread_siblings_list",
            "2-3\n",
        );
        put(
            "sys/devices/system/cpu/cpu3/topology/thread_siblings_list",
            "2-3\n",
        );
        let f = facts(root);
        assert_eq!(f.worker_cpus(), [2, 6]);
        assert_eq!(f.threads_per_core, 2);
        put("sys/fs/cgroup/a/cpu.max", "1000 100000\n");
        assert_eq!(facts(root).worker_cpus(), [2]);
    }

    #[test]
    fn older_instruction_sets_are_described() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let mut f = facts(dir.path());
        f.features.retain(|x| !x.starts_with("avx512"));
        let m = describe(&f);
        m.check().expect("legal without AVX-512");
        assert!(m.units.iter().all(|u| !u.isa.starts_with("avx512")));
        f.features.clear();
        let m = describe(&f);
        m.check().expect("legal with nothing");
        assert_eq!(
            m.unit(UnitClass::Fma, NumType::F32).map(|u| u.isa.as_str()),
            Some("portable")
        );
    }
}
