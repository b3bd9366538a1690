//! Branches of a sum that come into one kernel.
use crate::build::parsed;
use graph::{Graph, Origin};
use plan::{ItemWork, Program, Segment};

/// The program of a graph whose nodes have the names of their results.
fn named(text: &str) -> Program {
    let mut graph = Graph::parse(text).unwrap();
    for i in 0..graph.nodes.len() {
        let out = graph.nodes[i].outputs[0];
        let name = graph.value(out).name.clone();
        graph.nodes[i].origins = vec![Origin {
            name,
            op_type: String::new(),
        }];
    }
    shopfloor_planner::program(&graph, &Default::default()).unwrap()
}

fn kernels(text: &str) -> Vec<String> {
    let p = parsed(text);
    let items = p.segments.iter().flat_map(Segment::items);
    let kernel = |i: &plan::Item| match &i.work {
        ItemWork::Kernel { kernel, .. } => {
            Some(format!("{:?} {}", kernel.family, kernel.operands.len()))
        }
        _ => None,
    };
    items.filter_map(kernel).collect()
}

#[test]
fn branches_of_a_sum_are_one_kernel() {
    let text = "graph rotated
input %x: f32[2, 64]
input %c: f32[64]
input %s: f32[64]
weight %places: i64[2] @0 = 1, 0
%a: f32[2, 64] = map {%0 = input 0 f32; %1 = input 1 f32; %2 = mul %0 %1; out %2} %x, %c
%h: f32[2, 2, 32] = reshape [2, 2, 32] %x
%g: f32[2, 2, 32] = gather axis=1 %h, %places
%r: f32[2, 64] = reshape [2, 64] %g
%b: f32[2, 64] = map {%0 = input 0 f32; %1 = input 1 f32; %2 = mul %0 %1; out %2} %r, %s
%y: f32[2, 64] = map {%0 = input 0 f32; %1 = input 1 f32; %2 = add %0 %1; out %2} %a, %b
output %y
";
    // x twice, once through its places, c, s and the sum.
    assert_eq!(kernels(text), ["Map 6"]);
}

#[test]
fn what_others_read_and_what_is_computed_once_stays_apart() {
    let text = "graph apart
input %x: f32[2, 64]
weight %w: f32[2, 64] @0
%a: f32[2, 64] = map {%0 = input 0 f32; %1 = exp %0; out %1} %w
%b: f32[2, 64] = map {%0 = input 0 f32; %1 = neg %0; out %1} %x
%y: f32[2, 64] = map {%0 = input 0 f32; %1 = input 1 f32; %2 = add %0 %1; out %2} %a, %b
output %y
";
    assert_eq!(kernels(text), ["Map 3"]);
}

/// A sum of a constant is made when the model is loaded, also where it has as many rows as what it is added to.
#[test]
fn sums_of_constants_stay_apart() {
    let text = "graph sums
input %x: f32[64, 64]
weight %w: f32[64, 64] @0
%s: f32[1, 64] = reduce axes=[0] keep=true monoid sum { identity: %0 = const 0.0 f32; out %0 } { lift: %0 = input 0 f32; out %0 } { combine: %0 = input 0 f32; %1 = input 1 f32; %2 = add %0 %1; out %2 } { finish: %0 = input 0 f32; out %0 } %w
%y: f32[64, 64] = map {%0 = input 0 f32; %1 = input 1 f32; %2 = add %0 %1; out %2} %x, %s
output %y
";
    assert_eq!(kernels(text), ["Map 3"]);
}

/// What a norm of one row multiplies by is a constant with as many elements as the row, which is made when the model
/// is loaded, and keeps no node of the norm from the others.
#[test]
fn a_norm_of_one_row_is_one_kernel() {
    let sum = "monoid sum { identity: %0 = const 0.0 f32; out %0 } { lift: %0 = input 0 f32; out %0 } { combine: %0 = input 0 f32; %1 = input 1 f32; %2 = add %0 %1; out %2 } { finish: %0 = input 0 f32; out %0 }";
    let of = |rows: usize| {
        format!(
            "graph norm
input %x: f32[{rows}, 64]
weight %w: bf16[64] @0
%s: f32[{rows}, 64] = map {{%0 = input 0 f32; %1 = mul %0 %0; out %1}} %x
%v: f32[{rows}, 1] = reduce axes=[1] keep=true {sum} %s
%g: f32[64] = map {{%0 = input 0 bf16; %1 = cast %0 f32; out %1}} %w
%y: f32[{rows}, 64] = map {{%0 = input 0 f32; %1 = input 1 f32; %2 = input 2 f32; %3 = mul %0 %1; %4 = mul %2 %3; out %4}} %x, %v, %g
output %y
"
        )
    };
    // x, as much as a row of it, and what is written.
    assert_eq!(kernels(&of(1)), ["Row 3"]);
    assert_eq!(kernels(&of(4)), ["Row 3"]);
}

