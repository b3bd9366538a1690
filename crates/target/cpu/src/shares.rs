//! Which share of its core each worker has when it wants it, as the system accounts for processors and
//! threads: what a core did beside this process is what somebody else did there.
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Threads that are looked at: asking for more of them costs more than the answer is worth.
#[cfg(any(target_os = "linux", test))]
const THREADS: usize = 256;
/// What others use of a core below this is accounting by ticks, and the system's own housekeeping.
const NOTHING: f64 = 0.1;
/// A core that is idle for longer than this share of the time is not fought for.
const IDLE: f64 = 0.2;

/// Processor time so far.
#[derive(Clone, Debug, Default, PartialEq)]
struct Account {
    /// Per processor: ticks at work, and ticks in all. What a hypervisor takes is work of others.
    cpus: BTreeMap<usize, (u64, u64)>,
    /// Per thread of this process: nanoseconds that it ran, and the processor it was on last.
    threads: BTreeMap<u64, (u64, usize)>,
}

#[derive(Debug)]
pub(crate) struct Shares {
    /// Processors that this process may use.
    cpus: Vec<usize>,
    last: Mutex<Option<(Instant, Account)>>,
}

impl Shares {
    pub fn new(cpus: Vec<usize>) -> Shares {
        Shares {
            cpus,
            last: Mutex::new(None),
        }
    }

    /// Shares since the last time, callers first and then the residents, who are pinned to `residents`;
    /// empty the first time, and where the system does not say.
    pub fn read(&self, residents: &[usize]) -> Vec<f64> {
        let Some(account) = account(&self.cpus) else {
            return Vec::new();
        };
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.replace((now, account.clone()));
        let Some((then, before)) = before else {
            return Vec::new();
        };
        let seconds = now.duration_since(then).as_secs_f64();
        shares(&before, &account, seconds, &self.cpus, residents)
    }
}

fn shares(
    before: &Account,
    now: &Account,
    seconds: f64,
    cpus: &[usize],
    residents: &[usize],
) -> Vec<f64> {
    if seconds <= 0.0 {
        return Vec::new();
    }
    let mut own: BTreeMap<usize, f64> = BTreeMap::new();
    for (id, (ran, cpu)) in &now.threads {
        // A thread that is new began within this time.
        let old = before.threads.get(id).map_or(0, |t| t.0);
        *own.entry(*cpu).or_default() += ran.saturating_sub(old) as f64 * 1e-9 / seconds;
    }
    let busy = |cpu: usize| -> Option<f64> {
        let (a, b) = (before.cpus.get(&cpu)?, now.cpus.get(&cpu)?);
        let ticks = b.1.saturating_sub(a.1);
        (ticks > 0).then(|| b.0.saturating_sub(a.0) as f64 / ticks as f64)
    };
    // Threads move: what they ran beyond what their last core was at work they ran on another one.
    let beyond: f64 = own
        .iter_mut()
        .map(|(cpu, mine)| {
            let most = busy(*cpu).unwrap_or(1.0);
            let over = (*mine - most).max(0.0);
            *mine -= over;
            over
        })
        .sum();
    let of = |cpu: usize| -> f64 {
        let Some(busy) = busy(cpu) else {
            return 1.0;
        };
        let mine = own.get(&cpu).copied().unwrap_or(0.0);
        let others = (busy - mine - beyond).clamp(0.0, 1.0);
        if others < NOTHING {
            return 1.0;
        }
        match 1.0 - busy < IDLE && mine > NOTHING {
            true => (mine / (mine + others)).min(1.0),
            // Whoever wants the core now shares it with those who are there.
            false => 1.0 - 0.5 * others,
        }
    };
    // Callers are not pinned: the system lets them have the best core that no resident is on.
    let free = cpus.iter().filter(|c| !residents.contains(c));
    let best = free.map(|&c| of(c)).fold(f64::NAN, f64::max);
    let first = if best.is_nan() { 1.0 } else { best };
    std::iter::once(first)
        .chain(residents.iter().map(|&c| of(c)))
        .collect()
}

/// What the system has accounted so far; `None` where it does not say.
#[cfg(target_os = "linux")]
fn account(cpus: &[usize]) -> Option<Account> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let mut out = Account {
        cpus: processors(&stat, cpus),
        ..Account::default()
    };
    if out.cpus.is_empty() {
        return None;
    }
    for t in std::fs::read_dir("/proc/self/task").ok()? {
        let path = t.ok()?.path();
        let id: u64 = path.file_name()?.to_str()?.parse().ok()?;
        // A thread may have ended since it was listed.
        let Ok(ran) = std::fs::read_to_string(path.join("schedstat")) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(path.join("stat")) else {
            continue;
        };
        let ran: u64 = ran.split_whitespace().next()?.parse().ok()?;
        out.threads.insert(id, (ran, last_processor(&stat)?));
        if out.threads.len() > THREADS {
            return None;
        }
    }
    Some(out)
}

