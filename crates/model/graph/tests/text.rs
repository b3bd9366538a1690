//! The text form reads back to an equal graph, and broken graphs are rejected by name.
use proptest::prelude::*;
use shopfloor_graph::*;

const EXAMPLE: &str = r#"graph main
symbol batch = input 0 axis 0
symbol late.d0 = late %found axis 0
input %x: f32[batch, 64]
weight %w: f32[64, 10] @0
weight %shape: i64[2] @1 = 2, -1
weight %scale: f32[2] @3 = 1.0, 0.333
%y: f32[batch, 10] = contract mk,kn->mn %x, %w  # MatMul_3:MatMul
%z: f32[batch, 10] = map {%0 = input 0 f32; %1 = neg %0; out %1} %y  # a:Neg "b c:\"d\"":Exp
%s: i64[2]{batch, 10} = map {%0 = index 0; %1 = dim batch; %2 = int 10 i64; %3 = int 0 i64; %4 = eq %0 %3; %5 = select %4 %1 %2; out %5}
%"odd name, 1": f32[10, batch] = permute [1, 0] %z
%c: f32[5, batch] = slice starts=[1, 0] steps=[2, 1] extents=[5, batch] %"odd name, 1"
%top: f32[5, 2], %at: i64[5, 2] = sort axis=1 k=[2] descending=true %c
%sum: f32[5] = reduce axes=[1] keep=false monoid sum { identity: %0 = const 0.0 f32; out %0 } { lift: %0 = input 0 f32; out %0 } { combine: %0 = input 0 f32; %1 = input 1 f32; %2 = add %0 %1; out %2 } { finish: %0 = input 0 f32; out %0 } %top
%g: f32[5, 5, 2] = gather axis=1 %top, %at
%own: f32[5, 2] = gather axis=1 batch=1 %top, %at
%found: i64[late.d0] = host "NonZero" {"axis":{"int":1}} %g  # nz:NonZero
%cond: bool[] = map {%0 = int 1 bool; out %0}
%picked: f32[5] = if %cond, %sum {  # if_1:If
  graph then
  input %a: f32[5]
  %b: f32[5] = map {%0 = input 0 f32; %1 = exp %0; out %1} %a
  output %b
} {
  graph else
  input %a: f32[5]
  weight %v: f32[5] @2 = 1.0, 2.5, 3.0, -inf, 1e-30
  %b: f32[5] = map {%0 = input 0 f32; %1 = input 1 f32; %2 = mul %0 %1; out %2} %a, %v
  output %b
}
output %picked, %found
"#;

#[test]
fn round_trip() {
    let g = Graph::parse(EXAMPLE).unwrap();
    g.verify().unwrap();
    assert_eq!(g.to_text(), EXAMPLE);
    assert_eq!(Graph::parse(&g.to_text()).unwrap(), g);
}

#[test]
fn every_attribute_survives() {
    let t = r#"graph ops
symbol n = input 0 axis 0
input %x: f32[n, 4, 9, 9]
weight %w: f32[8, 2, 3, 3] @0
%a: f32[n, 8, 4, 4] = conv kernel=[3, 3] strides=[2, 2] dilations=[1, 1] before=[0, 0] after=[0, 0] groups=2 transposed=false %x, %w
%b: f32[n, 4, 10, 9] = pool average_with_pad kernel=[2, 1] strides=[1, 1] dilations=[1, 1] before=[1, 0] after=[1, 0] %x
%c: f32[n, 4, 9, 9] = pool lp p=2 kernel=[1, 1] strides=[1, 1] dilations=[1, 1] before=[0, 0] after=[0, 0] %x
%d: f32[n + 1, 4, 9, 9] = pad before=[1, 0, 0, 0] after=[0, 0, 0, 0] mode=edge %c
%e: f32[2*n + 1, 4, 9, 9] = concat axis=0 %c, %d
%f: f32[n, 4, 9, 9] = scan axis=2 exclusive=true reverse=false monoid sum { identity: %0 = const 0.0 f32; out %0 } { lift: %0 = input 0 f32; out %0 } { combine: %0 = input 0 f32; %1 = input 1 f32; %2 = add %0 %1; out %2 } { finish: %0 = input 0 f32; out %0 } %c
%g: f32[n, 4, 9, 9] = attention {%0 = input 0 f32; %1 = const 0.5 f32; %2 = mul %0 %1; out %2} %c, %c, %f
%g1: f32[n, 4, 9, 9] = attention undefined=zero_unseen {%0 = input 0 f32; out %0} %c, %c, %g
%g2: f32[n, 4, 9, 9] = attention undefined=zero {%0 = input 0 f32; out %0} %c, %c, %g1
%h: f32[n, 4, 18, 9] = resample {"mode":"linear","coordinates":"half_pixel","scales":[1.0,1.0,2.0,1.0],"antialias":false,"exclude_outside":false} %g2
%i: f32[3, n, 4, 9, 9] = expand [3, n, 4, 9, 9] %g
%j: f32[n, 324] = reshape [n, 324] %c
%k: f32[n, n] = contract <1><2>,<3><2>-><1><3> %j, %j
weight %r: f32[1, 12, 324] @1
weight %q: f32[1, 12, 3] @2
%l: f32[n, 1, 324] = reshape [n, 1, 324] %j
%m: f32[n, 1, 1, 3], %m1: f32[1, 1, 3], %m2: f32[1, 1, 3] = recurrent {"kind":"lstm","hidden":3,"direction":"forward","batch_first":false,"present":[true,true,true,false,false,false,false,false],"activations":["Sigmoid","Tanh","Tanh"],"alphas":[],"betas":[],"clip":null,"linear_before_reset":false,"input_forget":false} %l, %r, %q
%o: f32[n, n] = scatter_nd add %k, %p, %u
output %a, %b, %e, %h, %i, %k, %m, %m1, %m2
"#;
    let t = t.replace("%o: f32[n, n] = scatter_nd add %k, %p, %u\n", "");
    let g = Graph::parse(&t).unwrap();
    g.verify().unwrap();
    assert_eq!(g.to_text(), t);
}

