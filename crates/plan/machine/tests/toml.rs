//! TOML that people write: which mistakes are named, and where.
use shopfloor_machine::toml::read;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    #[allow(dead_code)]
    size: u64,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    #[allow(dead_code)]
    name: String,
    #[allow(dead_code)]
    first: Part,
    #[allow(dead_code)]
    #[serde(default)]
    part: Vec<Part>,
}

#[test]
fn the_section_with_the_mistake_is_named() {
    let good = "name = \"a\"\n[first]\nsize = 1\n[[part]]\nsize = 2\n[[part]]\nsize = 3\n";
    assert!(read::<Whole>(good).is_ok());
    for (from, to, line, says) in [
        ("name = \"a\"\n", "", 1, "missing field `name`"),
        ("size = 1\n", "", 2, "missing field `size` (in [first])"),
        ("size = 2\n", "", 4, "missing field `size` (in [[part]])"),
        ("size = 3\n", "", 6, "missing field `size` (in [[part]])"),
        ("size = 2", "size = 2\nsise = 2", 6, "unknown field `sise`"),
        ("size = 2", "size = \"2\"", 5, "expected u64 (in [[part]])"),
        ("[first]", "[frist]", 2, "unknown field `frist`"),
        ("size = 2", "size 2", 5, "expected an equals"),
    ] {
        let e = read::<Whole>(&good.replacen(from, to, 1)).unwrap_err();
        assert_eq!(e.line, line, "{from:?} -> {to:?}: {e}");
        assert!(e.message.contains(says), "{from:?} -> {to:?}: {e}");
    }
}

/// Each line of a machine that gives something a value, and each section, with a mistake of its own.
#[test]
fn a_mistake_in_any_line_is_found_there() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("machines");
    for file in ["h100.toml", "core-i9-13900k.toml", "mi300x.toml"] {
        let good = std::fs::read_to_string(dir.join(file)).unwrap();
        let lines: Vec<&str> = good.lines().collect();
        for (n, line) in lines.iter().enumerate() {
            let (wrong, at, says) = match line.split_once(" = ") {
                Some((name, _)) => (format!("{name} = [[true]]"), n + 1, "invalid"),
                None if line.starts_with('[') => {
                    (format!("{line}\nsise = 1"), n + 2, "unknown field `sise`")
                }
                None => continue,
            };
            // The rest of an array over several lines would be a mistake of its own.
            if line.ends_with('[') {
                continue;
            }
            let mut text = lines.clone();
            text[n] = &wrong;
            let e = shopfloor_machine::Machine::from_toml(&text.join("\n"), "m").unwrap_err();
            let e = e.to_string();
            assert!(
                e.starts_with(&format!("m:{at}: ")) && e.contains(says),
                "{file}: {wrong}: {e}"
            );
        }
    }
}

#[test]
fn what_is_nested_without_end_is_refused() {
    let open = "[".repeat(1 << 20);
    let names = "a.".repeat(1 << 20);
    for text in [
        format!("\na = {open}"),
        format!("\na = {}", "{a=".repeat(1 << 20)),
        format!("\n{names}a = 1"),
        format!("\n[{names}a]"),
        format!("\na = [\"[\", '\"', {open}"),
        format!("\na = [\"\"\"\\\"\"\"\"\"\", {open}"),
    ] {
        let e = read::<Whole>(&text).unwrap_err();
        assert!(e.line == 2 && e.message.contains("write fewer"), "{e}");
    }
    let text = format!("name = \"{open}{names}\" # {open}\nfirst = {{ size = 1 }}\n");
    assert!(read::<Whole>(&text).is_ok());
}
