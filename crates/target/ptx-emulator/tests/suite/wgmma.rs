//! Products of warpgroups against plain ones: descriptors, layouts, kinds.

use crate::suite::common::*;
use shopfloor_ptx_emulator::*;

/// The head of modules with what only sm_90a has.
pub const HEAD_90A: &str = "\
.version 8.4
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
";

/// A kernel of one warpgroup: two images of 32 KB go to shared memory, then products follow each other.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    pub n: usize,
    /// Shape and types, such as `m64n128k16.f32.bf16.bf16`, without the part before.
    pub k: usize,
    pub types: &'static str,
    /// What stands behind scale-d.
    pub scales: &'static str,
    /// Whether A comes from registers.
    pub registers: bool,
    /// Products in turn, and by how much each moves the descriptors on, in 16 bytes.
    pub steps: usize,
    pub advance: [u64; 2],
}

impl Form {
    fn sums(&self) -> usize {
        match self.types.starts_with("f16") {
            true => self.n / 4,
            false => self.n / 2,
        }
    }

    /// The products, behind a fence and before a wait.
    fn products(&self) -> String {
        let list = |r: &str, from: usize, n: usize| {
            let all: Vec<String> = (from..from + n).map(|k| format!("%{r}{k}")).collect();
            format!("{{{}}}", all.join(", "))
        };
        let (d, mut out) = (list("c", 0, self.sums()), String::new());
        for s in 0..self.steps {
            let a = match self.registers {
                true => list("a", 4 * s, 4),
                false => "%da".to_string(),
            };
            let p = if s == 0 { "%p" } else { "%q" };
            out += &format!(
                "    wgmma.mma_async.sync.aligned.m64n{}k{}.{} {d}, {a}, %db, {p}{};\n",
                self.n, self.k, self.types, self.scales
            );
            for (x, by) in ["%da", "%db"].iter().zip(self.advance) {
                out += &format!("    add.u64 {x}, {x}, {by};\n");
            }
        }
        out
    }

    /// The whole kernel.
    pub fn source(&self, name: &str) -> String {
        let mut body = String::new();
        for r in 0..if self.registers { 4 * self.steps } else { 0 } {
            body += &format!("    ld.global.b32 %a{r}, [%ga+{}];\n", r * 512);
        }
        let mut store = String::new();
        for i in 0..self.sums() {
            store += &format!("    st.global.b32 [%out+{}], %c{i};\n", 512 * i);
        }
        format!(
            ".visible .entry {name}(.param .u64 pa, .param .u64 pb, .param .u64 pd, .param .u64 qa, .param .u64 qb)
{{
    .reg .pred %p, %q, %more;
    .reg .b32 %a<{na}>, %c<{nc}>, %x<4>;
    .reg .u32 %r<8>;
    .reg .u64 %ga, %gb, %out, %da, %db, %d<4>;
    ld.param.u64 %ga, [pa];
    ld.param.u64 %gb, [pb];
    ld.param.u64 %out, [pd];
    ld.param.u64 %da, [qa];
    ld.param.u64 %db, [qb];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mul.lo.u32 %r2, %r0, 16;
COPY:
    cvt.u64.u32 %d0, %r2;
    add.u64 %d1, %ga, %d0;
    ld.global.v4.b32 {{%x0, %x1, %x2, %x3}}, [%d1];
    add.u32 %r3, %r1, %r2;
    st.shared.v4.b32 [%r3], {{%x0, %x1, %x2, %x3}};
    add.u64 %d1, %gb, %d0;
    ld.global.v4.b32 {{%x0, %x1, %x2, %x3}}, [%d1];
    st.shared.v4.b32 [%r3+32768], {{%x0, %x1, %x2, %x3}};
    add.u32 %r2, %r2, 2048;
    setp.lt.u32 %more, %r2, 32768;
    @%more bra COPY;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    // The descriptors given are those of shared memory that begins at 0.
    shr.u32 %r4, %r1, 4;
    cvt.u64.u32 %d2, %r4;
    add.u64 %da, %da, %d2;
    add.u64 %db, %db, %d2;
    add.u64 %db, %db, 2048;
    mul.wide.u32 %d3, %r0, 4;
    add.u64 %ga, %ga, %d3;
{body}    setp.ne.u32 %p, %r0, %r0;
    setp.eq.u32 %q, %r0, %r0;
    wgmma.fence.sync.aligned;
{products}    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    add.u64 %out, %out, %d3;
{store}    ret;
}}
",
            na = 4 * self.steps,
            nc = self.sums(),
            products = self.products(),
        )
    }

