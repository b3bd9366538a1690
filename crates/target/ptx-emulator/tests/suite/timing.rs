//! Where cycles go, for kernels whose behaviour is known.

use shopfloor_ptx_emulator::*;

/// A GPU with round numbers: one SM with four schedulers.
pub fn numbers() -> Timing {
    let level = |bytes: f64, latency: f64, rate: f64| Level {
        bytes,
        latency,
        per_sm: rate,
        read: rate,
        write: rate,
    };
    Timing {
        sms: 1,
        schedulers: 4,
        ctas_per_sm: 1,
        registers: 64,
        cta_start: 0.0,
        fma: 64.0,
        half: 128.0,
        double: 32.0,
        alu: 64.0,
        special: 16.0,
        memory: 32.0,
        matrix: MatrixRates {
            half: 2048.0,
            bf16: 2048.0,
            tf32: 1024.0,
            int8: 4096.0,
        },
        dependent: 4.0,
        special_latency: 12.0,
        matrix_latency: 16.0,
        barrier: 20.0,
        shared: level(65536.0, 30.0, 128.0),
        l1: level(131_072.0, 35.0, 128.0),
        l2: level(1e6, 200.0, 64.0),
        device: level(1e10, 500.0, 16.0),
    }
}

fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 px)\n{{\n\
         .reg .u64 %d<8>;\n.reg .u32 %r<64>;\n.reg .f32 %f<64>;\n.reg .pred %p<4>;\n\
         .shared .align 16 .b8 sh[4096];\n{body}\nret;\n}}\n"
    )
}

fn timed(body: &str, words: &[u64], block: u32, t: &Timing) -> Stalls {
    let text = kernel(body);
    let mut m = Machine::new();
    let module = m.load(&text).unwrap();
    let at = m
        .memory
        .allocate(8 * words.len().max(1) as u64, MemoryKind::Device)
        .unwrap();
    let bytes: Vec<u8> = words
        .iter()
        .map(|w| if *w == u64::MAX { 0 } else { at + 8 * w })
        .flat_map(u64::to_le_bytes)
        .collect();
    m.memory.write(at, &bytes).unwrap();
    let l = Launch {
        block: [block, 1, 1],
        ..Launch::new("k")
    }
    .u64(at);
    let (o, s) = m.time(&module, &l, t).unwrap();
    assert!(o.clean(), "{:?}", o.reports);
    let all: u64 = s.reasons.iter().map(|r| r.1).sum();
    assert_eq!(all, s.warp_cycles);
    let lives: u64 = s.each.iter().map(|w| w.to - w.from).sum();
    assert_eq!(all, lives, "every cycle of every warp has one reason");
    for w in &s.each {
        assert_eq!(w.cycles.iter().map(|c| c.1).sum::<u64>(), w.to - w.from);
    }
    let by_line: u64 = s.lines.iter().map(|l| l.issued + l.total_lost()).sum();
    assert_eq!(by_line, all);
    s
}

const CHASE: &str = "ld.param.u64 %d0, [px];\nmov.u32 %r0, 0;\nL:\nld.global.u64 %d0, [%d0];\n\
    add.u32 %r0, %r0, 1;\nsetp.lt.u32 %p0, %r0, 64;\n@%p0 bra L;\nst.global.u64 [%d0], %d0;";

/// A chain of `n` words, each `stride` words from the last.
fn chain(n: u64, stride: u64) -> Vec<u64> {
    let mut w = vec![u64::MAX; (n * stride) as usize + 1];
    for k in 0..n {
        w[(k * stride) as usize] = (k + 1) * stride;
    }
    let last = w.len() - 1;
    w[last] = last as u64;
    w
}

#[test]
fn a_chase_through_memory_waits_for_its_latency() {
    // A line each: every load goes to device memory.
    let s = timed(CHASE, &chain(64, 16), 1, &numbers());
    let per = s.cycles as f64 / 64.0;
    assert!((500.0..520.0).contains(&per), "{per}");
    assert_eq!(s.worst(), Reason::Device);
    assert!(s.share(Reason::Device) > 0.95, "{s:?}");
    // The load waits for itself, a round before.
    let text = kernel(CHASE);
    let load = 1 + text
        .lines()
        .position(|l| l.starts_with("ld.global"))
        .unwrap() as u32;
    let worst = s.lines.iter().max_by_key(|l| l.total_lost()).unwrap();
    assert_eq!((worst.line, worst.waits_for), (load, Some(load)));

    // One line only: from the second load on, L1 answers.
    let s = timed(CHASE, &[0], 1, &numbers());
    assert_eq!(s.worst(), Reason::L1);
    let per = (s.cycles - 500) as f64 / 63.0;
    assert!((35.0..40.0).contains(&per), "{per}");

    // Without an L1, L2 does.
    let mut t = numbers();
    t.l1.bytes = 0.0;
    let s = timed(CHASE, &[0], 1, &t);
    assert_eq!(s.worst(), Reason::L2);
    let per = (s.cycles - 500) as f64 / 63.0;
    assert!((200.0..205.0).contains(&per), "{per}");
}

