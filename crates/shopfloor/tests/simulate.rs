//! Scenarios whose steps are those of real plans and whose proposals are the planner's.
use shopfloor::{SimulateOptions, replay, simulate};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// Logs of one run replay to its decisions, and a second run is the same.
#[test]
fn plans_in_virtual_time() {
    let path = folder().join("planned.toml");
    let options = SimulateOptions {
        log: true,
        ..SimulateOptions::default()
    };
    let s = simulate(&path, options).unwrap();
    let text = s.verdict.render(shopfloor::report::Style::default());
    let all = s.outcome.render(shopfloor::report::Style::default());
    assert!(s.verdict.holds(), "{all}\n{text}");
    assert!(s.outcome.promotions >= 1, "{all}");
    let kept = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kept.path(), &s.logs[0]).unwrap();
    let again = replay(kept.path()).unwrap();
    assert_eq!(again.differs_at, None);
    let made: Vec<_> = s
        .outcome
        .decisions
        .iter()
        .map(|d| d.decision.clone())
        .collect();
    assert_eq!(again.decisions, made);
}

#[test]
fn files_that_are_none_are_errors() {
    let no = |p: &Path| {
        simulate(p, SimulateOptions::default())
            .unwrap_err()
            .to_string()
    };
    assert!(no(Path::new("no-such.toml")).contains("no-such.toml"));
    let bad = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(bad.path(), "name = 3").unwrap();
    assert!(no(bad.path()).contains("scenario"));
    assert!(replay(bad.path()).is_err());
}