    /// Runs the kernel on two images; sums by rows.
    fn run(&self, a: &[u8], b: &[u8], descriptors: [u64; 2]) -> (Outcome, Vec<u32>) {
        let source = format!("{HEAD_90A}{}", self.source("product"));
        let mut bench = Bench::new(&source);
        let (pa, pb) = (bench.bytes(a), bench.bytes(b));
        let pd = bench.buffer(512 * self.sums());
        let l = Launch {
            shared: 65536,
            ..launch("product", 1, 128)
                .u64(pa)
                .u64(pb)
                .u64(pd)
                .u64(descriptors[0])
                .u64(descriptors[1])
        };
        let o = bench.clean(&l);
        (o, bench.read(pd, 128 * self.sums()))
    }
}

/// Element (m, n) of what a kernel stored register by register.
pub fn sum(got: &[u32], m: usize, n: usize) -> u32 {
    let (w, g, h) = (m / 16, m % 8, m / 8 % 2);
    let (j, t, b) = (n / 8, n % 8 / 2, n % 2);
    got[(4 * j + 2 * h + b) * 128 + 32 * w + 4 * g + t]
}

/// A descriptor of an image at the start of its place.
pub fn descriptor(at: u64, leading: u64, stride: u64, swizzle: u64) -> u64 {
    at >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | swizzle << 62
}

fn width(swizzle: u64) -> usize {
    [32, 128, 64, 32][swizzle as usize]
}

pub fn swizzled(a: usize, swizzle: u64) -> usize {
    a ^ (a >> 3 & [0, 0x70, 0x30, 0x10][swizzle as usize])
}

/// Byte of element (mn, k) of an image; `e` bytes an element.
fn place(
    mn_major: bool,
    sw: u64,
    e: usize,
    (mn, k): (usize, usize),
    [lbo, sbo]: [u64; 2],
) -> usize {
    let (lbo, sbo) = (lbo as usize, sbo as usize);
    let w = width(sw);
    match (mn_major, sw) {
        (false, 0) => mn / 8 * sbo + k * e / 16 * lbo + mn % 8 * 16 + k * e % 16,
        (false, _) => swizzled(mn / 8 * sbo + mn % 8 * w + k * e, sw),
        (true, 0) => mn / 8 * sbo + k / 8 * lbo + k % 8 * 16 + mn % 8 * e,
        (true, _) => {
            let c = w / e;
            let at = mn / c * lbo + k / 8 * sbo + k % 8 * w + mn % c * e;
            swizzled(at, sw)
        }
    }
}

/// Small whole numbers, by rows of `columns`.
fn numbers(seed: u64, rows: usize, columns: usize, least: i64) -> Vec<i64> {
    let mut rng = Rng::new(seed);
    (0..rows * columns)
        .map(|_| (rng.next() % 9) as i64 + least)
        .collect()
}

/// The bits of a number, and how many bytes it has.
fn bits(ty: &str, v: i64) -> (u32, usize) {
    match ty {
        "f16" => (u32::from(f16(v as f32)), 2),
        "bf16" => ((v as f32).to_bits() >> 16, 2),
        "tf32" => ((v as f32).to_bits(), 4),
        _ => (v as u8 as u32, 1),
    }
}

fn image(ty: &str, m: &[i64], columns: usize, at: impl Fn(usize, usize) -> usize) -> Vec<u8> {
    // What lies between must not be touched: NaN.
    let mut out = vec![0x7f; 32768];
    for (i, v) in m.iter().enumerate() {
        let (b, bytes) = bits(ty, *v);
        let at = at(i / columns, i % columns);
        out[at..at + bytes].copy_from_slice(&b.to_le_bytes()[..bytes]);
    }
    out
}

/// The form of the sixteen cases.
const CASE: Form = Form {
    n: 128,
    k: 16,
    types: "f32.bf16.bf16",
    scales: ", 1, 1, 0, 0",
    registers: false,
    steps: 1,
    advance: [0, 0],
};

