//! Small texts and what is alive in them.
use super::{
    Addresses, Kind, Lines, PACKED, Parsed, Rematerialised, ahead, banked, guarded, lean, remade,
};

fn parse(text: &str, held: bool) -> Parsed {
    let shared = false;
    super::parse(&Lines::of(text), Addresses { held, shared })
}

fn parsed(text: &str, addresses: Addresses) -> Parsed {
    super::parse(&Lines::of(text), addresses)
}

fn threads(text: &str, arch: &str) -> u32 {
    super::estimate_threads(&Lines::of(text), arch, 255).estimate
}

fn pressure(text: &str) -> u32 {
    alive(&parse(text, false))
}

fn alive(p: &Parsed) -> u32 {
    super::pressure(p, &p.width, super::SLOW)
}

#[test]
fn what_is_alive_together_is_counted() {
    let text = "\t.reg .b32 %r<5>;\n\t.reg .b64 %d<3>;\n\t.reg .pred %p<2>;\n\
        \tld.param.u64 %d0, [a];\n\
        \tld.global.b32 %r0, [%d0];\n\
        \tld.global.b32 %r1, [%d0+4];\n\
        \tmov.b32 %r2, 7;\n\
        \tadd.u32 %r3, %r0, %r1;\n\
        \tadd.u32 %r3, %r3, %r2;\n\
        \tst.global.b32 [%d0], %r3;\n\tret;\n";
    // The pointer is a parameter and the 7 a number.
    assert_eq!(pressure(text), 2);
}

#[test]
fn what_a_loop_carries_lives_through_it() {
    let text = "\t.reg .b32 %r<5>;\n\t.reg .pred %p<2>;\n\
        \tmov.u32 %r0, %tid.x;\n\
        \tadd.u32 %r1, %r0, 1;\n\
        $L1:\n\
        \tadd.u32 %r2, %r0, 3;\n\
        \tadd.u32 %r1, %r1, %r2;\n\
        \tsetp.lt.u32 %p0, %r1, 100;\n\
        \t@%p0 bra $L1;\n\
        \tst.global.b32 [%r0], %r1;\n\tret;\n";
    assert_eq!(pressure(text), 3);
}

#[test]
fn a_variable_that_begins_with_a_constant_takes_a_register() {
    let text = "\t.reg .b32 %r<5>;\n\t.reg .f32 %f<5>;\n\
        \tmov.f32 %f0, 0f00000000;\n\tmov.f32 %f1, 0f00000000;\n\
        $L1:\n\
        \tadd.f32 %f0, %f0, %f1;\n\tadd.f32 %f1, %f1, %f0;\n\
        \tsetp.lt.f32 %p0, %f0, 0f00000000;\n\
        \t@%p0 bra $L1;\n\tst.global.f32 [%r0], %f0;\n\tret;\n";
    assert_eq!(pressure(text), 3);
}

#[test]
fn loads_are_under_way_together() {
    let text = |guarded: bool| {
        let mut t = "\t.reg .b64 %d<3>;\n\t.reg .f32 %f<9>;\n\t.reg .pred %p<2>;\n\
            \tld.global.b64 %d0, [%d1];\n\tld.global.f32 %f1, [%d0];\n\tmov.f32 %f0, %f1;\n"
            .to_string();
        for i in 2..6 {
            let load = format!("\tmov.f32 %f{i}, 0f00000000;\n\tld.global.f32 %f{i}, [%d0+{i}];\n");
            let (before, after) = match guarded {
                true => (format!("\t@!%p0 bra $s{i};\n"), format!("$s{i}:\n")),
                false => (String::new(), String::new()),
            };
            t += &load.replace("\tld", &format!("{before}\tld"));
            t += &format!("{after}\tadd.f32 %f0, %f0, %f{i};\n");
        }
        parse(&(t + "\tst.global.f32 [%d1], %f0;\n\tret;\n"), false)
    };
    // One after the other: two addresses, a sum and a value; together: five values.
    assert_eq!(alive(&text(false)), 6);
    for guarded in [false, true] {
        let p = ahead(super::guarded(&text(guarded)));
        assert!(alive(&p) >= 8);
        assert!(p.labels.iter().all(Option::is_none));
    }
}

