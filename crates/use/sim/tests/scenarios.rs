//! Every scenario of `scenarios/` whose models are given as work: what it expects holds, and a second
//! run is the same to the last bit.
use shopfloor_sim::{Metric, Outcome, Scenario, Verdict, WorkBackend, judge, simulate};
use std::path::PathBuf;
use std::sync::Arc;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios")
}

fn read(name: &str) -> Scenario {
    let path = folder().join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&path).unwrap();
    Scenario::from_toml(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn run(s: &Scenario) -> Outcome {
    let s = Arc::new(s.clone());
    let mut backend = WorkBackend::new(s.clone()).unwrap();
    simulate(&s, &mut backend, false).unwrap().0
}

fn judged(s: &Scenario) -> (Outcome, Verdict) {
    let s = Arc::new(s.clone());
    let mut backend = WorkBackend::new(s.clone()).unwrap();
    let (o, _) = simulate(&s, &mut backend, false).unwrap();
    let v = judge(&s, &o, &mut backend).unwrap();
    (o, v)
}

/// Those with models that have to be planned are run by the facade's tests.
fn given() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|e| {
            let name = e.unwrap().file_name().into_string().unwrap();
            Some(name.strip_suffix(".toml")?.to_string())
        })
        .filter(|n| read(n).models.iter().all(|m| m.path.is_none()))
        .collect();
    names.sort();
    assert!(names.len() >= 9, "{names:?}");
    names
}

#[test]
fn what_scenarios_expect_holds() {
    let only = std::env::var("SCENARIO").ok();
    let share = match only.is_some() {
        true => testing::Share::ALL,
        false => testing::Share::of_run(10),
    };
    println!("{share}");
    let mut missed = Vec::new();
    for name in given() {
        if !share.has(&name) || only.as_ref().is_some_and(|o| *o != name) {
            continue;
        }
        let s = read(&name);
        let (o, v) = judged(&s);
        let text = format!(
            "{}\n{}",
            o.render(report::Style::default()),
            v.render(report::Style::default())
        );
        if only.is_some() {
            println!("{text}");
        }
        assert!(
            text.lines().all(|l| l.chars().count() <= 100),
            "{name} is wider than 100 columns:\n{text}"
        );
        assert_eq!(o.sessions.iter().map(|s| s.lost).sum::<u64>(), 0, "{name}");
        if !v.holds() {
            missed.push(text);
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n\n"));
}

#[test]
fn a_second_run_is_the_same_and_another_seed_is_not() {
    for name in ["neighbour", "fleet", "swing", "panics"] {
        let mut s = read(name);
        s.seconds = s.seconds.min(12.0);
        let (a, b) = (run(&s), run(&s));
        assert_eq!(a.digest, b.digest, "{name}");
        assert_eq!(
            serde_json::to_string(&a).unwrap(),
            serde_json::to_string(&b).unwrap()
        );
        s.seed += 1;
        assert_ne!(run(&s).digest, a.digest, "{name}");
    }
}

#[test]
fn a_recorded_log_replays_to_the_same_decisions() {
    for name in ["neighbour", "swing", "lying-file"] {
        let mut s = read(name);
        s.seconds = s.seconds.min(20.0);
        let s = Arc::new(s);
        let mut backend = WorkBackend::new(s.clone()).unwrap();
        let (o, logs) = simulate(&s, &mut backend, true).unwrap();
        let again = supervisor::supervise::replay(&logs[0][..]).unwrap();
        assert_eq!(again.differs_at, None, "{name}");
        let made: Vec<_> = o.decisions.iter().map(|d| d.decision.clone()).collect();
        assert_eq!(again.decisions, made, "{name}");
        assert!(!made.is_empty(), "{name}");
    }
}

#[test]
fn swapping_plans_does_not_slow_requests_down() {
    let mut s = read("million");
    s.requests = Some(100_000);
    let with = run(&s);
    assert!(with.swaps >= 1000, "{}", with.swaps);
    s.swap_every = 0;
    let without = run(&s);
    assert_eq!(with.sessions[0].finished, 100_000);
    assert!(with.sessions[0].p99_ms <= 1.1 * without.sessions[0].p99_ms);
}

/// The urgent model's p99 is at most its p99 alone plus the longest task of the other, which keeps
/// four fifths of what is left.
#[test]
fn urgent_requests_wait_for_a_task_and_no_longer() {
    let both = read("urgent");
    let keep = |name: &str| {
        let mut s = both.clone();
        s.sessions.retain(|x| x.name == name);
        s.expect.clear();
        run(&s)
    };
    let (urgent, background) = (keep("urgent"), keep("background"));
    let o = run(&both);
    // 400 MFLOP in 16 tasks at 275 GFLOP/s.
    let task_ms = 1e3 * 400e6 / 16.0 / 2.6e11;
    let (p99, alone) = (o.sessions[0].p99_ms, urgent.sessions[0].p99_ms);
    assert!(p99 <= alone + task_ms, "{p99} {alone} {task_ms}");
    let left = 1.0 - urgent.devices[0].utilisation;
    let share = o.sessions[1].throughput / (background.sessions[0].throughput * left);
    assert!(share >= 0.8, "{share}");
}

#[test]
fn nonsense_is_refused_in_one_sentence() {
    let good = std::fs::read_to_string(folder().join("neighbour.toml")).unwrap();
    for (from, to, says) in [
        ("seconds = 26", "seconds = -1", "seconds"),
        ("seconds = 26", "seconds = nan", "seconds"),
        ("seconds = 26", "seconds = 1e9", "seconds"),
        ("machine = \"zen5-2core\"", "machine = \"abacus\"", "abacus"),
        (
            "machine = \"zen5-2core\"",
            "machine = \"zen5-2core\"\nworkers = 65",
            "workers",
        ),
        (
            "machine = \"zen5-2core\"",
            "machine = \"zen5-2core\"\ntruth = [\"soul=2x\"]",
            "soul",
        ),
        ("share = 0.3", "share = 7", "faults"),
        ("share = 0.3", "share = 0.3\nuntill = 3", "untill"),
        ("callers = 1", "callers = 1\nform = 3", "form"),
        (
            "kind = \"callers\"\ncallers = 1",
            "kind = \"poisson\"\nrate = 1e9",
            "traffic",
        ),
        (
            "kind = \"callers\"\ncallers = 1",
            "kind = \"poisson\"\nrate = 5e6",
            "requests",
        ),
        ("model = \"convnet\"", "model = \"other\"", "other"),
        ("mflop = 20", "mflop = -20", "conv"),
        ("times = 40", "times = 4000000000", "steps"),
        ("metric = \"lost\"\nmost = 0", "metric = \"lost\"", "expect"),
    ] {
        assert!(good.contains(from), "{from}");
        let text = good.replacen(from, to, 1);
        let error = Scenario::from_toml(&text).and_then(|s| {
            let s = Arc::new(s);
            WorkBackend::new(s).map(|_| ())
        });
        let error = error.expect_err(to).to_string();
        assert!(error.contains(says), "{to}: {error}");
    }
    assert!(Scenario::from_toml("").is_err());
    assert_eq!(read("neighbour").expect[0].metric, Metric::Throughput);
}
