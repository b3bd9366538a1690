//! Damaged text is refused or runs into a finding; nothing panics, hangs or takes memory without end.

use crate::suite::common::*;
use crate::suite::pipeline;
use shopfloor_ptx_emulator::*;

const SOURCES: [&str; 9] = [
    include_str!("ptx/bulk.ptx"),
    include_str!("ptx/cluster.ptx"),
    include_str!("ptx/faults.ptx"),
    include_str!("ptx/gemm.ptx"),
    include_str!("ptx/matrix.ptx"),
    include_str!("ptx/mbarrier.ptx"),
    include_str!("ptx/memory.ptx"),
    include_str!("ptx/order.ptx"),
    include_str!("ptx/warps.ptx"),
];

/// Words and signs of a text, with what stands between them.
fn tokens(source: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut last = ' ';
    for c in source.chars() {
        let word = |c: char| c.is_ascii_alphanumeric() || "_$%".contains(c);
        match out.last_mut() {
            Some(t) if word(c) && word(last) => t.push(c),
            _ => out.push(c.to_string()),
        }
        last = c;
    }
    out
}

fn damaged(all: &[String], rng: &mut Rng) -> String {
    let mut t = all.to_vec();
    for _ in 0..1 + rng.next() % 3 {
        let at = (rng.next() % t.len() as u64) as usize;
        let from = (rng.next() % t.len() as u64) as usize;
        match rng.next() % 5 {
            0 => {
                t.remove(at);
            }
            1 => t[at] = t[from].clone(),
            2 => t.swap(at, from),
            3 => {
                let copy = t[from].clone();
                t.insert(at, copy);
            }
            _ => {
                let odd = [
                    "0",
                    "-1",
                    "4294967295",
                    "0x7fffffffffffffff",
                    "%r0",
                    "{",
                    "]",
                    "é",
                    "64",
                ];
                t[at] = odd[(rng.next() % odd.len() as u64) as usize].to_string();
            }
        }
    }
    t.concat()
}

#[test]
fn damaged_text_never_panics() {
    let mut rng = Rng::new(20);
    let products = pipeline::fixtures();
    for source in SOURCES.into_iter().chain([products.as_str()]) {
        let all = tokens(source);
        for _ in 0..150 {
            let text = damaged(&all, &mut rng);
            let mut machine = Machine::new();
            let Ok(module) = machine.load(&text) else {
                continue;
            };
            let buffer = machine
                .memory
                .allocate(1 << 14, MemoryKind::Device)
                .unwrap();
            machine.memory.write(buffer, &[1; 1 << 14]).unwrap();
            for kernel in module.kernels() {
                let Ok(params) = module.params(kernel) else {
                    continue;
                };
                let mut l = Launch {
                    grid: [2, 1, 1],
                    block: [64, 1, 1],
                    step_limit: 2000,
                    threads: 1,
                    ..Launch::new(kernel)
                };
                for p in params {
                    let mut bytes = vec![0; p.bytes as usize];
                    match p.bytes {
                        8 => bytes.copy_from_slice(&buffer.to_le_bytes()),
                        _ => bytes.fill(7),
                    }
                    l.args.push(bytes);
                }
                let _ = machine.run(&module, &l);
            }
        }
    }
}
