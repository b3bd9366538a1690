//! Concatenations: which parts are written in place, and which are copied.
use crate::build::parsed;
use kernel::Family;
use plan::{ItemWork, Program, Segment};

/// Moves in the straight segments of `p`.
fn moves(p: &Program) -> usize {
    let kernel = |i: &plan::Item| matches!(&i.work, ItemWork::Kernel { kernel, .. } if kernel.family == Family::Move);
    let segment = |s: &Segment| match s {
        Segment::Straight(items) => items.iter().filter(|i| kernel(i)).count(),
        _ => 0,
    };
    p.segments.iter().map(segment).sum()
}

#[test]
fn what_is_joined_twice_is_written_once() {
    let p = parsed(
        "graph twice
input %x: f32[2, 3, 5]
input %y: f32[2, 3, 5]
%a: f32[2, 3, 5] = map {%0 = input 0 f32; %1 = exp %0; out %1} %x
%b: f32[2, 3, 5] = map {%0 = input 0 f32; %1 = neg %0; out %1} %y
%k: f32[2, 6, 5] = concat axis=1 %a, %b
%m: f32[2, 6, 5] = map {%0 = input 0 f32; %1 = abs %0; out %1} %k
%t: f32[2, 3, 5] = slice starts=[0, 1, 0] steps=[1, 1, 1] extents=[2, 3, 5] %m
%n: f32[2, 3, 5] = map {%0 = input 0 f32; %1 = exp %0; out %1} %t
%z: f32[2, 9, 5] = concat axis=1 %a, %b, %n
%o: f32[2, 9, 5] = map {%0 = input 0 f32; %1 = neg %0; out %1} %z
output %o
",
    );
    assert_eq!(moves(&p), 0);
}

#[test]
fn a_kernel_comes_after_what_gives_its_sizes() {
    // Nothing but the size leads from one to the other.
    let p = parsed(
        "graph late
symbol b = input 0 axis 0
symbol k = late %z axis 1
input %x: f32[b]
%r: f32[b] = map {%0 = input 0 f32; %1 = neg %0; out %1} %x
%z: i64[1, k] = host \"NonZero\" {} %x
%s: f32[b] = map {%0 = input 0 f32; %1 = dim k; %2 = cast %1 f32; %3 = add %0 %2; out %3} %r
output %s
",
    );
    let late = p
        .segments
        .iter()
        .position(|s| matches!(s, Segment::Late(_)));
    let uses = |s: &Segment| {
        let mut used = layout::Symbols::default();
        for i in s.items() {
            if let ItemWork::Kernel { kernel, .. } = &i.work {
                kernel.for_each_dim(&mut |d| used.add(d));
            }
        }
        used.used().contains("k")
    };
    let first = p.segments.iter().position(uses);
    assert!(late.is_some() && first > late, "{late:?} {first:?}");
}

#[test]
fn what_becomes_a_part_of_an_output_is_written_there() {
    // The values of an attention with a cache: a product seen as heads, behind those of the past.
    let p = parsed(
        "graph cache
input %x: f32[1, 3, 8]
input %w: f32[8, 8]
input %past: f32[1, 2, 5, 4]
%v: f32[1, 3, 8] = contract btk,kn->btn %x, %w
%heads: f32[1, 3, 2, 4] = reshape [1, 3, 2, 4] %v
%new: f32[1, 2, 3, 4] = permute [0, 2, 1, 3] %heads
%present: f32[1, 2, 8, 4] = concat axis=2 %past, %new
output %present
",
    );
    assert_eq!(moves(&p), 1);
}

#[test]
fn views_in_a_row_have_no_limit() {
    let mut text = String::from(
        "graph deep
input %x: f32[2, 3]
%v: f32[2, 3] = map {%0 = input 0 f32; %1 = exp %0; out %1} %x
",
    );
    let mut last = "v".to_string();
    for i in 0..30_000 {
        text += &format!(
            "%p{i}: f32[3, 2] = permute [1, 0] %{last}\n%r{i}: f32[2, 3] = reshape [2, 3] %p{i}\n"
        );
        last = format!("r{i}");
    }
    text += &format!("%y: f32[4, 3] = concat axis=0 %x, %{last}\noutput %y\n");
    assert!(moves(&parsed(&text)) >= 2);
}

#[test]
fn concatenations_of_concatenations_have_no_limit() {
    let mut text = String::from(
        "graph nested
input %x: f32[1]
%c0: f32[1] = map {%0 = input 0 f32; %1 = exp %0; out %1} %x
",
    );
    let n = 3000;
    for i in 1..=n {
        text += &format!("%c{i}: f32[{}] = concat axis=0 %c{}, %x\n", i + 1, i - 1);
    }
    text += &format!("output %c{n}\n");
    let small = std::thread::Builder::new().stack_size(512 << 10);
    let run = small.spawn(move || moves(&parsed(&text))).unwrap();
    // Each copies what only it adds, into the memory of the last.
    assert_eq!(run.join().unwrap(), n);
}

#[test]
fn what_no_kernel_makes_is_copied() {
    let p = parsed(
        "graph copied
input %x: f32[2, 3, 5]
%a: f32[2, 3, 5] = map {%0 = input 0 f32; %1 = exp %0; out %1} %x
%z: f32[2, 9, 5] = concat axis=1 %a, %x, %x
%o: f32[2, 9, 5] = map {%0 = input 0 f32; %1 = neg %0; out %1} %z
output %o
",
    );
    assert_eq!(moves(&p), 2);
}
