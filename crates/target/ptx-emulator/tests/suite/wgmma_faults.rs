//! Mistakes around products of warpgroups that must be found, at the right line.

use crate::suite::common::*;
use crate::suite::wgmma::{FORMS, Form, HEAD_90A, descriptor};
use shopfloor_ptx_emulator::*;

fn form(name: &str) -> Form {
    FORMS.iter().find(|f| f.0 == name).unwrap().1
}

/// The kernel of a form, with pieces of its text replaced.
fn changed(name: &str, edits: &[(&str, &str)]) -> String {
    let mut source = format!("{HEAD_90A}{}", form(name).source("product"));
    for (from, to) in edits {
        assert!(source.contains(from), "{from}");
        source = source.replace(from, to);
    }
    source
}

fn run(source: &str, threads: u32, seed: u64, descriptors: [u64; 2]) -> Outcome {
    let mut b = Bench::new(source);
    let (pa, pb) = (b.bytes(&[0; 32768]), b.bytes(&[0; 32768]));
    let pd = b.buffer(1 << 16);
    let l = Launch {
        shared: 65536,
        seed,
        ..launch("product", 1, threads)
            .u64(pa)
            .u64(pb)
            .u64(pd)
            .u64(descriptors[0])
            .u64(descriptors[1])
    };
    b.run(&l)
}

/// What is found after some edits, at several seeds.
fn found(name: &str, edits: &[(&str, &str)], kind: Finding, mark: &str) -> Report {
    let source = changed(name, edits);
    let d = descriptor(0, 16, 1024, 1);
    let line = line_of(&source, "product", mark);
    let all = (0..4).map(|seed| only(&run(&source, 128, seed, [d, d]), kind, line));
    all.reduce(|_, r| r).unwrap()
}

const WAIT: &str = "wgmma.wait_group.sync.aligned 0;";
const COMMIT: &str = "wgmma.commit_group.sync.aligned;";
const FENCE: &str = "wgmma.fence.sync.aligned;";
const PROXY: &str = "fence.proxy.async.shared::cta;";

#[test]
fn sums_are_not_touched_before_they_are_waited_for() {
    for access in ["mov.b32 %x0, %c3;", "mov.b32 %c3, 0;"] {
        for at in [WAIT, COMMIT] {
            let text = format!("{access} // here\n    {at}");
            let r = found("bf16", &[(at, &text)], Finding::RegisterInFlight, "// here");
            assert!(r.message.contains("%c3"), "{}", r.message);
            let product = line_of(&changed("bf16", &[(at, &text)]), "product", "%q, 1, 1");
            assert_eq!(r.other_line, Some(product + 6), "{r}");
        }
    }
}

#[test]
fn what_is_found_can_be_switched_off() {
    let source = changed("bf16", &[(FENCE, ""), (PROXY, "")]);
    let mut b = Bench::new(&source);
    let p = b.bytes(&[0; 1 << 17]);
    let l = Launch {
        shared: 65536,
        checks: Checks::none(),
        ..launch("product", 1, 128)
    };
    let d = descriptor(0, 16, 1024, 1);
    let end = p + (1 << 16);
    b.clean(&l.u64(p).u64(p).u64(end).u64(d).u64(d));
}

#[test]
fn a_wait_covers_the_groups_before_it() {
    // The newest group may be in flight.
    let text = "wgmma.wait_group.sync.aligned 1;\n    mov.b32 %x0, %c0; // here";
    found(
        "bf16",
        &[(WAIT, text)],
        Finding::RegisterInFlight,
        "// here",
    );
    let text = format!("{COMMIT}\n    {COMMIT}\n    wgmma.wait_group.sync.aligned 1;");
    let source = changed("bf16", &[(COMMIT, &text), (WAIT, "")]);
    let d = descriptor(0, 16, 1024, 1);
    assert!(run(&source, 128, 0, [d, d]).clean());
}

#[test]
fn factors_in_registers_stay_until_they_are_waited_for() {
    let text = format!("mov.b32 %a5, 0; // here\n    {WAIT}");
    let r = found(
        "from_registers",
        &[(WAIT, &text)],
        Finding::RegisterInFlight,
        "// here",
    );
    assert!(r.message.contains("%a5"), "{}", r.message);
}

#[test]
fn a_fence_stands_before_the_first_product_and_behind_writes() {
    let kind = Finding::MissingWgmmaFence;
    found("bf16", &[(FENCE, "")], kind, "%p, 1, 1");
    let text = format!("{FENCE}\n    mov.b32 %c7, 0;");
    let r = found("bf16", &[(FENCE, &text)], kind, "%p, 1, 1");
    assert!(r.message.contains("%c7"), "{}", r.message);
    let text = format!("{FENCE}\n    mov.b32 %a0, 0;");
    found("from_registers", &[(FENCE, &text)], kind, "%p, 1, 1");
}

