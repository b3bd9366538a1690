//! Machine files with mistakes: the error says the line and what is missing or wrong there.

use shopfloor_machine::{Machine, lookup};

/// Replaces the `nth` (from 0) `from` in `text`.
fn replaced(text: &str, from: &str, nth: usize, to: &str) -> String {
    let at = text.match_indices(from).nth(nth);
    let (at, _) = at.unwrap_or_else(|| panic!("`{from}` is not there {nth} times"));
    format!("{}{to}{}", &text[..at], &text[at + from.len()..])
}

/// What to replace, which of them, by what; text of the line blamed, text of the message.
const CASES: &[(&str, usize, &str, &str, &str)] = &[
    ("name = \"RTX-4090\"\n", 0, "", "", "missing field `name`"),
    (
        "kind = \"gpu\"",
        0,
        "kind = \"tpu\"",
        "kind",
        "expected `cpu` or `gpu`",
    ),
    (
        "[workers]\n",
        0,
        "[worker]\n",
        "[worker]",
        "unknown field `worker`",
    ),
    (
        "latency_s = ",
        1,
        "latency = ",
        "latency =",
        "unknown field `latency`",
    ),
    (
        "shared_by = 1\n",
        2,
        "",
        "[[levels]]",
        "missing field `shared_by` (in [[levels]])",
    ),
    (
        "shared_by = 1\n",
        2,
        "shared_by = 0\n",
        "shared_by = 0",
        "a private level says 1",
    ),
    (
        "line = 128",
        0,
        "line = \"128\"",
        "line =",
        "invalid type: string",
    ),
    (
        "src = \"spec\"",
        3,
        "src = \"web\"",
        "web",
        "expected one of `spec`, `measured`",
    ),
    (
        "class = \"tensor\"",
        0,
        "class = \"matrix\"",
        "matrix",
        "unknown variant `matrix`",
    ),
    (
        "dtype_in = \"tf32\"",
        0,
        "dtype_in = \"tf19\"",
        "tf19",
        "unknown variant `tf19`",
    ),
    (
        "tile = [16, 8, 16]",
        0,
        "tile = [16, 0, 16]",
        "tile = [16, 0",
        "extent of 0",
    ),
    (
        "tile = [16, 8, 16]",
        0,
        "tile = [16, 8]",
        "tile = [16, 8]",
        "invalid length 2",
    ),
    (
        "name = \"L2\"",
        0,
        "name = \"L1\"",
        "name = \"L1\"",
        "two levels called `L1`",
    ),
    (
        "same_place_as = \"shared\"",
        0,
        "same_place_as = \"smem\"",
        "smem",
        "no other level",
    ),
    (
        "from = \"device\"",
        0,
        "from = \"hbm\"",
        "hbm",
        "no level is called `hbm`",
    ),
    (
        "warp = { v = 32",
        0,
        "warp = { v = 0",
        "warp =",
        "0 would let nothing run",
    ),
    (
        "[0, 8192, ",
        0,
        "[8192, 0, ",
        "shared_carveouts",
        "sizes must rise",
    ),
    (
        "bits = { v = 384",
        0,
        "bits = { v = 0",
        "bus =",
        "0 data pins",
    ),
    (
        "power_w = { v = 450.0",
        0,
        "power_w = { v = -450.0",
        "power_w",
        "above 0",
    ),
    (
        "launch_s = { v = 0.000005",
        0,
        "launch_s = { v = nan",
        "launch_s",
        "not finite",
    ),
    (
        "[costs]\n",
        0,
        "[costs\n",
        "[costs",
        "expected a right bracket",
    ),
    (
        "cc = 89\n",
        0,
        "cc = 89\ncc = 90\n",
        "cc = 90",
        "duplicate key",
    ),
];

#[test]
fn the_line_and_the_mistake_are_named() {
    let good = std::fs::read_to_string(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("machines/rtx-4090.toml"),
    )
    .unwrap();
    assert_eq!(
        Machine::from_toml(&good, "m.toml").unwrap(),
        lookup("rtx 4090").unwrap()
    );
    for (from, nth, to, line, message) in CASES {
        let from = if good.contains(from) {
            from.to_string()
        } else {
            // The writer's form of five microseconds.
            from.replace("0.000005", "5e-6")
        };
        let bad = replaced(&good, &from, *nth, to);
        let e = Machine::from_toml(&bad, "m.toml").unwrap_err().to_string();
        assert!(e.contains(message), "{to:?}: got {e}\nwant {message}");
        let number = e
            .strip_prefix("m.toml:")
            .and_then(|e| e.split(':').next())
            .and_then(|n| n.parse::<usize>().ok());
        let number = number.unwrap_or_else(|| panic!("no line in {e}"));
        let blamed = bad.lines().nth(number - 1).unwrap_or("");
        assert!(blamed.contains(line), "{to:?}: {e}\nblames: {blamed}");
    }
    for (text, message) in [
        ("", "m.toml:1: missing field `name`"),
        ("name = \"x\"\nkind = \"gpu\"\n", "missing field `isa`"),
        ("\u{feff}{}", "m.toml:1: "),
    ] {
        let e = Machine::from_toml(text, "m.toml").unwrap_err().to_string();
        assert!(e.contains(message), "{e}");
    }
    let e = Machine::load("/no/such/machine.toml")
        .unwrap_err()
        .to_string();
    assert!(e.contains("/no/such/machine.toml"), "{e}");
}