/// Both halves of a rotation read the same values, and are written by one kernel.
#[test]
fn maps_of_the_same_values_are_one_kernel() {
    let text = |shape: &str| {
        format!(
            "graph turned
input %x: f32[4, 64]
input %c: f32[32]
input %s: f32[32]
%p: f32[4, 32] = slice starts=[0, 0] steps=[1, 1] extents=[4, 32] %x
%q: f32[4, 32] = slice starts=[0, 32] steps=[1, 1] extents=[4, 32] %x
%a: f32[4, 32] = map {{%0 = input 0 f32; %1 = input 1 f32; %2 = input 2 f32; %3 = input 3 f32; %4 = mul %0 %2; %5 = mul %1 %3; %6 = sub %4 %5; out %6}} %p, %q, %c, %s
%b: f32[4, 32] = map {{%0 = input 0 f32; %1 = input 1 f32; %2 = input 2 f32; %3 = input 3 f32; %4 = mul %0 %3; %5 = mul %1 %2; %6 = add %4 %5; out %6}} %p, %q, %c, %s
{shape}"
        )
    };
    let halves = text("%y: f32[4, 64] = concat axis=1 %a, %b\noutput %y\n");
    assert_eq!(kernels(&halves), ["Map 6"]);
    let two = text("output %a, %b\n");
    assert_eq!(kernels(&two), ["Map 6"]);
}

/// What a norm squares lies in memory anyway, so that the squares are made where they are summed, not behind the
/// product that makes it.
#[test]
fn squares_are_made_where_they_are_summed() {
    let text = |rows: usize| {
        format!(
            "graph behind
input %x: bf16[{rows}, 64]
input %r: bf16[{rows}, 64]
weight %w: bf16[64, 64] @0
%a: bf16[{rows}, 64] = contract mk,kn->mn %x, %w
%b: bf16[{rows}, 64] = map {{%0 = input 0 bf16; %1 = input 1 bf16; %2 = add %0 %1; out %2}} %a, %r
%c: f32[{rows}, 64] = map {{%0 = input 0 bf16; %1 = cast %0 f32; out %1}} %b
%s: f32[{rows}, 64] = map {{%0 = input 0 f32; %1 = mul %0 %0; out %1}} %c
%v: f32[{rows}, 1] = reduce axes=[1] keep=true monoid sum {{ identity: %0 = const 0.0 f32; out %0 }} {{ lift: %0 = input 0 f32; out %0 }} {{ combine: %0 = input 0 f32; %1 = input 1 f32; %2 = add %0 %1; out %2 }} {{ finish: %0 = input 0 f32; out %0 }} %s
%y: f32[{rows}, 64] = map {{%0 = input 0 f32; %1 = input 1 f32; %2 = mul %0 %1; out %2}} %c, %v
output %y, %b
"
        )
    };
    // The product has x, w, r and the sum; the norm reads the sum and writes what it gives.
    for rows in [1, 4] {
        assert_eq!(kernels(&text(rows)), ["Contract 4", "Row 2"], "{rows} rows");
        // What is said of each is where it is now, once.
        let program = named(&text(rows));
        for (node, with) in [("s", "fused with v"), ("c", "fused with s")] {
            let said = program.whys.iter();
            let said = said.filter(|w| w.pass == "fuse" && w.subject == node);
            let said: Vec<&str> = said.map(|w| w.choice.as_str()).collect();
            assert_eq!(said, [with], "{node}");
            let before = |s: &&plan::Saving| s.node == node && s.choice == "fused with a";
            assert_eq!(program.savings.iter().find(before), None);
        }
    }
}

/// A product reads its factors whole, so that what makes one stays where it is.
#[test]
fn factors_of_a_product_stay_where_they_are_made() {
    let text = "graph square
input %x: f32[8, 8]
%a: f32[8, 8] = contract mk,kn->mn %x, %x
%b: f32[8, 8] = map {%0 = input 0 f32; %1 = exp %0; out %1} %a
%c: f32[8, 8] = map {%0 = input 0 f32; %1 = abs %0; out %1} %b
%y: f32[8, 8] = contract mk,kn->mn %b, %c
output %y, %b
";
    assert_eq!(kernels(text), ["Contract 4", "Contract 3"]);
}