#[test]
fn a_chain_of_multiply_adds_waits_for_each_result() {
    let chain =
        "mov.f32 %f0, 0f3F800000;\n".to_string() + &"fma.rn.f32 %f0, %f0, %f0, %f0;\n".repeat(256);
    let s = timed(&chain, &[], 32, &numbers());
    assert!((1020..1040).contains(&s.cycles), "{}", s.cycles);
    assert_eq!(s.worst(), Reason::Dependency);
    assert!((s.share(Reason::Dependency) - 0.75).abs() < 0.01, "{s:?}");
}

#[test]
fn enough_warps_issue_every_cycle_and_enough_lanes_fill_their_pipe() {
    // Four chains each of integers and floats in a warp, eight warps a scheduler, pipes that take an
    // instruction every cycle.
    let mut body = String::new();
    for k in 0..4 {
        body += &format!("mov.f32 %f{k}, 0f3F800000;\nmov.u32 %r{k}, {k};\n");
    }
    for _ in 0..64 {
        for k in 0..4 {
            body +=
                &format!("fma.rn.f32 %f{k}, %f{k}, %f{k}, %f{k};\nxor.b32 %r{k}, %r{k}, %r0;\n");
        }
    }
    let wide = Timing {
        fma: 128.0,
        alu: 128.0,
        ..numbers()
    };
    let s = timed(&body, &[], 1024, &wide);
    assert!(s.issue > 0.97, "{}", s.issue);
    assert_eq!(s.worst(), Reason::Slot);

    // Floats alone: their pipe is what warps wait for.
    let body: String = (0..256)
        .map(|k| {
            format!(
                "fma.rn.f32 %f{}, 0f3F800000, 0f3F800000, 0f3F800000;\n",
                k % 16
            )
        })
        .collect();
    let s = timed(&body, &[], 1024, &numbers());
    assert!((s.issue - 0.5).abs() < 0.02, "{}", s.issue);
    assert_eq!(s.worst(), Reason::Pipe);
}

#[test]
fn warps_wait_at_a_barrier_for_the_slowest() {
    let body =
        "mov.u32 %r0, %tid.x;\nsetp.ge.u32 %p0, %r0, 32;\nmov.f32 %f0, 0f3F800000;\n@%p0 bra M;\n"
            .to_string()
            + &"fma.rn.f32 %f0, %f0, %f0, %f0;\n".repeat(256)
            + "M:\nbar.sync 0;";
    let s = timed(&body, &[], 128, &numbers());
    assert_eq!(s.worst(), Reason::Barrier);
    let of = |w: &WarpStalls, r: Reason| w.cycles.iter().find(|c| c.0 == r).map_or(0, |c| c.1);
    assert!(of(&s.each[0], Reason::Barrier) <= 20, "{:?}", s.each[0]);
    for w in &s.each[1..] {
        assert!((1000..1100).contains(&of(w, Reason::Barrier)), "{w:?}");
    }
}

#[test]
fn conflicts_in_shared_memory_take_passes() {
    let body = |stride: u32| {
        format!(
            "mov.u32 %r0, %tid.x;\nmul.lo.u32 %r0, %r0, {stride};\nmov.u32 %r1, sh;\nadd.u32 %r0, %r0, %r1;\n\
             st.shared.u32 [%r0], %r1;\n"
        ) + &"ld.shared.u32 %r2, [%r0];\n".repeat(64)
    };
    let free = timed(&body(4), &[], 32, &numbers());
    let all = timed(&body(128), &[], 32, &numbers());
    // 32 passes each, 65 times.
    assert!(
        all.cycles > 32 * 65 && free.cycles < 64 * 40,
        "{} {}",
        all.cycles,
        free.cycles
    );
    assert_eq!(all.bytes[0], 32.0 * free.bytes[0]);
}

#[test]
fn copies_are_waited_for_in_groups() {
    let body = "ld.param.u64 %d0, [px];\nmov.u32 %r1, sh;\ncp.async.cg.shared.global [%r1], [%d0], 16;\n\
        cp.async.commit_group;\ncp.async.cg.shared.global [%r1+16], [%d0+1024], 16;\n\
        cp.async.commit_group;\ncp.async.wait_group 1;\nld.shared.u32 %r2, [%r1];\ncp.async.wait_all;";
    let t = Timing {
        ctas_per_sm: 1,
        ..numbers()
    };
    let words = chain(64, 16);
    let s = timed(&body.replace("wait_group 1", "wait_group 0"), &words, 1, &t);
    let one = timed(body, &words, 1, &t);
    assert_eq!(s.worst(), Reason::Device);
    assert!((500..600).contains(&s.cycles) && one.cycles <= s.cycles);
}

