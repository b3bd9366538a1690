//! What the system says about itself.

use layout::Arrange;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A data or unified cache, as seen from the first usable CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Cache {
    /// 1, 2 or 3.
    pub level: u32,
    /// Capacity of one instance, bytes.
    pub bytes: f64,
    /// Line, bytes.
    pub line: u64,
    /// CPU ids that share the instance.
    pub shared: Vec<usize>,
}

/// Everything detection knows; plain data, so that descriptions can be tested on made-up facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// `x86_64`, `aarch64`, ...
    pub arch_name: String,
    /// `AMD`, `Intel`, or what the CPU calls its maker.
    pub vendor: String,
    /// The marketing name.
    pub brand: String,
    /// CPUID family with its extension.
    pub family: u32,
    /// CPUID model with its extension.
    pub model: u32,
    /// Extensions usable by programs, sorted.
    pub features: Vec<String>,
    /// Caches, nearest first; at least an L1.
    pub caches: Vec<Cache>,
    /// Whether this is a virtual machine.
    pub hypervisor: bool,
    /// CPU ids the calling thread may run on.
    pub affinity: Vec<usize>,
    /// CPU ids of the cgroup's cpuset, when there is one.
    pub cpuset: Option<Vec<usize>>,
    /// CPUs' worth of time that the cgroup's quota gives, when there is one.
    pub quota: Option<f64>,
    /// The first hardware thread of each CPU's core, where the system says.
    pub core_of: BTreeMap<usize, usize>,
    /// Hardware threads to a core.
    pub threads_per_core: u64,
    /// Memory of the machine or of the cgroup, the smaller, bytes; 0 when unknown.
    pub memory_bytes: f64,
    /// Nominal frequency when the CPU states one, hertz.
    pub nominal_hz: Option<f64>,
}

impl Facts {
    /// CPU ids for workers: in affinity and cpuset, one per core, no more than the quota (rounded
    /// up) pays for; never empty.
    pub fn worker_cpus(&self) -> Vec<usize> {
        let allowed: Vec<usize> = match &self.cpuset {
            Some(set) => self
                .affinity
                .iter()
                .copied()
                .filter(|c| set.contains(c))
                .collect(),
            None => self.affinity.clone(),
        };
        let allowed = if allowed.is_empty() {
            self.affinity.clone()
        } else {
            allowed
        };
        let mut cores = Vec::new();
        let mut out = Vec::new();
        for c in allowed {
            let core = self.core_of.get(&c).copied().unwrap_or(c);
            if !cores.contains(&core) {
                cores.push(core);
                out.push(c);
            }
        }
        if let Some(q) = self.quota {
            out.truncate((q.ceil() as usize).max(1));
        }
        if out.is_empty() {
            out.push(0);
        }
        out
    }

    /// A name such as `AMD EPYC (zen5), 2 cores`.
    pub(super) fn machine_name(&self, uarch: &str, workers: u64) -> String {
        let brand: Vec<&str> = self.brand.split_whitespace().collect();
        let brand = if brand.is_empty() {
            self.vendor.clone()
        } else {
            brand.join(" ")
        };
        let brand = if brand.trim().is_empty() {
            "CPU".to_string()
        } else {
            brand
        };
        let plural = if workers == 1 { "" } else { "s" };
        format!("{brand} ({uarch}), {workers} core{plural}")
    }
}

/// Facts about the present CPU. The affinity is that of the first thread that asked in this process,
/// so that threads pinned later describe the same machine.
pub fn probe() -> Facts {
    static AFFINITY: OnceLock<Vec<usize>> = OnceLock::new();
    probe_at(Path::new("/"), AFFINITY.get_or_init(affinity).clone())
}