#[test]
fn the_order_is_one_that_keeps_little_alive() {
    let mut text = "\t.reg .f32 %f<20>;\n\t.reg .b32 %r<5>;\n".to_string();
    for i in 0..8 {
        text += &format!("\tld.shared.f32 %f{i}, [%r0+{}];\n", 4 * i);
    }
    text += "\tadd.f32 %f10, %f0, %f1;\n";
    for i in 2..8 {
        text += &format!("\tadd.f32 %f10, %f10, %f{i};\n");
    }
    text += "\tst.shared.f32 [%r0], %f10;\n\tret;\n";
    let p = parse(&text, false);
    assert_eq!(alive(&p), 9);
    let (q, live) = lean(p.clone(), super::TRUTHS);
    let again = super::alive(&q);
    assert_eq!((live.starts, live.out), (again.starts, again.out));
    // The address, the sum and what is added.
    assert_eq!(alive(&q), 3);
    assert_eq!(q.lines.len(), p.lines.len());
}

#[test]
fn what_one_instruction_makes_of_a_number_is_not_kept() {
    let mut text = "\t.reg .b32 %r<20>;\n\tld.global.b32 %r0, [%r19];\n".to_string();
    text += "\tmov.u32 %r11, %tid.x;\n";
    for i in 1..9 {
        text += &format!("\tadd.s32 %r{i}, %r{}, {i};\n", i % 2 * (i - 1));
    }
    text += "$L1:\n";
    for i in 0..9 {
        text += &format!("\tst.shared.b32 [%r11], %r{i};\n");
    }
    text += "\tsetp.lt.s32 %p0, %r10, 100;\n\t@%p0 bra $L1;\n\tret;\n";
    let p = parse(&text, false);
    // What is counted, nine values, the thread.
    assert_eq!(alive(&p), 11);
    assert_eq!(alive(&remade(p.clone(), Rematerialised::Special)), 10);
    // One of them, and a place for what nobody reads any more.
    assert_eq!(alive(&remade(p.clone(), Rematerialised::Number)), 3);
}

#[test]
fn a_pointer_has_registers_in_the_loops_that_use_it() {
    let text = "\t.reg .b64 %l_<3>;\n\t.reg .f32 %f<5>;\n\t.reg .b64 %d<5>;\n\t.reg .pred %p<2>;\n\
        \tld.param.u64 %l_0, [a];\n\tld.param.u64 %l_1, [b];\n\
        \tadd.s64 %d0, %d1, %l_1;\n\tld.global.f32 %f0, [%d0];\n\
        $L1:\n\tadd.s64 %d2, %d1, %l_0;\n\tld.global.f32 %f1, [%d2];\n\
        \tadd.f32 %f0, %f0, %f1;\n\tsetp.lt.f32 %p0, %f0, 0f00000000;\n\
        \t@%p0 bra $L1;\n\tst.global.f32 [%d1], %f0;\n\tret;\n";
    let (few, more) = (parse(text, false), parse(text, true));
    // The offset, the sum, and the address.
    assert_eq!(alive(&few), 5);
    assert_eq!(alive(&more), 7);
}

#[test]
fn a_division_is_instructions_with_registers_of_their_own() {
    let text = |by: &str| {
        let mut t =
            "\t.reg .b32 %r<9>;\n\tmov.u32 %r0, %tid.x;\n\tmov.u32 %r1, %ctaid.x;\n".to_string();
        t += &format!("\tdiv.s32 %r2, %r0, {by};\n\trem.s32 %r3, %r0, {by};\n");
        parse(&(t + "\tst.shared.b32 [%r2], %r3;\n\tret;\n"), false)
    };
    let number = text("12");
    // The thread and its magnitude, the reciprocal of 64 bits and what it is off by.
    assert_eq!(alive(&number), 5);
    // The divisor and its magnitude besides.
    assert_eq!(alive(&text("%r1")), 7);
    // Both come of one division.
    let of = |k: Kind| number.lines.iter().filter(|l| l.kind == k).count();
    assert_eq!(of(Kind::Load), 1);
}