/// A case: which operand is under test, whether it is MN-major, its swizzle, how far its start is moved on.
fn case(op: usize, major: bool, sw: u64, advanced: bool) {
    let mn = [64, 128][op];
    let w = width(sw) as u64;
    let strides: [u64; 2] = match (major, sw) {
        (false, 0) => [128, 256],
        (false, _) => [16, 8 * w],
        (true, 0) => [128 * (mn as u64 / 8), 128],
        (true, _) => [16 * w, 8 * w],
    };
    let k_all = if !major && sw > 0 { w as usize / 2 } else { 16 };
    let (a, b) = (numbers(1, 64, 64, -4), numbers(2, 128, 64, -4));
    let plain = |m: &[i64]| image("bf16", m, 64, |i, q| place(false, 1, 2, (i, q), [16, 1024]));
    let test = |m: &[i64]| {
        let few: Vec<i64> = m.chunks(64).flat_map(|r| r[..k_all].to_vec()).collect();
        image("bf16", &few, k_all, |i, q| {
            place(major, sw, 2, (i, q), strides)
        })
    };
    let start = if advanced { 32 } else { 0 };
    let (own, other) = (
        descriptor(start, strides[0], strides[1], sw),
        descriptor(start, 16, 1024, 1),
    );
    let (ia, ib, d) = match op {
        0 => (test(&a), plain(&b), [own, other]),
        _ => (plain(&a), test(&b), [other, own]),
    };
    let scales = match (op, major) {
        (0, true) => ", 1, 1, 1, 0",
        (1, true) => ", 1, 1, 0, 1",
        _ => ", 1, 1, 0, 0",
    };
    let (_, got) = Form { scales, ..CASE }.run(&ia, &ib, d);
    let k0 = start as usize / 2;
    for m in 0..64 {
        for n in 0..128 {
            let want: i64 = (k0..k0 + 16).map(|q| a[m * 64 + q] * b[n * 64 + q]).sum();
            let v = f32::from_bits(sum(&got, m, n));
            assert_eq!(
                v, want as f32,
                "operand {op} MN-major {major} swizzle {sw}: {m},{n}"
            );
        }
    }
}

#[test]
fn descriptors_in_all_sixteen_cases() {
    for op in 0..2 {
        for major in [false, true] {
            for sw in 0..4 {
                case(op, major, sw, false);
            }
        }
    }
}

#[test]
fn starts_move_on_inside_a_swizzled_row() {
    for op in 0..2 {
        for sw in 1..3 {
            case(op, false, sw, true);
        }
    }
}

/// Forms of all kinds: their operands lie with k in a row, in 128-byte rows, B over 8 rows a block.
pub const FORMS: [(&str, Form); 9] = [
    (
        "bf16",
        Form {
            n: 256,
            steps: 4,
            advance: [2, 2],
            ..CASE
        },
    ),
    (
        "narrow",
        Form {
            n: 8,
            steps: 4,
            advance: [2, 2],
            ..CASE
        },
    ),
    (
        "f16",
        Form {
            types: "f32.f16.f16",
            n: 64,
            steps: 3,
            advance: [2, 2],
            ..CASE
        },
    ),
    (
        "halves",
        Form {
            types: "f16.f16.f16",
            n: 40,
            steps: 2,
            advance: [2, 2],
            ..CASE
        },
    ),
    (
        "tf32",
        Form {
            types: "f32.tf32.tf32",
            scales: ", 1, 1",
            k: 8,
            n: 96,
            steps: 4,
            advance: [2, 2],
            ..CASE
        },
    ),
    (
        "s8",
        Form {
            types: "s32.s8.s8",
            scales: "",
            k: 32,
            n: 160,
            steps: 4,
            advance: [2, 2],
            ..CASE
        },
    ),
    (
        "u8",
        Form {
            types: "s32.u8.s8",
            scales: "",
            k: 32,
            n: 24,
            steps: 2,
            advance: [2, 2],
            ..CASE
        },
    ),
    (
        "negated",
        Form {
            scales: ", -1, 1, 0, 0",
            steps: 2,
            advance: [2, 2],
            ..CASE
        },
    ),
    (
        "from_registers",
        Form {
            scales: ", 1, 1, 0",
            registers: true,
            steps: 4,
            advance: [0, 2],
            ..CASE
        },
    ),
];

/// Where element `j` of register `r` of thread `t` lies in A.
fn factor(t: usize, r: usize, j: usize, e: usize) -> (usize, usize) {
    let (w, l) = (t / 32, t % 32);
    (
        16 * w + l / 4 + 8 * (r % 2),
        e * (l % 4) + j + 4 * e * (r / 2),
    )
}