#[test]
fn ordinary_writes_need_a_proxy_fence_and_a_barrier() {
    let kind = Finding::MissingProxyFence;
    let r = found("bf16", &[(PROXY, "")], kind, "%p, 1, 1");
    assert!(r.message.contains("fence.proxy.async"), "{}", r.message);
    // Before the writes it orders none of them.
    let before = format!("{PROXY}\nCOPY:");
    found("bf16", &[(PROXY, ""), ("COPY:", &before)], kind, "%p, 1, 1");
    // Behind the barrier it comes too late.
    let behind = format!("bar.sync 0;\n    {PROXY}");
    let edits = [(PROXY, ""), ("bar.sync 0;", behind.as_str())];
    found("bf16", &edits, kind, "%p, 1, 1");
    found(
        "bf16",
        &[("bar.sync 0;", "")],
        Finding::SharedRace,
        "%p, 1, 1",
    );
}

/// The kernel with asynchronous copies instead of loads and stores.
fn copies(then: &str) -> String {
    let x = "{%x0, %x1, %x2, %x3}";
    changed(
        "bf16",
        &[
            (&format!("ld.global.v4.b32 {x}, [%d1];"), ""),
            (
                &format!("st.shared.v4.b32 [%r3], {x};"),
                "cp.async.cg.shared.global [%r3], [%d1], 16;",
            ),
            (
                &format!("st.shared.v4.b32 [%r3+32768], {x};"),
                "cp.async.cg.shared.global [%r3+32768], [%d1], 16;",
            ),
            (PROXY, then),
        ],
    )
}

#[test]
fn asynchronous_copies_are_waited_for_then_fenced() {
    let d = descriptor(0, 16, 1024, 1);
    let good = copies(&format!("cp.async.wait_all;\n    {PROXY}"));
    let o = run(&good, 128, 0, [d, d]);
    assert!(o.clean(), "{:?}", o.reports);
    for (then, kind) in [
        ("cp.async.wait_all;".to_string(), Finding::MissingProxyFence),
        (
            format!("{PROXY}\n    cp.async.wait_all;"),
            Finding::MissingProxyFence,
        ),
        (PROXY.to_string(), Finding::EarlyRead),
    ] {
        let source = copies(&then);
        let o = run(&source, 128, 0, [d, d]);
        let line = line_of(&source, "product", "%p, 1, 1");
        let hit = o.reports.iter().any(|r| r.kind == kind && r.line == line);
        assert!(hit, "{then}: {:?}", o.reports);
    }
}

#[test]
fn what_a_product_reads_stays_until_it_is_waited_for() {
    // Barriers alone do not say that products are done.
    let write = "st.shared.v4.b32 [%r3-30720], {%x0, %x1, %x2, %x3}; // here";
    let text = format!("bar.sync 0;\n    {write}\n    {WAIT}");
    for seed in 0..4 {
        let source = changed("bf16", &[(WAIT, &text)]);
        let d = descriptor(0, 16, 1024, 1);
        let o = run(&source, 128, seed, [d, d]);
        let line = line_of(&source, "product", "// here");
        only(&o, Finding::SharedRace, line);
    }
    let text = format!("{WAIT}\n    bar.sync 0;\n    {write}");
    let source = changed("bf16", &[(WAIT, &text)]);
    let d = descriptor(0, 16, 1024, 1);
    let o = run(&source, 128, 0, [d, d]);
    assert!(o.clean(), "{:?}", o.reports);
}

#[test]
fn descriptors_stay_inside_shared_memory() {
    let source = changed("bf16", &[]);
    let d = descriptor(0, 16, 1024, 1);
    let line = line_of(&source, "product", "%p, 1, 1");
    // 256 rows of B, of which the last lie behind the end.
    let o = run(&source, 128, 0, [d, descriptor(1024, 16, 1024, 1)]);
    only(&o, Finding::OutOfBounds, line);
    let o = run(&source, 128, 0, [d, d | 1 << 53]);
    only(&o, Finding::Undefined, line);
}

#[test]
fn a_warpgroup_is_four_warps_at_one_product() {
    let source = changed("bf16", &[]);
    let d = descriptor(0, 16, 1024, 1);
    let o = run(&source, 96, 0, [d, d]);
    assert!(
        o.reports.iter().any(|r| r.kind == Finding::Undefined),
        "{:?}",
        o.reports
    );
    // Warp 0 stays away.
    let text = format!("setp.lt.u32 %more, %r0, 32;\n    @%more bra OUT;\n    {FENCE}");
    let end = "OUT:\n    ret;";
    let source = changed("bf16", &[(FENCE, &text), ("ret;", end)]);
    let o = run(&source, 128, 0, [d, d]);
    let r = o.reports.iter().find(|r| r.kind == Finding::Deadlock);
    let said = r.is_some_and(|r| r.message.contains("the other warps of its warpgroup"));
    assert!(said, "{:?}", o.reports);
    // Warps of one warpgroup move on differently.
    let text = format!("mul.wide.u32 %d1, %r0, 32;\n    add.u64 %da, %da, %d1;\n    {FENCE}");
    let source = changed("narrow", &[(FENCE, &text)]);
    let o = run(&source, 128, 0, [d, d]);
    assert!(
        o.reports.iter().any(|r| r.kind == Finding::Undefined),
        "{:?}",
        o.reports
    );
}

#[test]
fn only_its_own_target_has_it() {
    let source = changed("bf16", &[("sm_90a", "sm_90")]);
    let mut machine = Machine::new();
    let module = machine.load(&source).unwrap();
    let e = module.params("product").unwrap_err();
    assert!(e.to_string().contains("sm_90a"), "{e}");
}