#[test]
fn stores_take_what_device_memory_takes() {
    // 1024 lanes store 16 times 4 bytes side by side: 64 KiB at 16 bytes a cycle.
    let mut body = "ld.param.u64 %d0, [px];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d1, %r0, 4;\nadd.u64 %d0, %d0, %d1;\n"
        .to_string();
    for k in 0..16 {
        body += &format!("st.global.u32 [%d0+{}], %r0;\n", k * 4096);
    }
    let s = timed(&body, &vec![0; 8192], 1024, &numbers());
    let least = 65536 / 16;
    assert!(
        (least..least + 700).contains(&(s.cycles as i64)),
        "{}",
        s.cycles
    );
    assert_eq!(s.bytes[3], 65536.0);
}

#[test]
fn the_same_launch_gives_the_same_cycles_and_more_sms_take_fewer() {
    let body = "ld.param.u64 %d0, [px];\nmov.u32 %r0, %ctaid.x;\nmul.wide.u32 %d1, %r0, 128;\n\
        add.u64 %d0, %d0, %d1;\nld.global.u64 %d2, [%d0];\nld.global.u64 %d2, [%d2];\nst.global.u64 [%d0], %d2;";
    let text = kernel(body);
    let run = |sms: u32, ctas_per_sm: u32| {
        let mut m = Machine::new();
        let module = m.load(&text).unwrap();
        let at = m.memory.allocate(128 * 64, MemoryKind::Device).unwrap();
        m.memory
            .write(at, &at.to_le_bytes().repeat(16 * 64))
            .unwrap();
        let l = Launch {
            grid: [64, 1, 1],
            block: [32, 1, 1],
            checks: Checks::none(),
            ..Launch::new("k")
        }
        .u64(at);
        let t = Timing {
            sms,
            ctas_per_sm,
            ..numbers()
        };
        m.time(&module, &l, &t).unwrap().1
    };
    assert_eq!(run(4, 2), run(4, 2));
    assert!(run(4, 2).cycles < run(4, 1).cycles);
    assert!(run(8, 1).cycles < run(4, 1).cycles);
    assert_eq!(run(1, 1).warps, 64);
}

#[test]
fn numbers_that_no_machine_has_are_refused() {
    let text = kernel("fma.rn.f32 %f0, 0f3F800000, 0f3F800000, 0f3F800000;");
    let mut m = Machine::new();
    let module = m.load(&text).unwrap();
    let at = m.memory.allocate(8, MemoryKind::Device).unwrap();
    let l = Launch::new("k").u64(at);
    let mut wrong = vec![];
    for change in [
        (|t: &mut Timing| t.sms = 0) as fn(&mut Timing),
        |t| t.ctas_per_sm = 0,
        |t| t.fma = f64::NAN,
        |t| t.l2.read = 0.0,
        |t| t.device.latency = f64::INFINITY,
        |t| t.l1.bytes = -1.0,
    ] {
        let mut t = numbers();
        change(&mut t);
        wrong.push(m.time(&module, &l, &t).unwrap_err().to_string());
    }
    assert!(
        wrong.iter().all(|w| w.contains("cannot be timed")),
        "{wrong:?}"
    );
    let text = text.replace(
        "fma.rn.f32 %f0, 0f3F800000, 0f3F800000, 0f3F800000;",
        "cvt.f64.f32 %e, 0f3F800000;\nadd.f64 %e, %e, %e;",
    );
    let text = text.replace(".reg .pred", ".reg .f64 %e;\n.reg .pred");
    let module = m.load(&text).unwrap();
    let mut t = numbers();
    t.double = 0.0;
    let e = m.time(&module, &l, &t).unwrap_err().to_string();
    assert!(e.contains("line 12 needs a unit"), "{e}");
}

#[test]
fn loads_go_early_as_far_as_registers_reach() {
    // Each sum needs the load before it; an assembler puts the loads first.
    let mut body = "ld.param.u64 %d0, [px];\nmov.f32 %f0, 0f00000000;\n".to_string();
    for k in 0..16 {
        body += &format!("ld.global.f32 %f{}, [%d0+{}];\n", k + 1, k * 128);
        body += &format!("add.rn.f32 %f0, %f0, %f{};\n", k + 1);
    }
    let cycles = |registers: u32| {
        let t = Timing {
            registers,
            ..numbers()
        };
        timed(&body, &vec![0; 512], 1, &t).cycles
    };
    let (many, few, one) = (cycles(64), cycles(16), cycles(2));
    assert!((500..700).contains(&many), "{many}");
    assert!((900..1700).contains(&few), "{few}");
    assert!(one > 15 * 500, "{one}");
    // Nothing goes ahead of a store that may write what it reads.
    let body = "ld.param.u64 %d0, [px];\nmov.u32 %r0, 7;\nld.global.u32 %r1, [%d0];\n\
        st.global.u32 [%d0+2048], %r1;\nld.global.u32 %r2, [%d0+1024];\nadd.u32 %r2, %r2, %r1;\n\
        st.global.u32 [%d0+2056], %r2;";
    let s = timed(body, &vec![0; 512], 1, &numbers());
    assert!(s.cycles > 1000, "{}", s.cycles);
}
