//! Where cycles go while products and copies run beside the warps.

use crate::suite::common::*;
use crate::suite::pipeline::{ALL, STEPS};
use crate::suite::timing::numbers;
use crate::suite::wgmma::HEAD_90A;
use shopfloor_ptx_emulator::*;

fn gpu() -> Timing {
    let mut t = numbers();
    t.matrix.bf16 = 4096.0;
    t
}

/// Rounds of four products of 64 by `n` by 16, a group each, by so many warpgroups.
fn products(n: u32, rounds: u32, warpgroups: u32, wait: u32) -> Stalls {
    let d: Vec<String> = (0..n / 2).map(|k| format!("%c{k}")).collect();
    let product = format!(
        "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{}}}, %d0, %d0, %p, 1, 1, 0, 0;\n",
        d.join(", ")
    );
    let text = format!(
        "{HEAD_90A}.visible .entry k()\n{{\n.reg .pred %p;\n.reg .u32 %r<4>;\n.reg .b32 %c<128>;\n\
         .reg .u64 %d0;\nmov.u64 %d0, 0x4000004000010000;\nmov.u32 %r0, 0;\nsetp.ne.u32 %p, %r0, 0;\n\
         LOOP:\nwgmma.fence.sync.aligned;\n{}wgmma.commit_group.sync.aligned;\n\
         wgmma.wait_group.sync.aligned {wait};\nadd.u32 %r0, %r0, 1;\nsetp.lt.u32 %p, %r0, {rounds};\n\
         @%p bra LOOP;\nwgmma.wait_group.sync.aligned 0;\nret;\n}}\n",
        product.repeat(4)
    );
    let b = Bench::new(&text);
    let l = Launch {
        shared: 65536,
        checks: Checks::none(),
        ..launch("k", 1, 128 * warpgroups)
    };
    let (o, s) = b.machine.time(&b.module, &l, &gpu()).unwrap();
    assert!(o.clean(), "{:?}", o.reports);
    s
}

#[test]
fn products_take_the_matrix_units() {
    for (n, warpgroups) in [(256, 1), (128, 2), (64, 1)] {
        let s = products(n, 32, warpgroups, 1);
        let least = 32 * 4 * warpgroups * n * 64 * 16 * 2 / 4096;
        let most = least + least / 50 + 60;
        let cycles = s.cycles as u32;
        assert!((least..most).contains(&cycles), "{n}: {cycles}, {least}");
    }
    // Fewer columns take the time of 64.
    let (few, all) = (products(8, 32, 1, 1), products(64, 32, 1, 1));
    assert_eq!(few.cycles, all.cycles);
    // Waiting for every group leaves the units idle in between.
    let waits = products(64, 32, 1, 0);
    assert!(waits.cycles > all.cycles + 32 * 10, "{}", waits.cycles);
    assert_eq!(waits.worst(), Reason::Dependency);
}

#[test]
fn a_pipeline_goes_as_fast_as_its_memory() {
    let p = ALL[0];
    let source = p.source();
    let (bench, l, ..) = p.ready(&source, 0);
    let (o, s) = bench.machine.time(&bench.module, &l, &gpu()).unwrap();
    assert!(o.clean(), "{:?}", o.reports);
    // At 16 bytes a cycle. A stage is given back when the next has come, so that every step waits for the
    // latency of memory too.
    let bytes = STEPS as u64 * 16384 + 16384;
    let least = bytes / 16 + (STEPS as u64 - 1) * 500;
    assert!(
        (least..least + 900).contains(&s.cycles),
        "{}: {least}",
        s.cycles
    );
    assert_eq!(s.bytes[3] as u64, bytes);
    assert_eq!(s.worst(), Reason::Device);
    let all: u64 = s.reasons.iter().map(|r| r.1).sum();
    let lives: u64 = s.each.iter().map(|w| w.to - w.from).sum();
    assert_eq!((all, lives), (s.warp_cycles, s.warp_cycles));
    // What the clock says does not depend on how warps were interleaved.
    for seed in 1..6 {
        let (bench, l, ..) = p.ready(&source, seed);
        let other = bench.machine.time(&bench.module, &l, &gpu()).unwrap().1;
        assert_eq!(s.cycles, other.cycles, "seed {seed}");
    }
    // Four times the memory leaves the latencies.
    let mut t = gpu();
    for level in [&mut t.l2, &mut t.device] {
        (level.per_sm, level.read, level.write) = (64.0, 64.0, 64.0);
    }
    let fast = bench.machine.time(&bench.module, &l, &t).unwrap().1;
    assert!(fast.cycles < s.cycles * 3 / 5, "{}", fast.cycles);
}

#[test]
fn clusters_come_to_an_end() {
    for (kernel, grid) in [("shared_tile", 2), ("sent", 2), ("handed", 2), ("sums", 8)] {
        let mut b = Bench::new(include_str!("ptx/cluster.ptx"));
        let p = b.words(&(0..256).collect::<Vec<u32>>());
        let q = b.buffer(512);
        let mut l = launch(kernel, grid, 32);
        if b.module.params(kernel).unwrap().len() == 2 {
            l = l.u64(p);
        }
        let t = Timing { sms: 2, ..gpu() };
        let (o, s) = b.machine.time(&b.module, &l.u64(q), &t).unwrap();
        assert!(o.clean(), "{kernel}: {:?}", o.reports);
        assert!((20..5000).contains(&s.cycles), "{kernel}: {}", s.cycles);
    }
}

#[test]
fn bulk_copies_that_go_are_waited_for() {
    let source = include_str!("ptx/bulk.ptx");
    let mut b = Bench::new(source);
    let p = b.words(&(0..128).collect::<Vec<u32>>());
    let q = b.buffer(512);
    let l = launch("through", 1, 128).u64(p).u64(q);
    let (o, s) = b.machine.time(&b.module, &l, &gpu()).unwrap();
    assert!(o.clean(), "{:?}", o.reports);
    assert_eq!(s.bytes[3], 1024.0);
    // The latency of device memory once, and little else.
    assert!((520..800).contains(&s.cycles), "{}", s.cycles);
}