#[test]
fn a_copy_of_a_variable_takes_nothing() {
    let text = "\t.reg .f32 %f<9>;\n\t.reg .f32 %vf<2>;\n\tld.shared.f32 %vf0, [%r0];\n\
        \tmov.f32 %f0, %vf0;\n\tadd.rn.f32 %f1, %f0, %f0;\n\
        \tmov.b32 %f2, %f1;\n\tst.shared.f32 [%r0], %f2;\n\
        \tmov.f32 %f3, 0f3F800000;\n\t@%p0 mov.f32 %vf0, %f1;\n\
        \tst.shared.f32 [%r0], %vf0;\n\tret;\n";
    assert_eq!(pressure(text), 2);
}

#[test]
fn a_condition_is_there_before_the_part_that_it_is_behind() {
    let mut text = "\t.reg .b32 %r<9>;\n\t.reg .f32 %f<9>;\n\t.reg .pred %p<4>;\n".to_string();
    text += "\tld.shared.b32 %r0, [%r8];\n\tld.shared.b32 %r1, [%r8];\n\
        \tsetp.lt.s32 %p0, %r0, 7;\n\t@!%p0 bra $skip;\n";
    for i in 0..4 {
        text += &format!("\tld.shared.f32 %f{i}, [%r8+{i}];\n");
    }
    text += "\tadd.f32 %f4, %f0, %f1;\n\tadd.f32 %f5, %f2, %f3;\n\tadd.f32 %f6, %f4, %f5;\n\
        \tst.shared.f32 [%r8], %f6;\n\tst.shared.f32 [%r8], %f6;\n\tst.shared.f32 [%r8], %f6;\n\
        $skip:\n\tadd.s32 %r2, %r0, 4;\n\tsetp.lt.s32 %p1, %r2, %r1;\n\
        \t@!%p1 bra $end;\n\tst.shared.b32 [%r8], 1;\n$end:\n\tret;\n";
    // The address and four values: the condition's two have been read.
    assert_eq!(pressure(&text), 5);
    // With a variable nothing moves.
    let other = text.replace("$skip:", "$skip:\n\tadd.s32 %r1, %r1, 1;");
    assert_eq!(pressure(&other), 7);
}

#[test]
fn what_an_address_is_made_of_is_read_where_no_jump_goes_around_it() {
    let part = |i: u32| {
        format!(
            "\tmul.wide.s32 %d{i}, %r0, 4;\n\tadd.s64 %d{i}, %d{i}, %l_0;\n\tst.global.b32 [%d{i}], %r0;\n"
        )
    };
    let skipped = |i: u32| {
        let filled = "\tst.shared.b32 [%r0], %r0;\n".repeat(8);
        let inner = part(i);
        format!("\tsetp.lt.s32 %p{i}, %r0, {i};\n\t@%p{i} bra $s{i};\n{filled}{inner}$s{i}:\n")
    };
    let head = "\t.reg .b64 %l_<2>;\n\t.reg .b64 %d<5>;\n\t.reg .b32 %r<2>;\n\t.reg .pred %p<5>;\n\
        \tld.param.u64 %l_0, [a];\n\tld.shared.b32 %r0, [%r1];\n";
    let reads = |body: &str, held: bool| {
        let p = parse(&format!("{head}{body}\tret;\n"), held);
        let read = |l: &&super::Line| l.uses.is_empty() && !l.defs.is_empty();
        let width: Vec<u32> = p
            .lines
            .iter()
            .filter(read)
            .map(|l| p.width[l.defs[0] as usize])
            .collect();
        width.into_iter().filter(|&w| w > 0).collect::<Vec<_>>()
    };
    // The size of an element up to sm_80, the pointer later: once, or once more where it was jumped over.
    assert_eq!(reads(&(part(0) + &part(1)), false), [1]);
    assert_eq!(reads(&(part(0) + &part(1)), true), [2]);
    assert_eq!(reads(&(skipped(0) + &part(1)), true), [2, 2]);
    assert_eq!(reads(&(part(0) + &skipped(1)), true), [2]);
}

