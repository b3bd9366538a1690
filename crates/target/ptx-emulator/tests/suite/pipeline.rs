//! Products in a pipeline: a producer's bulk copies, a warpgroup that multiplies, barriers between them.

use crate::suite::common::*;
use crate::suite::wgmma::{HEAD_90A, descriptor, sum, swizzled};
use shopfloor_ptx_emulator::*;

/// A pipeline's product of 64 by 64: tiles of 8 KB of A and B a step, as they lie in shared memory.
#[derive(Debug, Clone, Copy)]
pub struct Pipeline {
    pub name: &'static str,
    /// Shape's k and types.
    pub form: &'static str,
    pub scales: &'static str,
    /// Bytes of an element.
    bytes: usize,
    /// Whether B lies with n in a row.
    by_n: bool,
}

pub const ALL: [Pipeline; 4] = [
    Pipeline {
        name: "bf16",
        form: "k16.f32.bf16.bf16",
        scales: ", 1, 1, 0, 0",
        bytes: 2,
        by_n: false,
    },
    Pipeline {
        name: "bf16_by_n",
        form: "k16.f32.bf16.bf16",
        scales: ", 1, 1, 0, 1",
        bytes: 2,
        by_n: true,
    },
    Pipeline {
        name: "tf32",
        form: "k8.f32.tf32.tf32",
        scales: ", 1, 1",
        bytes: 4,
        by_n: false,
    },
    Pipeline {
        name: "s8",
        form: "k32.s32.s8.s8",
        scales: "",
        bytes: 1,
        by_n: false,
    },
];

pub const STEPS: usize = 6;

impl Pipeline {
    pub fn source(&self) -> String {
        let d: Vec<String> = (0..32).map(|k| format!("%c{k}")).collect();
        let d = format!("{{{}}}", d.join(", "));
        let mut products = String::new();
        for k in 0..4 {
            let p = if k == 0 { "%add" } else { "%yes" };
            products += &format!(
                "    wgmma.mma_async.sync.aligned.m64n64{} {d}, %x0, %x1, {p}{};\n",
                self.form, self.scales
            );
            products += &format!(
                "    add.u64 %x0, %x0, 2;\n    add.u64 %x1, %x1, {};\n",
                if self.by_n { 128 } else { 2 }
            );
        }
        let store: String = (0..32)
            .map(|i| format!("    st.global.b32 [%pc+{}], %c{i};\n", 512 * i))
            .collect();
        include_str!("ptx/pipeline.txt")
            .replace("NAME", self.name)
            .replace("PRODUCTS", &products)
            .replace("STORE", &store)
    }

    fn descriptors(&self) -> [u64; 2] {
        let leading = if self.by_n { 8192 } else { 16 };
        [descriptor(0, 16, 1024, 1), descriptor(0, leading, 1024, 1)]
    }

    /// Tiles of STEPS steps, and the product.
    fn data(&self) -> (Vec<u8>, Vec<u8>, Vec<i64>) {
        let per = 128 / self.bytes;
        let k = per * STEPS;
        let mut rng = Rng::new(self.bytes as u64);
        let mut matrix =
            || -> Vec<i64> { (0..64 * k).map(|_| (rng.next() % 7) as i64 - 3).collect() };
        let (a, b) = (matrix(), matrix());
        let image = |m: &[i64], by_n: bool| {
            let mut out = vec![0u8; 8192 * STEPS];
            for (i, v) in m.iter().enumerate() {
                let (row, q) = (i / k, i % k);
                let (step, q) = (q / per, q % per);
                let at = match by_n {
                    true => q * 128 + row * self.bytes,
                    false => row * 128 + q * self.bytes,
                };
                let at = step * 8192 + swizzled(at, 1);
                let bits = match self.bytes {
                    2 => (*v as f32).to_bits() >> 16,
                    4 => (*v as f32).to_bits(),
                    _ => *v as u8 as u32,
                };
                out[at..at + self.bytes].copy_from_slice(&bits.to_le_bytes()[..self.bytes]);
            }
            out
        };
        let mut c = vec![0; 64 * 64];
        for m in 0..64 {
            for n in 0..64 {
                c[m * 64 + n] = (0..k).map(|q| a[m * k + q] * b[n * k + q]).sum();
            }
        }
        (image(&a, false), image(&b, self.by_n), c)
    }

    /// A machine with the kernel and its data, the launch, where the product goes, and what it is.
    pub fn ready(&self, source: &str, seed: u64) -> (Bench, Launch, u64, Vec<i64>) {
        let (a, b, want) = self.data();
        let mut bench = Bench::new(&format!("{HEAD_90A}{source}"));
        let (pa, pb) = (bench.bytes(&a), bench.bytes(&b));
        let pc = bench.buffer(64 * 64 * 4);
        let [da, db] = self.descriptors();
        let l = Launch {
            seed,
            shared: 32768,
            ..launch(self.name, 1, 160)
                .u64(pa)
                .u64(pb)
                .u64(pc)
                .u64(da)
                .u64(db)
                .u32(STEPS as u32)
        };
        (bench, l, pc, want)
    }

    fn run(&self, source: &str, seed: u64) -> (Outcome, Vec<u32>, Vec<i64>) {
        let (mut bench, l, pc, want) = self.ready(source, seed);
        let o = bench.run(&l);
        (o, bench.read(pc, 64 * 64), want)
    }
}

#[test]
fn every_kind_in_a_pipeline() {
    for p in ALL {
        for seed in 0..4 {
            let (o, got, want) = p.run(&p.source(), seed);
            assert!(o.clean(), "{}: {:?}", p.name, o.reports);
            for m in 0..64 {
                for n in 0..64 {
                    let v = sum(&got, m, n);
                    let v = match p.bytes {
                        1 => i64::from(v as i32),
                        _ => f32::from_bits(v) as i64,
                    };
                    assert_eq!(v, want[m * 64 + n], "{}: {m},{n}", p.name);
                }
            }
        }
    }
}

#[test]
fn each_wait_of_a_pipeline_is_needed() {
    let p = ALL[0];
    for (from, to, kinds) in [
        // A stage is given back before its products were waited for.
        (
            "wgmma.wait_group.sync.aligned 1;",
            "wgmma.wait_group.sync.aligned 2;",
            &[Finding::SharedRace][..],
        ),
        (
            "@!%p bra EMPTY;",
            "",
            &[Finding::SharedRace, Finding::EarlyRead, Finding::Undefined],
        ),
        (
            "@!%p bra FULL;",
            "",
            &[Finding::SharedRace, Finding::EarlyRead],
        ),
    ] {
        let source = p.source();
        assert!(source.contains(from), "{from}");
        let source = source.replacen(from, to, 1);
        for seed in 0..6 {
            let (o, ..) = p.run(&source, seed);
            let hit = o.reports.iter().any(|r| kinds.contains(&r.kind));
            assert!(hit, "{from} at seed {seed}: {:?}", o.reports);
        }
    }
}

/// Text of one module that an assembler takes.
pub fn fixtures() -> String {
    let all: String = ALL.iter().map(Pipeline::source).collect();
    format!("{HEAD_90A}{all}")
}
