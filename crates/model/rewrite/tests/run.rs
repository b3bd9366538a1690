//! The table of passes.
use shopfloor_rewrite::PASSES;

#[test]
fn needs_are_established_before() {
    let mut have: Vec<&str> = Vec::new();
    for p in PASSES {
        for n in p.needs {
            assert!(have.contains(n), "{} needs '{n}'", p.name);
        }
        have.extend(p.establishes);
    }
}