/// Facts about the present CPU for a thread that may run on these CPUs, with system files read below
/// another root (tests).
pub fn probe_at(root: &Path, affinity: Vec<usize>) -> Facts {
    let mut f = Facts {
        arch_name: std::env::consts::ARCH.to_string(),
        affinity,
        threads_per_core: 1,
        ..Facts::default()
    };
    let first = f.affinity.first().copied().unwrap_or(0);
    f.caches = sysfs_caches(root, first);
    cpuid(&mut f);
    if f.caches.is_empty() {
        // Nothing is known: what every core of the last ten years has at least.
        let all = f.affinity.clone();
        f.caches = vec![
            Cache {
                level: 1,
                bytes: 32768.0,
                line: 64,
                shared: vec![first],
            },
            Cache {
                level: 2,
                bytes: 262144.0,
                line: 64,
                shared: vec![first],
            },
            Cache {
                level: 3,
                bytes: 2097152.0,
                line: 64,
                shared: all,
            },
        ];
    }
    f.features.arrange();
    f.features.dedup();
    cores(root, &mut f);
    cgroup(root, &mut f);
    let total = meminfo(root);
    f.memory_bytes = match (total, cgroup_memory(root)) {
        (Some(t), Some(c)) => t.min(c),
        (Some(t), None) => t,
        (None, Some(c)) => c,
        (None, None) => 0.0,
    };
    f
}

#[cfg(target_os = "linux")]
fn affinity() -> Vec<usize> {
    let set = workers::place::CpuSet::allowed();
    let ids: Vec<usize> = set.iter().flat_map(|set| set.numbers()).collect();
    if ids.is_empty() {
        fallback_affinity()
    } else {
        ids
    }
}

#[cfg(not(target_os = "linux"))]
fn affinity() -> Vec<usize> {
    fallback_affinity()
}

fn fallback_affinity() -> Vec<usize> {
    (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
}

fn read(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path))
        .ok()
        .map(|s| s.trim().to_string())
}

/// `0-3,8` as ids; ranges are capped so that a strange file cannot make a huge list.
fn list(text: &str) -> Vec<usize> {
    let mut out = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(a), Ok(b)) = (a.trim().parse::<usize>(), b.trim().parse::<usize>()) {
            out.extend(a..=b.min(a.saturating_add(8191)));
        }
    }
    out
}

fn size(text: &str) -> Option<f64> {
    let (digits, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(i) => text.split_at(i),
        None => (text, ""),
    };
    let n: f64 = digits.parse().ok()?;
    Some(match unit.trim() {
        "K" => n * 1024.0,
        "M" => n * 1048576.0,
        "G" => n * 1073741824.0,
        _ => n,
    })
}

fn sysfs_caches(root: &Path, cpu: usize) -> Vec<Cache> {
    let mut out = Vec::new();
    for i in 0..16 {
        let base = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{i}");
        let Some(kind) = read(root, &format!("{base}/type")) else {
            break;
        };
        if kind == "Instruction" {
            continue;
        }
        let level = read(root, &format!("{base}/level")).and_then(|s| s.parse().ok());
        let bytes = read(root, &format!("{base}/size")).and_then(|s| size(&s));
        if let (Some(level), Some(bytes)) = (level, bytes.filter(|b| *b > 0.0)) {
            let line =
                read(root, &format!("{base}/coherency_line_size")).and_then(|s| s.parse().ok());
            let shared = read(root, &format!("{base}/shared_cpu_list"))
                .map(|s| list(&s))
                .unwrap_or_default();
            out.push(Cache {
                level,
                bytes,
                line: line.unwrap_or(64),
                shared,
            });
        }
    }
    out.arrange_by_key(|c| c.level);
    out.dedup_by_key(|c| c.level);
    out
}

#[cfg(target_arch = "x86_64")]
fn cpuid(f: &mut Facts) {
    super::cpuid::identity(f);
    if f.caches.is_empty() {
        f.caches = super::cpuid::caches(&f.affinity);
    }
    macro_rules! features {
        ($($name:tt => $label:literal),* $(,)?) => {
            $(if std::arch::is_x86_feature_detected!($name) { f.features.push($label.to_string()); })*
        };
    }
    features!(
        "sse4.2" => "sse4_2", "avx" => "avx", "avx2" => "avx2", "fma" => "fma", "f16c" => "f16c",
        "avx512f" => "avx512f", "avx512vl" => "avx512vl", "avx512dq" => "avx512dq", "avx512bw" => "avx512bw",
        "avx512vnni" => "avx512_vnni", "avx512bf16" => "avx512_bf16", "avx512vbmi" => "avx512_vbmi",
        "avxvnni" => "avx_vnni",
    );
}

