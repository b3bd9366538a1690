//! Whether the items of a batch influence each other.
use shopfloor_graph::Graph;

/// What a graph of input `x` [n, 4, 6], weight `w` [4, 6], index inputs and these lines says.
fn judged(lines: &str, output: &str) -> Result<(), String> {
    let max = "monoid max { identity: %0 = const -inf f32; out %0 } { lift: %0 = input 0 f32; out %0 } { combine: %0 = input 0 f32; %1 = input 1 f32; %2 = max %0 %1; out %2 } { finish: %0 = input 0 f32; out %0 }";
    let text = format!(
        "graph g\nsymbol n = input 0 axis 0\ninput %x: f32[n, 4, 6]\ninput %i: i64[n, 2]\nweight %w: f32[4, 6] @0\nweight %k: i64[2] @1 = 0, 3\n{}\noutput %{output}\n",
        lines.replace("MAX", max)
    );
    let graph = Graph::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    graph.items_apart("n")
}

fn add(shape: &str, a: &str, b: &str) -> String {
    format!(
        "%y: f32[{shape}] = map {{%0 = input 0 f32; %1 = input 1 f32; %2 = add %0 %1; out %2}} %{a}, %{b}"
    )
}

#[test]
fn what_stays_beside_the_batch_keeps_items_apart() {
    for lines in [
        add("n, 4, 6", "x", "w"),
        "%y: f32[n, 4] = reduce axes=[2] keep=false MAX %x".into(),
        "%y: f32[n, 6, 4] = permute [0, 2, 1] %x".into(),
        "%p: f32[4, n, 6] = permute [1, 0, 2] %x\n%y: f32[n, 4, 6] = permute [1, 0, 2] %p".into(),
        "%y: f32[4*n, 6] = reshape [4*n, 6] %x".into(),
        "%p: f32[4, n, 6] = permute [1, 0, 2] %x\n%r: f32[4*n, 3, 2] = reshape [4*n, 3, 2] %p\n%q: f32[4*n, 3] = reduce axes=[2] keep=false MAX %r\n%y: f32[4, n, 3] = reshape [4, n, 3] %q".into(),
        "%y: f32[n, 3, 6] = slice starts=[0, 1, 0] steps=[1, 1, 1] extents=[n, 3, 6] %x".into(),
        "%y: f32[n, 8, 6] = concat axis=1 %x, %x".into(),
        "%y: f32[n, 2, 6] = gather axis=1 %x, %k".into(),
        "%y: f32[n, 2, 6] = gather axis=0 %w, %i".into(),
        "%y: f32[n, 2, 6] = gather axis=1 batch=1 %x, %i".into(),
        "%y: f32[n, 4, 4] = contract bik,jk->bij %x, %w".into(),
        "%y: f32[n, 4, 4] = contract bik,bjk->bij %x, %x".into(),
        "%z: f32[n, 4, 6] = expand [n, 4, 6] %w\n%y: f32[n, 8, 6] = concat axis=1 %x, %z".into(),
    ] {
        assert_eq!(judged(&lines, "y"), Ok(()), "{lines}");
    }
}