#[test]
fn parts_beside_one_another_become_guarded_instructions() {
    let part = |i: u32, guard: &str| {
        let mut t = format!("\tsetp.lt.s32 %p{i}, %r0, {i};\n\t@%p{i} bra $s{i};\n");
        t += &format!("\t{guard}ld.shared.f32 %f{i}, [%r0+{i}];\n");
        t += &format!("\tadd.f32 %f{i}, %f{i}, %f{i};\n").repeat(10);
        t + &format!("\tst.shared.f32 [%r0], %f{i};\n$s{i}:\n")
    };
    let jumps = |body: String| {
        let head =
            "\t.reg .b32 %r<2>;\n\t.reg .f32 %f<9>;\n\t.reg .pred %p<9>;\n\tmov.u32 %r0, %tid.x;\n";
        let p = guarded(&parse(&format!("{head}{body}"), false));
        p.lines.iter().filter(|l| l.jump.is_some()).count()
    };
    let all = |n: u32| (1..=n).map(|i| part(i, "")).collect::<String>();
    // The last one is jumped over to the kernel's end.
    assert_eq!(jumps(all(1)), 1);
    assert_eq!(jumps(all(2)), 2);
    assert_eq!(jumps(all(3)), 1);
    assert_eq!(jumps(all(4)), 2);
    // In loops they need no partner; what is guarded itself is jumped over.
    let round =
        |body: String| format!("$l:\n{body}\tsetp.lt.s32 %p8, %r0, 9;\n\t@%p8 bra $l;\n\tret;\n");
    assert_eq!(jumps(round(all(3))), 1);
    assert_eq!(jumps(round(part(1, "@%p7 "))), 2);
}

#[test]
fn addresses_of_what_comes_next_are_made_while_loads_are_under_way() {
    let mut text = "\t.reg .b32 %r<30>;\n\t.reg .f32 %f<9>;\n\tmov.u32 %r0, %tid.x;\n".to_string();
    for i in 1..4 {
        text += &format!(
            "\tmad.lo.s32 %r{i}, %r0, {i}, %r0;\n\tld.shared.f32 %f{i}, [%r{i}];\n\
            \tmad.lo.s32 %r1{i}, %r0, 7, %r{i};\n\tst.shared.f32 [%r1{i}], %f{i};\n"
        );
    }
    let p = parse(&(text + "\tret;\n"), false);
    // The thread, an address and a value.
    assert_eq!(alive(&p), 3);
    let q = ahead(guarded(&p));
    assert_eq!(q.lines.len(), p.lines.len());
    // The first value and all addresses that are still needed.
    assert_eq!(alive(&q), 6);
    let kinds = |p: &Parsed| -> Vec<Kind> {
        p.lines
            .iter()
            .map(|l| l.kind)
            .filter(|&k| k != Kind::Other)
            .collect()
    };
    // Accesses stay in order.
    assert!(kinds(&p) == kinds(&q));
}

#[test]
fn a_condition_made_of_two_is_a_comparison_with_the_other_as_an_input() {
    let text = |op: &str| {
        format!(
            "\t.reg .b32 %r<9>;\n\t.reg .pred %p<9>;\n\tld.shared.b32 %r0, [%r8];\n\
            \tld.shared.b32 %r1, [%r8];\n\tld.shared.b32 %r2, [%r8];\n\
            \tsetp.lt.s32 %p0, %r0, %r1;\n\tsetp.eq.s32 %p1, %r2, 7;\n$L1:\n\
            \t{op} %p2, %p0, %p1;\n\tst.shared.b32 [%r8], 1;\n\t@%p2 bra $L1;\n\tret;\n"
        )
    };
    // The address and what is compared: for the first condition until the two are joined.
    let at_the_end = |op: &str| {
        let p = parse(&text(op), false);
        let last = super::alive::alive(&p).out.len() - 1;
        super::alive::count(&super::alive::alive(&p).out[last - 1], &p.width)
    };
    assert_eq!(at_the_end("and.pred"), 3);
    assert_eq!(at_the_end("or.pred"), 3);
    assert_eq!(at_the_end("xor.pred"), 1);
    // Numbers of 64 bits are compared by two instructions.
    let long = text("and.pred").replace("setp.lt.s32", "setp.lt.s64");
    let p = parse(&long, false);
    assert!(p.lines.iter().all(|l| l.defs.len() < 2));
    assert_eq!(alive(&p), 4);
}