#[cfg(not(target_arch = "x86_64"))]
fn cpuid(f: &mut Facts) {
    if f.arch_name == "aarch64" {
        f.features.push("neon".to_string());
    }
}

fn cores(root: &Path, f: &mut Facts) {
    let mut most = 1;
    for &c in &f.affinity {
        let path = format!("sys/devices/system/cpu/cpu{c}/topology/thread_siblings_list");
        if let Some(siblings) = read(root, &path)
            .map(|s| list(&s))
            .filter(|s| s.contains(&c))
        {
            most = most.max(siblings.len());
            if let Some(&first) = siblings.iter().min() {
                f.core_of.insert(c, first);
            }
        }
    }
    f.threads_per_core = most as u64;
}

/// The folders of this process's cgroups, nearest first: v2's, then v1's of a controller.
fn cgroup_dirs(root: &Path, controller: &str) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let text = read(root, "proc/self/cgroup").unwrap_or_default();
    let mut add = |base: &str, path: &str| {
        let base = root.join("sys/fs/cgroup").join(base);
        let mut p = Path::new(path.trim_start_matches('/'));
        // A path from outside this namespace may hold '..'; then only the root counts.
        if p.components()
            .any(|c| !matches!(c, std::path::Component::Normal(_)))
        {
            p = Path::new("");
        }
        loop {
            out.push(base.join(p));
            match p.parent() {
                Some(up) if p != Path::new("") => p = up,
                _ => break,
            }
        }
    };
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(names), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if names.is_empty() {
            add("", path);
        } else if names.split(',').any(|n| n == controller) {
            add(controller, path);
        }
    }
    if out.is_empty() {
        out.push(root.join("sys/fs/cgroup"));
    }
    out
}

fn cgroup(root: &Path, f: &mut Facts) {
    let text = |p: PathBuf| fs::read_to_string(p).ok().map(|s| s.trim().to_string());
    let mut quota: Option<f64> = None;
    for dir in cgroup_dirs(root, "cpu") {
        let v2 = text(dir.join("cpu.max")).and_then(|s| {
            let (q, p) = s.split_once(' ')?;
            Some((q.parse::<f64>().ok()?, p.trim().parse::<f64>().ok()?))
        });
        let v1 = || {
            let q = text(dir.join("cpu.cfs_quota_us"))?.parse::<f64>().ok()?;
            Some((q, text(dir.join("cpu.cfs_period_us"))?.parse::<f64>().ok()?))
        };
        if let Some((q, p)) = v2.or_else(v1).filter(|(q, p)| *q > 0.0 && *p > 0.0) {
            quota = Some(quota.map_or(q / p, |old: f64| old.min(q / p)));
        }
    }
    f.quota = quota;
    f.cpuset = cgroup_dirs(root, "cpuset").into_iter().find_map(|d| {
        text(d.join("cpuset.cpus.effective"))
            .or_else(|| text(d.join("cpuset.effective_cpus")))
            .map(|s| list(&s))
            .filter(|l| !l.is_empty())
    });
}

fn cgroup_memory(root: &Path) -> Option<f64> {
    let mut least: Option<f64> = None;
    for dir in cgroup_dirs(root, "memory") {
        for name in ["memory.max", "memory.limit_in_bytes"] {
            let v = fs::read_to_string(dir.join(name))
                .ok()
                .and_then(|s| s.trim().parse::<f64>().ok());
            // v1 says "no limit" with a number near 2^63.
            if let Some(v) = v.filter(|v| *v > 0.0 && *v < 9e18) {
                least = Some(least.map_or(v, |l: f64| l.min(v)));
            }
        }
    }
    least
}

fn meminfo(root: &Path) -> Option<f64> {
    let text = read(root, "proc/meminfo")?;
    let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    (kib > 0.0).then_some(kib * 1024.0)
}