#[test]
fn every_kind_multiplies() {
    for (name, form) in FORMS {
        let mut types = form.types.split('.').skip(1);
        let (ta, tb) = (types.next().unwrap(), types.next().unwrap());
        let k = form.k * form.steps;
        let least = |t: &str| if t == "u8" { 0 } else { -4 };
        let a = numbers(3, 64, k, least(ta));
        let b = numbers(4, form.n, k, least(tb));
        let e = bits(tb, 0).1;
        let rows =
            |t: &str, m: &[i64]| image(t, m, k, |i, q| place(false, 1, e, (i, q), [16, 1024]));
        let ia = match form.registers {
            false => rows(ta, &a),
            true => {
                let per = 4 / e;
                let mut out = vec![0u8; 32768];
                for s in 0..4 * form.steps {
                    for t in 0..128 {
                        for j in 0..per {
                            let (m, q) = factor(t, s % 4, j, per);
                            let v = bits(ta, a[m * k + s / 4 * form.k + q]).0;
                            let at = (s * 128 + t) * 4 + j * e;
                            out[at..at + e].copy_from_slice(&v.to_le_bytes()[..e]);
                        }
                    }
                }
                out
            }
        };
        let d = descriptor(0, 16, 1024, 1);
        let (o, got) = form.run(&ia, &rows(tb, &b), [d, d]);
        let sign = if name == "negated" { -1 } else { 1 };
        for m in 0..64 {
            for n in 0..form.n {
                let want: i64 = (0..k).map(|q| sign * a[m * k + q] * b[n * k + q]).sum();
                let v = match form.types.split('.').next() {
                    Some("s32") => i64::from(sum(&got, m, n) as i32),
                    Some("f16") => {
                        // Two columns a register.
                        let (w, l) = (m / 16, m % 8 * 4 + n % 8 / 2);
                        let word = got[(n / 8 * 2 + m / 8 % 2) * 128 + 32 * w + l];
                        let h = word >> (16 * (n % 2)) & 0xffff;
                        assert_eq!(h, bits("f16", want).0, "{name}: {m},{n}");
                        continue;
                    }
                    _ => f32::from_bits(sum(&got, m, n)) as i64,
                };
                assert_eq!(v, want, "{name}: {m},{n}");
            }
        }
        let classes = &o.counters.classes;
        let products = classes.iter().find(|c| c.0 == Class::Matrix).unwrap().1;
        assert_eq!(products, 4 * form.steps as u64, "{name}");
    }
}

#[test]
fn b_as_it_comes_moves_on_by_rows_of_k() {
    // 64 of k by 128 of n: two chunks of 64 columns.
    let form = Form {
        scales: ", 1, 1, 0, 1",
        steps: 4,
        advance: [2, 128],
        ..CASE
    };
    let (a, b) = (numbers(5, 64, 64, -4), numbers(6, 128, 64, -4));
    let ia = image("bf16", &a, 64, |i, q| {
        place(false, 1, 2, (i, q), [16, 1024])
    });
    let ib = image("bf16", &b, 64, |i, q| {
        place(true, 1, 2, (i, q), [8192, 1024])
    });
    let d = [descriptor(0, 16, 1024, 1), descriptor(0, 8192, 1024, 1)];
    let (_, got) = form.run(&ia, &ib, d);
    for m in 0..64 {
        for n in 0..128 {
            let want: i64 = (0..64).map(|q| a[m * 64 + q] * b[n * 64 + q]).sum();
            assert_eq!(f32::from_bits(sum(&got, m, n)), want as f32, "{m},{n}");
        }
    }
}

#[test]
fn tf32_leaves_the_low_bits_out() {
    let form = Form {
        types: "f32.tf32.tf32",
        scales: ", 1, 1",
        k: 8,
        n: 8,
        ..CASE
    };
    let one = |v: u32| -> Vec<u8> {
        let words = (0..8192).map(|k| if k == 0 { v } else { 0 });
        words.flat_map(u32::to_le_bytes).collect()
    };
    let d = descriptor(0, 16, 1024, 1);
    let (_, got) = form.run(&one(0x3f80_1fff), &one(0x4000_1000), [d, d]);
    assert_eq!(f32::from_bits(sum(&got, 0, 0)), 2.0);
}

/// Text of one module that an assembler takes.
pub fn fixtures() -> String {
    let all: String = FORMS.iter().map(|(n, f)| f.source(n)).collect();
    format!("{HEAD_90A}{all}")
}