#[test]
fn what_crosses_the_batch_is_told() {
    for (lines, why) in [
        (
            "%y: f32[4, 6] = reduce axes=[0] keep=false MAX %x",
            "reduces along the batch",
        ),
        (
            "%m: f32[1, 4, 6] = reduce axes=[0] keep=true MAX %x\n%y: f32[n, 4, 6] = map {%0 = input 0 f32; %1 = input 1 f32; %2 = add %0 %1; out %2} %x, %m",
            "reduces along the batch",
        ),
        (
            "%y: f32[2*n, 4, 6] = concat axis=0 %x, %x",
            "joins along the batch",
        ),
        (
            "%y: f32[n, 4, 6] = slice starts=[n - 1, 0, 0] steps=[-1, 1, 1] extents=[n, 4, 6] %x",
            "how many items",
        ),
        ("%y: f32[4, n, 6] = reshape [4, n, 6] %x", "mixes the batch"),
        (
            "%y: f32[2, 4, 6] = gather axis=0 %x, %k",
            "picks among the items",
        ),
        (
            "%y: f32[n, 2, 2, 6] = gather axis=1 %x, %i",
            "picks items by other items",
        ),
        (
            "%y: f32[n, 4, n, 4] = contract bik,cjk->bicj %x, %x",
            "different items together",
        ),
        (
            "%y: f32[4, 6] = contract bik,bik->ik %x, %x",
            "sums along the batch",
        ),
        (
            "%y: f32[n, 4, 6] = map {%0 = input 0 f32; %1 = index 0; %2 = cast %1 f32; %3 = add %0 %2; out %3} %x",
            "which item it is",
        ),
        (
            "%y: f32[n, 4, 6] = map {%0 = input 0 f32; %1 = dim n; %2 = cast %1 f32; %3 = div %0 %2; out %3} %x",
            "how many items",
        ),
        (
            "%y: f32[n, 4, 6], %j: i64[n, 4, 6] = sort axis=0 k=[n] descending=true %x",
            "how many items",
        ),
        (
            "%p: f32[4, n, 6] = permute [1, 0, 2] %x\n%q: f32[n, 4, 6] = permute [1, 0, 2] %p\n%r: f32[4*n, 6] = reshape [4*n, 6] %p\n%t: f32[4*n, 6] = reshape [4*n, 6] %q\n%y: f32[4*n, 6] = map {%0 = input 0 f32; %1 = input 1 f32; %2 = add %0 %1; out %2} %r, %t",
            "different items together",
        ),
        ("%y: f32[n, 4, 6] = host \"Softmax\" {} %x", "nobody knows"),
    ] {
        let told = judged(lines, "y").expect_err(lines);
        assert!(told.contains(why), "{told}, not {why}: {lines}");
    }
    // What no output needs does no harm, and an output without items does.
    let dead = format!(
        "%m: f32[4, 6] = reduce axes=[0] keep=false MAX %x\n{}",
        add("n, 4, 6", "x", "w")
    );
    assert_eq!(judged(&dead, "y"), Ok(()));
    assert!(judged("", "w").unwrap_err().contains("one for all"));
}

#[test]
fn branches_and_loops_are_followed() {
    let body = |line: &str| {
        format!(
            "%s: i64[] = map {{%0 = int 3 i64; out %0}}\n%c: bool[] = map {{%0 = int 1 bool; out %0}}\n%y: f32[n, 4, 6] = loop carried=1 has_trip=true has_cond=false %s, %c, %x {{\n  graph body\n  input %it: i64[]\n  input %go: bool[]\n  input %a: f32[n, 4, 6]\n{line}\n  output %go, %b\n}}"
        )
    };
    let apart = body("  %b: f32[n, 4, 6] = map {%0 = input 0 f32; %1 = exp %0; out %1} %a");
    assert_eq!(judged(&apart, "y"), Ok(()));
    let crossing = body(
        "  %m: f32[1, 4, 6] = reduce axes=[0] keep=true MAX %a\n  %b: f32[n, 4, 6] = map {%0 = input 0 f32; %1 = input 1 f32; %2 = add %0 %1; out %2} %a, %m",
    );
    assert!(judged(&crossing, "y").unwrap_err().contains("reduces"));
    let branch = |cond: &str| {
        format!(
            "{cond}\n%y: f32[n, 4, 6] = if %c, %x {{\n  graph then\n  input %a: f32[n, 4, 6]\n  %b: f32[n, 4, 6] = map {{%0 = input 0 f32; %1 = exp %0; out %1}} %a\n  output %b\n}} {{\n  graph else\n  input %a: f32[n, 4, 6]\n  output %a\n}}"
        )
    };
    let same = branch("%c: bool[] = map {%0 = int 1 bool; out %0}");
    assert_eq!(judged(&same, "y"), Ok(()));
    let by_items = branch(
        "%m: f32[] = reduce axes=[0, 1, 2] keep=false MAX %x\n%c: bool[] = map {%0 = input 0 f32; %1 = cast %0 bool; out %1} %m",
    );
    assert!(judged(&by_items, "y").unwrap_err().contains("reduces"));
}
