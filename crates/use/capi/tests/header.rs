//! Whether include/shopfloor.h is what cbindgen makes of this crate.

use std::path::Path;

const HEAD: &str = "/* shopfloor for C; docs/c.md explains it.
 *
 * Made of crates/use/capi by cbindgen; SHOPFLOOR_HEADER=write cargo test -p shopfloor-capi writes it anew.
 *
 * Functions that can fail give an error, or NULL. Text is UTF-8 and ends with a zero byte. Null pointers where none
 * may be, counts and lengths that do not fit, and wrong types are errors. Handles are freed by the function of
 * their name, once; what was freed must not be used. Sessions may be used by any number of threads at once.
 */";

fn made() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        header: Some(HEAD.into()),
        include_guard: Some("SHOPFLOOR_H".into()),
        cpp_compat: true,
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        documentation_style: cbindgen::DocumentationStyle::C,
        style: cbindgen::Style::Type,
        usize_is_size_t: true,
        line_length: 100,
        ..cbindgen::Config::default()
    };
    config.sort_by = cbindgen::SortKey::None;
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in [
        "error", "dtype", "options", "session", "request", "stream", "plan",
    ] {
        builder = builder.with_src(root.join(format!("src/{file}.rs")));
    }
    let mut out = Vec::new();
    builder.generate().expect("it is read").write(&mut out);
    String::from_utf8(out).expect("it is text")
}

#[test]
fn the_header_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/shopfloor.h");
    let made = made();
    if std::env::var("SHOPFLOOR_HEADER").is_ok_and(|v| v == "write") {
        std::fs::write(&path, &made).expect("it is written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "include/shopfloor.h is old; SHOPFLOOR_HEADER=write cargo test -p shopfloor-capi writes it anew"
    );
}
