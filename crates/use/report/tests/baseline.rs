//! Reports to compare with.
use shopfloor_report::internals::page;
use shopfloor_report::page::Baseline;

#[test]
fn what_can_be_compared_with() {
    let step = r#"{"name":"s","nodes":["a"],"family":"row","bound":"launch","predicted_us":2.0}"#;
    let plan = format!(r#"{{"model":"m","machine":"M","steps":[{step}]}}"#);
    let a = Baseline::read(&plan).unwrap();
    assert_eq!((a.label.as_str(), a.measured), ("M", false));
    assert_eq!(a.steps[0].time_us, 2.0);
    let run = plan.replace("\"family\"", "\"time_us\":3.0,\"family\"");
    let run = run.replace("\"machine\"", "\"device\":\"cpu\",\"machine\"");
    let a = Baseline::read(&run).unwrap();
    assert_eq!((a.label.as_str(), a.steps[0].time_us), ("cpu", 3.0));
    let page = page("m", &plan);
    assert_eq!(Baseline::read(&page).unwrap().steps.len(), 1);
    for (bad, says) in [
        ("", "no JSON"),
        ("[1]", "no steps"),
        ("<p>", "carries no report"),
        (r#"{"steps":[{}]}"#, "no time"),
        (
            r#"{"schema":"shopfloor-report","version":2,"steps":[]}"#,
            "reads shopfloor-report 1",
        ),
    ] {
        let e = Baseline::read(bad).unwrap_err().to_string();
        assert!(e.contains(says) && e.contains("--report"), "{bad}: {e}");
    }
}