#[test]
fn truth_values_that_do_not_fit_take_registers_also_where_there_are_plenty() {
    let text = |n: u32, root: &str| {
        let mut t = "\t.reg .b32 %r<3>;\n\t.reg .f32 %f<3>;\n\t.reg .pred %p<20>;\n\
            \tld.shared.b32 %r0, [%r1];\n\tld.shared.f32 %f0, [%r1];\n"
            .to_string();
        for i in 0..n {
            t += &format!("\tsetp.lt.s32 %p{i}, %r0, {i};\n");
        }
        t += root;
        for i in 0..n {
            t += &format!("\t@%p{i} st.shared.f32 [%r1], %f0;\n");
        }
        threads(&t, "sm_80")
    };
    let plain = text(7, "");
    assert_eq!(text(3, ""), plain);
    assert_eq!(text(8, ""), plain + PACKED);
    // A root's subroutine has three of its own, whatever registers it takes.
    let root = "\tsqrt.rn.f32 %f0, %f0;\n";
    assert_eq!(text(4, root), text(1, root));
    assert_eq!(text(5, root), text(1, root) + PACKED);
}

#[test]
fn an_address_that_is_a_parameter_and_a_number_is_only_read() {
    let text = "\t.reg .b32 %r<3>;\n\t.reg .f32 %f<2>;\n\t.reg .b64 %tl<3>;\n\t.reg .b64 %l_<3>;\n\
        \tld.param.u64 %l_0, [a];\n\tmov.b32 %r0, 3;\n\tmul.lo.s32 %r1, %r0, 5;\n\
        \tmul.wide.s32 %tl1, %r1, 4;\n\tadd.s64 %tl1, %tl1, %l_0;\n\
        \tld.global.f32 %f0, [%tl1];\n\tst.global.f32 [%tl1], %f0;\n\tret;\n";
    let of = |arch: &str| alive(&parsed(text, Addresses::of(arch)));
    // The value alone: the address is in registers that all threads share.
    assert_eq!(of("sm_75"), 1);
    // With a pair; neither the offset nor what it is multiplied by is there.
    assert_eq!(of("sm_80"), 3);
    assert_eq!(of("sm_90"), 3);
    // With a thread's number it is made as others are.
    let thread = text.replace("mov.b32 %r0, 3", "mov.u32 %r0, %tid.x");
    assert_eq!(alive(&parsed(&thread, Addresses::of("sm_75"))), 3);
    assert!(alive(&parsed(&thread, Addresses::of("sm_90"))) > 3);
}

#[test]
fn what_begins_with_a_number_and_goes_on_is_none() {
    let text = "\t.reg .b32 %r<3>;\n\t.reg .b32 %vr<2>;\n\t.reg .pred %p<2>;\n\tmov.b32 %r0, 0;\n\
        \tmov.b32 %vr0, %r0;\n$L1:\n\tadd.s32 %vr0, %vr0, 4;\n\tst.shared.b32 [%vr0], 1;\n\
        \tsetp.lt.s32 %p0, %vr0, 9;\n\t@%p0 bra $L1;\n\tret;\n";
    assert_eq!(pressure(text), 1);
}

#[test]
fn the_size_of_an_element_is_in_a_register_even_if_it_is_one() {
    let text = |by: u32| {
        format!(
            "\t.reg .b32 %r<2>;\n\t.reg .b64 %tl<2>;\n\tmov.u32 %r0, %tid.x;\n\
            \tmul.wide.s32 %tl1, %r0, {by};\n\tst.global.u8 [%tl1], %r0;\n\tret;\n"
        )
    };
    assert_eq!(pressure(&text(1)), pressure(&text(4)));
}

