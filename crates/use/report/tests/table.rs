//! Tables.
use shopfloor_report::{Align, Style, Table};

#[test]
fn columns_align_and_text_goes_on_in_a_second_line() {
    let mut t = Table::new(&[
        ("step", Align::Right),
        ("name", Align::Wrap),
        ("time", Align::Right),
    ]);
    t.row(vec![
        "0".into(),
        "/encoder/layer.11/attention/MatMul".into(),
        "1.20 us".into(),
    ]);
    t.row(vec!["10".into(), "x".into(), "12 ms".into()]);
    let text = t.render(Style {
        width: 30,
        color: false,
    });
    assert_eq!(text.lines().next(), Some("step  name                time"));
    assert_eq!(text.lines().nth(1), Some("   0  /encoder/        1.20 us"));
    assert_eq!(text.lines().nth(2), Some("      layer.11/"));
    assert_eq!(text.lines().nth(3), Some("      attention/"));
    assert_eq!(text.lines().nth(4), Some("      MatMul"));
    assert!(text.lines().all(|l| l.chars().count() <= 30), "{text}");
}

#[test]
fn what_does_not_fit_goes_on_under_its_row() {
    let mut t = Table::new(&[
        ("step", Align::Right),
        ("name", Align::Wrap),
        ("predicted", Align::Right),
        ("bytes", Align::Right),
        ("bound by", Align::Left),
    ]);
    let cells = |n: &[&str]| n.iter().map(|s| s.to_string()).collect();
    t.row(cells(&["0", "conv", "1.20 us", "3.20 KiB", "launch"]));
    t.row(cells(&["", "loop", "control"]));
    let text = t.render(Style {
        width: 30,
        color: false,
    });
    let want = "step  name  predicted\n         bytes  bound by\n   0  conv    1.20 us\n      \
                3.20 KiB  launch\n      loop    control\n";
    assert_eq!(text, want);
    // Where there is room, a row is one line.
    let wide = t.render(Style::default());
    assert_eq!(wide.lines().count(), 3, "{wide}");
}
