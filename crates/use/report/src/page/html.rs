//! The page around the data.

const TEMPLATE: &str = include_str!("report.html");
const STYLE: &str = include_str!("report.css");
const SCRIPTS: [&str; 6] = [
    include_str!("shared.js"),
    include_str!("core.js"),
    include_str!("time.js"),
    include_str!("lists.js"),
    include_str!("against.js"),
    include_str!("end.js"),
];

/// Text between tags.
fn text(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// JSON that may stand in a script element: nothing in it ends or opens a tag or a comment, and no
/// separator ends a line of a script. It is the same JSON, for these characters stand in its texts only.
pub(crate) fn inert(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + json.len() / 64);
    for c in json.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

/// The page of `model` that carries `json`.
pub fn page(model: &str, json: &str) -> String {
    filled(TEMPLATE, STYLE, &SCRIPTS, model, json)
}

/// A template with its style and scripts and what they show.
pub(crate) fn filled(
    template: &str,
    style: &str,
    scripts: &[&str],
    title: &str,
    json: &str,
) -> String {
    let mut out = String::with_capacity(json.len() + 100_000);
    // What is put in is not searched again: a model may be called %DATA%.
    let mut rest = template;
    while let Some(at) = rest.find('%') {
        let (head, tail) = rest.split_at(at);
        out.push_str(head);
        let (name, after) = match tail[1..].split_once('%') {
            Some((n, a)) => (n, a),
            None => ("", &tail[1..]),
        };
        match name {
            "TITLE" => out.push_str(&text(title)),
            "STYLE" => out.push_str(style),
            "DATA" => out.push_str(&inert(json)),
            "SCRIPT" => {
                out.push_str("(() => {");
                scripts.iter().for_each(|s| out.push_str(s));
                out.push_str("})();");
            }
            _ => {
                out.push('%');
                rest = &tail[1..];
                continue;
            }
        }
        rest = after;
    }
    out.push_str(rest);
    out
}