#[test]
fn pointers_are_read_before_the_loads_of_a_stretch() {
    let mut text =
        "\t.reg .b64 %l_<4>;\n\t.reg .b64 %d<5>;\n\t.reg .f32 %f<5>;\n\t.reg .b32 %r<2>;\n\
        \tmov.u32 %r0, %tid.x;\n"
            .to_string();
    for i in 0..3 {
        text += &format!(
            "\tld.param.u64 %l_{i}, [p{i}];\n\tmul.wide.s32 %d{i}, %r0, 4;\n\tadd.s64 %d{i}, %d{i}, %l_{i};\n"
        );
        text += &match i {
            2 => "\tadd.f32 %f2, %f0, %f1;\n\tst.global.f32 [%d2], %f2;\n\tret;\n".to_string(),
            _ => format!("\tld.global.f32 %f{i}, [%d{i}];\n"),
        };
    }
    let p = parse(&text, true);
    let kinds = |p: &Parsed| -> Vec<Kind> { p.lines.iter().map(|l| l.kind).collect() };
    let reads = |kinds: &[Kind]| kinds.iter().filter(|&&k| k == Kind::Read).count();
    let before = |kinds: &[Kind]| {
        let load = kinds.iter().position(|&k| k == Kind::Load).unwrap();
        reads(&kinds[..load])
    };
    assert_eq!(reads(&kinds(&p)), 3);
    // The one of the store comes behind the loads in the text.
    assert_eq!(before(&kinds(&p)), 1);
    assert_eq!(before(&kinds(&ahead(guarded(&p)))), 3);
}

#[test]
fn where_one_pair_is_alive_at_once_one_register_is_lost() {
    let text = |arch: &str| {
        let t = "\t.reg .b32 %r<3>;\n\t.reg .b64 %l<3>;\n\t.reg .b64 %tl<3>;\n\t.reg .b64 %l_<3>;\n\
            \t.reg .pred %p<3>;\n\tld.param.u64 %l_0, [a];\n\tmov.b32 %r0, 0;\n\
            \tmul.wide.s32 %tl1, %r0, 8;\n\tadd.s64 %tl1, %tl1, %l_0;\n\
            \tld.global.b64 %l0, [%tl1];\n\tsetp.eq.s64 %p0, %l0, 7;\n\
            \tselp.u32 %r1, 1, 0, %p0;\n\tst.global.u8 [%tl1], %r1;\n";
        threads(t, arch)
    };
    // The number, the stack's address, what is beside that, and two on top.
    assert_eq!(text("sm_75"), 6);
    // The address besides, and what is stored at an address has an odd number.
    assert!((8..=10).contains(&text("sm_80")), "{}", text("sm_80"));
}

#[test]
fn operands_of_an_instruction_are_in_different_banks() {
    let head = "\t.reg .b32 %r<9>;\n\t.reg .b64 %d<9>;\n\tld.shared.b64 %d0, [%r8];\n\
        \tld.shared.b32 %r0, [%r8];\n\tld.shared.b32 %r1, [%r8];\n";
    let of = |body: &str| {
        let p = parse(&format!("{head}{body}\tret;\n"), false);
        banked(&p, &super::alive(&p))
    };
    // The stack's address, a pair, and one of each: 1, 2 and 3, 4, 5.
    let two = "\tadd.u32 %r2, %r0, %r1;\n\tst.shared.b64 [%r2], %d0;\n";
    assert_eq!(of(two), 6);
    // Both are stored at a pair, and have odd numbers as the stack's address: 1, 2 and 3, 5, 7.
    let both = "\tst.global.b32 [%d0], %r0;\n\tst.global.b32 [%d0], %r1;\n";
    assert_eq!(of(both), 8);
    // What is settled stays: the sum of the two has them in one bank.
    assert_eq!(
        of(&format!(
            "{both}\tadd.u32 %r2, %r0, %r1;\n\tst.global.b32 [%d0], %r2;\n"
        )),
        8
    );
}

#[test]
fn a_kernel_is_given_what_loads_ahead_of_use_take() {
    let held = |estimate: u32, ahead: u32| super::Held { estimate, ahead };
    assert_eq!(held(70, 90).given(255), 90);
    assert_eq!(held(70, 75).given(255), 82);
    assert_eq!(held(10, 12).given(255), 32);
    assert_eq!(held(70, 90).given(80), 80);
}
