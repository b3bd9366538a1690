//! The report page around its data.
use crate::common::{scripts, style_and_code};
use shopfloor_report::internals::page;

#[test]
fn names_cannot_leave_their_place() {
    let hostile = "</script><script>alert(1)</script><!-- \u{2028}\u{2029} & %DATA% %SCRIPT% ]]>";
    let json = serde_json::json!({ "model": hostile, "list": [hostile] }).to_string();
    let page = page(hostile, &json);
    let data = page.split("id=\"data\">").nth(1).unwrap();
    let data = data.split("</script>").next().unwrap();
    assert!(
        !data.contains(['<', '>', '&', '\u{2028}', '\u{2029}']),
        "{data}"
    );
    let back: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(back["model"], hostile);
    assert_eq!(back["list"][0], hostile);
    assert_eq!(page.matches("alert(1)").count(), 3, "title, model, list");
    assert!(page.contains("<title>&lt;/script&gt;"));
    // Three elements of script are ours: data, code, and none besides.
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</script>").count(), 2);
}

#[test]
fn the_template_is_whole() {
    let page = page("m", "{}");
    assert!(!page.contains("%STYLE%") && !page.contains("%SCRIPT%") && !page.contains("%DATA%"));
    for s in scripts("page") {
        assert!(page.contains(&s));
    }
    let (style, code) = style_and_code(&page);
    // Names are shown as text: nothing that parses markup or code is used.
    for way in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
    ] {
        assert!(!code.contains(way), "{way}");
    }
    for net in ["http://", "https://", "fetch(", "XMLHttpRequest", "import("] {
        let own = code.replace("http://www.w3.org/2000/svg", "");
        assert!(!own.contains(net), "{net}");
    }
    assert!(!style.contains("@import") && !style.contains("http"));
}
