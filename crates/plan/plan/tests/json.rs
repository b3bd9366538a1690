use shopfloor_plan::json::{compact, indented};

#[test]
fn indented_text_is_what_the_library_writes() {
    let values = [
        serde_json::json!({}),
        serde_json::json!([[], {}, [[]], "a\\\"b[],:{}", "\\", {"a,b": [1.5e300, -0.0, null]}]),
        serde_json::json!({"x": {"y": [], "z": {"é": "\n\t\u{1}"}}, "empty": ""}),
        serde_json::json!("text"),
    ];
    for v in values {
        let expected = serde_json::to_string_pretty(&v).unwrap();
        assert_eq!(indented(&compact(&v).unwrap()), expected);
    }
}
