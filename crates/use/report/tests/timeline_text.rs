//! The timeline in the terminal and in traces.
use plan::{Span, Timeline};
use shopfloor_report::internals::letters;
use shopfloor_report::{Profile, ProfileInput, Style, chrome_trace, perfetto_trace, timeline_text};
use std::collections::BTreeSet;

#[test]
fn busy_columns_and_their_families() {
    let set: BTreeSet<&str> = ["contract", "conv", "map", "move"].into();
    let l = letters(&set);
    let all: BTreeSet<char> = l.values().copied().collect();
    assert_eq!((all.len(), l["contract"], l["map"]), (4, 'c', 'm'));
    let span = |worker, start_ns, end_ns| Span {
        step: 0,
        worker,
        first_task: worker,
        tasks: 1,
        start_ns,
        end_ns,
    };
    let t = Timeline {
        steps: vec!["unknown".into()],
        spans: vec![span(0, 0, 8800), span(1, 4400, 4450)],
        total_ns: 9000,
        ..Timeline::default()
    };
    let p = Profile::new(ProfileInput {
        model: "m",
        device: "cpu",
        machine: "x",
        threads: 2,
        warmup: 0,
        steps: vec![],
        timelines: &[],
        fates: &[],
        dims: String::new(),
    });
    let style = Style {
        width: 100,
        color: false,
    };
    let text = timeline_text(&p, &t, style);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], format!("  worker 0  {}", "█".repeat(88)));
    assert_eq!(lines[3], format!("  worker 1  {}▄", " ".repeat(44)));
    assert_eq!(lines[4].trim(), "?");
    assert!(lines.iter().all(|l| l.chars().count() <= 100));
    assert_eq!(timeline_text(&p, &Timeline::default(), style), "");
    // A decision stands in every form of the timeline, with its reason.
    let why = plan::Why {
        pass: "promoted".into(),
        subject: "digits".into(),
        choice: "another fusion".into(),
        alternatives: vec![plan::Alternative {
            what: "as it is".into(),
            predicted_s: 2e-3,
        }],
        reason: "better by 4 standard deviations".into(),
    };
    let t = Timeline {
        marks: vec![plan::Mark { at_ns: 5000, why }],
        ..t
    };
    let text = timeline_text(&p, &t, style);
    let said = "at 5.00 us promoted digits: another fusion (better by 4 standard deviations)";
    assert!(text.contains(said), "{text}");
    let json: serde_json::Value = serde_json::from_str(&chrome_trace(&p, &t)).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let e = events.iter().find(|e| e["ph"] == "i").unwrap();
    assert_eq!(e["name"], "promoted digits: another fusion");
    assert_eq!((&e["ts"], &e["cat"]), (&5.0.into(), &"decision".into()));
    assert_eq!(e["args"]["reason"], "better by 4 standard deviations");
    assert_eq!(e["args"]["alternatives"][0]["what"], "as it is");
    let pb = perfetto_trace(&p, &t);
    for text in ["decisions", "another fusion", "better by 4", "as it is"] {
        let found = pb.windows(text.len()).any(|w| w == text.as_bytes());
        assert!(found, "{text}");
    }
}
