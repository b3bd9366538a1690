//! The report page without a browser: what it carries, its size, its colours.

use crate::common;

use common::{HOSTILE, hostile, large, measured, page, plan};
use serde_json::Value;
use shopfloor_report::page::Baseline;
use std::path::Path;

/// The JSON between a page's tags.
fn carried(html: &str) -> Value {
    let data = html.split("id=\"data\">").nth(1).unwrap();
    serde_json::from_str(data.split("</script>").next().unwrap()).unwrap()
}

#[test]
fn the_data_is_as_it_was() {
    let plan = plan();
    let m = measured(&plan);
    let html = page(&plan, Some(&m)).html().unwrap();
    let text = serde_json::to_string_pretty(&carried(&html)).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/report.json");
    if std::env::var_os("SHOPFLOOR_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    let differs = golden.lines().zip(text.lines()).find(|(a, b)| a != b);
    assert!(
        golden == text,
        "the page carries other data than tests/data/report.json, first {differs:?}; if that is meant, run with SHOPFLOOR_BLESS=1, and raise PageData::VERSION where a key changed its meaning"
    );
}

/// Every key that appears anywhere, with those of nested objects behind dots.
fn keys(v: &Value, at: &str, out: &mut std::collections::BTreeSet<String>) {
    match v {
        Value::Object(o) => {
            for (k, v) in o {
                let at = match at.is_empty() {
                    true => k.clone(),
                    false => format!("{at}.{k}"),
                };
                out.insert(at.clone());
                keys(v, &at, out);
            }
        }
        Value::Array(a) => a.iter().for_each(|v| keys(v, at, out)),
        _ => {}
    }
}

#[test]
fn every_key_is_documented() {
    let doc = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/report.md");
    let doc = std::fs::read_to_string(doc).unwrap();
    let plan = plan();
    let m = measured(&plan);
    let data = page(&plan, Some(&m))
        .with_against(Baseline::read(&page(&plan, None).json().unwrap()).unwrap());
    let mut all = Default::default();
    keys(&serde_json::to_value(&data).unwrap(), "", &mut all);
    let missing: Vec<&String> = all
        .iter()
        .filter(|k| {
            let last = k.rsplit('.').next().unwrap();
            // Sourced numbers have these two everywhere.
            !matches!(last, "v" | "src") && !doc.contains(&format!("`{last}`"))
        })
        .collect();
    assert!(
        missing.is_empty(),
        "docs/report.md does not say what these are: {missing:?}"
    );
    assert!(doc.contains(&format!(
        "version {}",
        shopfloor_report::page::PageData::VERSION
    )));
}

#[test]
fn figures_are_those_of_plan_and_profile() {
    let plan = plan();
    let m = measured(&plan);
    let data = carried(&page(&plan, Some(&m)).html().unwrap());
    let profile = serde_json::to_value(&m.0).unwrap();
    for key in ["predicted_us", "flop", "device"] {
        assert_eq!(data[key], profile[key], "{key}");
    }
    assert_eq!(data["measured"]["request_us"], profile["request_us"]);
    let (a, b) = (
        data["steps"].as_array().unwrap(),
        profile["steps"].as_array().unwrap(),
    );
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        for key in [
            "number",
            "name",
            "family",
            "shapes",
            "schedule",
            "predicted_us",
            "flop",
            "bound",
            "reason",
        ] {
            assert_eq!(a[key], b[key], "{key}");
        }
        for key in ["time_us", "error", "runs", "workers"] {
            assert_eq!(a["measured"][key], b[key], "{key}");
        }
    }
    // A sentence that says how long, and bound by what.
    let s = data["sentence"].as_str().unwrap();
    assert!(
        s.contains("A request takes") && s.contains("bound by") && s.contains("Most would help"),
        "{s}"
    );
    // What lies in the arena is alive from a step to a step.
    let arena = data["buffers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|b| b["kind"] == "arena");
    for b in arena {
        assert!(b["first"].as_u64() <= b["last"].as_u64(), "{b}");
    }
}

#[test]
fn two_reports_side_by_side() {
    let plan = plan();
    let m = measured(&plan);
    let ran = page(&plan, Some(&m));
    let other = Baseline::read(&page(&plan, None).html().unwrap()).unwrap();
    assert!(!other.measured && other.steps.len() == ran.steps.len());
    let back = Baseline::read(&ran.clone().with_against(other).html().unwrap()).unwrap();
    assert!(back.measured);
    assert_eq!(back.label, "cpu (cpu-avx512)");
    assert_eq!(
        back.steps[0].time_us,
        ran.steps[0].measured.unwrap().time_us
    );
}

#[test]
fn names_stay_names() {
    let plan = hostile();
    let m = measured(&plan);
    let html = page(&plan, Some(&m)).html().unwrap();
    assert_eq!(html.matches("<script").count(), 2);
    assert_eq!(html.matches("</script>").count(), 2);
    // The template has none, and nothing opens one.
    assert_eq!(html.matches("<!--").count(), 0);
    assert_eq!(html.matches("<img").count(), 0);
    assert_eq!(carried(&html)["model"], HOSTILE);
}

#[test]
fn a_thousand_steps_fit() {
    if !testing::turn("a_thousand_steps_fit") {
        return;
    }
    let plan = large(1000);
    let m = measured(&plan);
    let html = page(&plan, Some(&m)).html().unwrap();
    assert_eq!(carried(&html)["steps"].as_array().unwrap().len(), 1000);
    assert!(html.len() < 3_000_000, "{} bytes", html.len());
}

/// Relative luminance of `#rrggbb`, as WCAG 2 defines it.
fn luminance(hex: &str) -> f64 {
    let part = |i: usize| {
        let v = f64::from(u8::from_str_radix(&hex[i..i + 2], 16).unwrap()) / 255.0;
        if v <= 0.04045 {
            v / 12.92
        } else {
            ((v + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
}

/// Text and what is told apart by its shape stand out from their ground in both themes of `css`.
fn readable(css: &str, pairs: &[(&str, &str)]) {
    let themes: Vec<&str> = css.split(":root {").skip(1).take(2).collect();
    assert_eq!(themes.len(), 2);
    for theme in themes {
        let theme = theme.split('}').next().unwrap();
        let of = |name: &str| {
            let at = theme
                .find(&format!("--{name}: #"))
                .unwrap_or_else(|| panic!("{name}"));
            theme[at + name.len() + 4..][..7].to_string()
        };
        let ratio = |a: &str, b: &str| {
            let (a, b) = (luminance(&of(a)), luminance(&of(b)));
            (a.max(b) + 0.05) / (a.min(b) + 0.05)
        };
        for &(text, on) in pairs {
            let r = ratio(text, on);
            assert!(r >= 4.5, "{text} on {on}: {r:.2}");
        }
        // What is told apart by its shape has to stand out from the ground too.
        assert!(ratio("focus", "bg") >= 3.0 && ratio("accent", "soft") >= 3.0);
    }
}

/// Text on its ground.
const PAIRS: [(&str, &str); 6] = [
    ("ink", "bg"),
    ("ink", "raised"),
    ("muted", "bg"),
    ("muted", "raised"),
    ("accent", "bg"),
    ("on-accent", "accent"),
];

#[test]
fn text_can_be_read_in_both_themes() {
    let css = include_str!("../src/page/report.css");
    readable(css, &PAIRS);
    // Nothing moves by itself.
    assert!(
        !css.contains("transition") && !css.contains("animation") && !css.contains("@keyframes")
    );
    assert!(
        css.contains("prefers-reduced-motion: no-preference) { html { scroll-behavior: smooth")
    );
}

#[test]
fn the_walk_can_be_read_in_both_themes() {
    let mut pairs = PAIRS.to_vec();
    // What is lit, and the scene that is shown.
    pairs.extend([("ink", "lit"), ("muted", "lit"), ("ink", "soft")]);
    readable(include_str!("../src/walk/walk.css"), &pairs);
}
