//! The walk's page around its data.

const TEMPLATE: &str = include_str!("walk.html");
const STYLE: &str = include_str!("walk.css");
const SCRIPTS: [&str; 5] = [
    include_str!("../page/shared.js"),
    include_str!("core.js"),
    include_str!("drawings.js"),
    include_str!("gpu.js"),
    include_str!("play.js"),
];

/// The page of a walk through `model` that carries `json`.
pub(super) fn page(model: &str, json: &str) -> String {
    crate::page::filled(TEMPLATE, STYLE, &SCRIPTS, model, json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_whole_and_reaches_nothing() {
        let page = page("m</title><script>", "{\"a\":\"</script>%STYLE%\"}");
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(
            page.contains("\\u003c/script\\u003e%STYLE%"),
            "data is not searched"
        );
        for s in SCRIPTS {
            assert!(page.contains(s) && !s.contains("</script"));
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
                assert!(!s.contains(way), "{way}");
            }
            assert!(!s.replace("http://www.w3.org/2000/svg", "").contains("http"));
        }
        assert!(
            !STYLE.contains("</style") && !STYLE.contains("@import") && !STYLE.contains("http")
        );
        // What moves, moves by the walk's own time, which honours reduced motion.
        for way in ["transition", "animation", "@keyframes"] {
            assert!(!STYLE.contains(way), "{way}");
        }
    }
}
