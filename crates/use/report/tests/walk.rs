//! The walk: its captions and its page.
use crate::common::{scripts, style_and_code};
use machine::MachineKind;
use shopfloor_report::walk::{Figure, Picture, Scene, Walk, WalkStep};

#[test]
fn captions_name_figures() {
    let figure = |key, text: &str| Figure {
        key,
        name: String::new(),
        text: text.into(),
        value: None,
        formula: String::new(),
        source: String::new(),
    };
    let scene = Scene {
        id: "s",
        title: String::new(),
        beats: vec![],
        figures: vec![figure("a", "{b}"), figure("b", "two")],
        picture: Picture::None,
    };
    // What a figure says is not searched again.
    assert_eq!(scene.say("{a} and {b}."), "{b} and two.");
    assert_eq!(scene.say("{c} {} {a"), "{c} {} {a");
    assert_eq!(scene.say("{c{b}}"), "{ctwo}");
    assert_eq!(scene.say(""), "");
}

/// A walk without scenes through `model`, of which `note` is to be known.
fn walk(model: &str, note: &str) -> Walk {
    Walk {
        schema: Walk::SCHEMA,
        version: Walk::VERSION,
        tool: String::new(),
        model: model.into(),
        dims: String::new(),
        machine: String::new(),
        kind: MachineKind::Cpu,
        target: String::new(),
        device: None,
        note: note.into(),
        step: WalkStep {
            number: 0,
            of: 1,
            name: String::new(),
            nodes: vec![],
            family: String::new(),
            shapes: String::new(),
            schedule: String::new(),
            chosen: "",
        },
        scenes: vec![],
    }
}

#[test]
fn the_template_is_whole_and_reaches_nothing() {
    let page = walk("m</title><script>", "</script>%STYLE%")
        .html()
        .unwrap();
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(
        page.contains("\\u003c/script\\u003e%STYLE%"),
        "data is not searched"
    );
    for s in scripts("walk") {
        assert!(page.contains(&s));
    }
    let (style, code) = style_and_code(&page);
    for way in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "fetch(",
        "XMLHttpRequest",
        "import(",
    ] {
        assert!(!code.contains(way), "{way}");
    }
    let own = code.replace("http://www.w3.org/2000/svg", "");
    assert!(!own.contains("http"));
    assert!(!style.contains("@import") && !style.contains("http"));
    // What moves, moves by the walk's own time, which honours reduced motion.
    for way in ["transition", "animation", "@keyframes"] {
        assert!(!style.contains(way), "{way}");
    }
}