#[test]
fn faults_are_named() {
    let g = |body: &str| {
        let t = format!("graph g\ninput %x: f32[2, 3]\n{body}");
        Graph::parse(&t)
            .and_then(|g| g.verify())
            .unwrap_err()
            .to_string()
    };
    for (body, part) in [
        ("output %y", "%y is not defined"),
        (
            "%y: f32[3, 3] = permute [1, 0] %x\noutput %y",
            "shape [3, 2]",
        ),
        (
            "%y: i64[3, 2] = permute [1, 0] %x\noutput %y",
            "i64 is declared",
        ),
        ("%x: f32[3, 2] = permute [1, 0] %x\noutput %x", "twice"),
        ("%y: f32[n, 3] = reshape [n, 3] %x\noutput %y", "symbol 'n'"),
        ("%y: f32[2] = host \"A\" {\"a\": } %x\noutput %y", "line 3"),
        (
            "%y: f32[2, 3] = map {%0 = input 1 f32; out %0} %x\noutput %y",
            "argument 1",
        ),
        (
            "weight %w: f32[9999999999, 9999999999] @0\noutput %x",
            "fit",
        ),
        (
            "weight %w: f32[9999999, 99999] @0\noutput %x",
            "give the weights",
        ),
        ("output %x\noutput %x", "nothing may follow"),
        (
            "%y: f32[2] = if %x {\ngraph a\noutput\n}\noutput %y",
            "expected '} {'",
        ),
    ] {
        let e = g(body);
        assert!(e.contains(part), "{body}: {e}");
    }
    let mut bad = Graph::parse(EXAMPLE).unwrap();
    bad.nodes.swap(0, 1);
    assert!(bad.verify().is_err());
    let mut bad = Graph::parse(EXAMPLE).unwrap();
    bad.nodes[0].inputs[0] = ValueId(9999);
    assert!(
        bad.verify()
            .unwrap_err()
            .to_string()
            .contains("not defined")
    );
    assert!(bad.to_text().contains("%?"));
    let mut bad = Graph::parse(EXAMPLE).unwrap();
    bad.outputs.push(ValueId(4000));
    assert!(bad.verify().is_err());
}

proptest! {
    /// Whatever a text holds, reading and checking it ends without a panic.
    #[test]
    fn mutations_never_panic(cuts in prop::collection::vec((0usize..4000, "[%0-9a-z=\\[\\]{}, \"#-]{0,3}", 0usize..6), 1..5)) {
        let mut t = EXAMPLE.to_string();
        for (at, put, drop) in cuts {
            let at = at % t.len();
            let end = (at + drop).min(t.len());
            if t.is_char_boundary(at) && t.is_char_boundary(end) {
                t.replace_range(at..end, &put);
            }
        }
        if let Ok(g) = Graph::parse(&t) {
            let _ = g.verify();
            let _ = g.to_text();
        }
    }
}