#[cfg(not(target_os = "linux"))]
fn account(_: &[usize]) -> Option<Account> {
    None
}

/// Ticks at work and in all of the processors `cpus`, from /proc/stat.
#[cfg(any(target_os = "linux", test))]
pub(crate) fn processors(stat: &str, cpus: &[usize]) -> BTreeMap<usize, (u64, u64)> {
    let mut out = BTreeMap::new();
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let Some(cpu) = name.strip_prefix("cpu").and_then(|n| n.parse().ok()) else {
            continue;
        };
        // user nice system idle iowait irq softirq steal; guests are counted in user already.
        let ticks: Vec<u64> = words.take(8).map_while(|w| w.parse().ok()).collect();
        if !cpus.contains(&cpu) || ticks.len() < 8 {
            continue;
        }
        let all = ticks.iter().sum::<u64>();
        out.insert(cpu, (all - ticks[3] - ticks[4], all));
    }
    out
}

/// The processor that a thread was on last, from its stat: the 39th field, counted behind the name, which
/// may hold anything.
#[cfg(any(target_os = "linux", test))]
fn last_processor(stat: &str) -> Option<usize> {
    let behind = &stat[stat.rfind(')')? + 1..];
    behind.split_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(busy: [u64; 2], all: u64, threads: &[(u64, u64, usize)]) -> Account {
        Account {
            cpus: busy
                .iter()
                .enumerate()
                .map(|(i, b)| (i, (*b, all)))
                .collect(),
            threads: threads
                .iter()
                .map(|(t, ms, c)| (*t, (ms * 1_000_000, *c)))
                .collect(),
        }
    }

    #[test]
    fn who_else_uses_a_core_is_found() {
        let zero = at([0, 0], 0, &[]);
        let see = |busy: [u64; 2], threads: &[(u64, u64, usize)]| {
            shares(&zero, &at(busy, 100, threads), 1.0, &[0, 1], &[1])
        };
        // Alone, busy or not.
        assert_eq!(see([100, 100], &[(1, 1000, 0), (2, 990, 1)]), [1.0, 1.0]);
        assert_eq!(see([3, 5], &[(1, 10, 0)]), [1.0, 1.0]);
        // Somebody takes half of the resident's core, or all of it while the resident sleeps.
        let s = see([100, 100], &[(1, 1000, 0), (2, 500, 1)]);
        assert!(s[0] == 1.0 && (s[1] - 0.5).abs() < 1e-9, "{s:?}");
        assert_eq!(see([100, 100], &[(1, 1000, 0), (2, 0, 1)]), [1.0, 0.5]);
        // The same on the callers' core.
        assert_eq!(see([100, 0], &[(1, 50, 0)]), [0.525, 1.0]);
        // A caller that moved is not taken for somebody else.
        assert_eq!(see([50, 50], &[(1, 1000, 0)]), [1.0, 1.0]);
        // Threads of one process that outnumber cores.
        assert_eq!(
            see([100, 100], &[(1, 500, 0), (2, 500, 0), (3, 990, 1)]),
            [1.0, 1.0]
        );
        assert!(shares(&zero, &zero, 0.0, &[0], &[]).is_empty());
    }

    #[test]
    fn what_the_system_says_is_read() {
        let stat = "cpu  9 0 0 9 0 0 0 0 0 0\ncpu0 10 1 2 100 5 1 1 3 0 0\ncpu1 1 1\nintr 5\n";
        assert_eq!(
            processors(stat, &[0, 1]),
            [(0, (18, 123))].into_iter().collect()
        );
        assert!(processors(stat, &[7]).is_empty());
        let fields: Vec<String> = (3..60).map(|i| i.to_string()).collect();
        let line = format!("77 (a) b) {}", fields.join(" "));
        assert_eq!(last_processor(&line), Some(39));
        assert_eq!(last_processor("77 (x) R"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_answers() {
        let cpus = crate::detect::worker_cpus();
        let s = Shares::new(cpus.clone());
        assert!(s.read(&[]).is_empty());
        std::thread::sleep(std::time::Duration::from_millis(30));
        let seen = s.read(&cpus[..1]);
        assert!(seen.is_empty() || seen.len() == 2, "{seen:?}");
        assert!(seen.iter().all(|v| (0.0..=1.0).contains(v)), "{seen:?}");
    }
}
