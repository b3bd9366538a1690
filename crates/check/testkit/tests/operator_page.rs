//! docs/operators.md is what the code says. `SHOPFLOOR_BLESS=1` writes it, as `cargo xtask
//! operators` does.
#[test]
fn operator_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/operators.md");
    let page = testkit::operators::page();
    if std::env::var("SHOPFLOOR_BLESS").is_ok() {
        std::fs::write(path, &page).expect("docs/operators.md can be written");
    }
    let held = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        held == page,
        "docs/operators.md is out of date; write it with `cargo xtask operators`"
    );
}
