//! Decisions, grouped.
use plan::Why;
use shopfloor_report::Style;
use shopfloor_report::internals::grouped;

fn why(pass: &str, subject: &str, choice: &str, reason: &str) -> Why {
    Why {
        pass: pass.into(),
        subject: subject.into(),
        choice: choice.into(),
        alternatives: vec![],
        reason: reason.into(),
    }
}

#[test]
fn decisions_of_a_kind_are_counted() {
    let whys = [
        why("fuse", "relu_a", "fused with conv_a", "it is near"),
        why("fuse", "relu_b", "fused with conv_b", "it is near"),
        why("fuse", "softmax", "not fused with conv_b", "whole rows"),
        why(
            "schedule",
            "conv_a +1",
            "one task; 9x32",
            "predicted 1.2 us, bound by launch",
        ),
        why(
            "schedule",
            "conv_b +1",
            "one task; 8x48",
            "predicted 3 us, bound by launch",
        ),
        why("rewrite:views", "id", "done", "views of views merged"),
    ];
    let text = grouped(&whys, Style::default());
    for line in [
        "why: fuse (3 decisions)",
        "     2 x  fused with *: it is near",
        "          relu_a, relu_b",
        "     1 x  not fused with conv_b: whole rows",
        "     2 x  one task; *: predicted *, bound by launch",
        "     1 x  views of views merged",
    ] {
        assert!(text.lines().any(|l| l == line), "no '{line}' in\n{text}");
    }
    assert_eq!(grouped(&[], Style::default()), "");
}
