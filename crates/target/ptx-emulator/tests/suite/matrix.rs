//! `ldmatrix` and `mma.sync` against plain products.

use crate::suite::common::*;

const SOURCE: &str = include_str!("ptx/matrix.ptx");

#[test]
fn a_product_through_shared_memory() {
    let mut rng = Rng::new(7);
    let a: Vec<f32> = (0..256).map(|_| rng.small()).collect();
    let b: Vec<f32> = (0..128).map(|_| rng.small()).collect();
    let c: Vec<f32> = (0..128).map(|_| rng.small()).collect();
    let halves = |v: &[f32]| -> Vec<u8> { v.iter().flat_map(|v| f16(*v).to_le_bytes()).collect() };
    let mut bench = Bench::new(SOURCE);
    let (pa, pb, pc) = (
        bench.bytes(&halves(&a)),
        bench.bytes(&halves(&b)),
        bench.floats(&c),
    );
    let pd = bench.buffer(512);
    let l = launch("one_product", 1, 32).u64(pa).u64(pb).u64(pc).u64(pd);
    let o = bench.clean(&l);
    let got = bench.read_floats(pd, 128);
    for m in 0..16 {
        for n in 0..8 {
            // b is stored by columns. Products of multiples of 1/256 are exact.
            let want = (0..16).fold(c[m * 8 + n], |s, k| s + a[m * 16 + k] * b[n * 16 + k]);
            assert_eq!(got[m * 8 + n], want, "{m},{n}");
        }
    }
    // Rows of 32 bytes: eight of them lie over two passes.
    let line = line_of(SOURCE, "one_product", "ldmatrix.sync.aligned.m8n8.x4");
    let counts = o.counters.by_line.iter().find(|l| l.0 == line).unwrap().1;
    assert_eq!((counts.wavefronts, counts.conflicts), (8, 4));
}

#[test]
fn ldmatrix_transposes() {
    let mut b = Bench::new(SOURCE);
    let halves: Vec<u8> = (0..64u16).flat_map(|v| v.to_le_bytes()).collect();
    let (p, o) = (b.bytes(&halves), b.buffer(128));
    b.clean(&launch("transpose", 1, 32).u64(p).u64(o));
    let got = b.read(o, 32);
    for (l, v) in got.iter().enumerate() {
        let (row, column) = (l as u32 % 4 * 2, l as u32 / 4);
        assert_eq!(
            (v & 0xffff, v >> 16),
            (row * 8 + column, (row + 1) * 8 + column)
        );
    }
}

/// A kernel of one warp that loads the registers of a, b and c, multiplies and stores d.
pub fn product(form: &str, [na, nb, nc]: [usize; 3]) -> String {
    let list = |r: &str, n: usize| {
        let all: Vec<String> = (0..n).map(|k| format!("%{r}{k}")).collect();
        format!("{{{}}}", all.join(", "))
    };
    let mut body = String::new();
    for (r, n) in [("a", na), ("b", nb), ("c", nc)] {
        body += &format!("    ld.param.u64 %d0, [p{r}];\n    mad.wide.u32 %d0, %l, 4, %d0;\n");
        for k in 0..n {
            body += &format!("    ld.global.b32 %{r}{k}, [%d0+{}];\n", k * 128);
        }
    }
    let (a, b, c) = (list("a", na), list("b", nb), list("c", nc));
    body += &format!("    mma.sync.aligned.{form} {c}, {a}, {b}, {c};\n");
    for k in 0..nc {
        body += &format!("    st.global.b32 [%d0+{}], %c{k};\n", k * 128);
    }
    format!(
        "{HEAD}.visible .entry product(.param .u64 pa, .param .u64 pb, .param .u64 pc)\n{{\n    \
         .reg .b32 %a<4>, %b<2>, %c<4>;\n    .reg .u32 %l;\n    .reg .u64 %d<2>;\n    \
         mov.u32 %l, %laneid;\n{body}    ret;\n}}\n"
    )
}

/// Forms, registers of a, b and c.
pub const FORMS: [(&str, [usize; 3]); 11] = [
    ("m16n8k8.row.col.f32.f16.f16.f32", [2, 1, 4]),
    ("m16n8k16.row.col.f32.f16.f16.f32", [4, 2, 4]),
    ("m16n8k16.row.col.f16.f16.f16.f16", [4, 2, 2]),
    ("m16n8k8.row.col.f32.bf16.bf16.f32", [2, 1, 4]),
    ("m16n8k16.row.col.f32.bf16.bf16.f32", [4, 2, 4]),
    ("m16n8k4.row.col.f32.tf32.tf32.f32", [2, 1, 4]),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", [4, 2, 4]),
    ("m16n8k16.row.col.s32.s8.s8.s32", [2, 1, 4]),
    ("m16n8k32.row.col.s32.s8.s8.s32", [4, 2, 4]),
    ("m16n8k32.row.col.s32.u8.s8.s32", [4, 2, 4]),
    ("m16n8k32.row.col.satfinite.s32.u8.u8.s32", [4, 2, 4]),
];

/// Where element `j` of register `r` of lane `l` lies: row and column of a, or column and row of b.
fn place(l: usize, r: usize, j: usize, e: usize, rows: usize) -> (usize, usize) {
    let (group, member) = (l / 4, l % 4);
    (group + 8 * (r % rows), e * member + j + 4 * e * (r / rows))
}

#[test]
fn every_form_multiplies() {
    for (form, [na, nb, nc]) in FORMS {
        let ty = form.split('.').rev().nth(2).unwrap();
        let tb = form.split('.').rev().nth(1).unwrap();
        let e = match ty {
            "tf32" => 1,
            "s8" | "u8" => 4,
            _ => 2,
        };
        let k = nb * 4 * e;
        let mut rng = Rng::new(form.len() as u64);
        // Small integers are exact in every type.
        let signed = |t: &str| !t.starts_with('u');
        let mut number = |t: &str| (rng.next() % 9) as i64 - if signed(t) { 4 } else { 0 };
        let a: Vec<i64> = (0..16 * k).map(|_| number(ty)).collect();
        let b: Vec<i64> = (0..8 * k).map(|_| number(tb)).collect();
        let c: Vec<i64> = (0..128).map(|_| number("s")).collect();
        let bits = |v: i64, t: &str| -> u32 {
            match t {
                "f16" => u32::from(f16(v as f32)),
                "bf16" => (v as f32).to_bits() >> 16,
                "tf32" => (v as f32).to_bits(),
                _ => v as u8 as u32,
            }
        };
        let width = 32 / e as u32;
        let pack = |n: usize, rows: usize, t: &str, m: &[i64]| -> Vec<u32> {
            let mut out = Vec::new();
            for r in 0..n {
                for l in 0..32 {
                    let word = (0..e).fold(0u64, |w, j| {
                        let (row, col) = place(l, r, j, e, rows);
                        w | u64::from(bits(m[row * k + col], t)) << (width * j as u32)
                    });
                    out.push(word as u32);
                }
            }
            out
        };
        let half = nc == 2;
        let accumulators: Vec<u32> = (0..nc)
            .flat_map(|r| {
                let c = &c;
                (0..32).map(move |l: usize| {
                    let at = |i: usize| {
                        let (row, col) = (l / 4 + 8 * (i / 2), l % 4 * 2 + i % 2);
                        c[row * 8 + col]
                    };
                    match (half, e) {
                        (true, _) => bits(at(2 * r), "f16") | bits(at(2 * r + 1), "f16") << 16,
                        (_, 4) => at(r) as u32,
                        _ => (at(r) as f32).to_bits(),
                    }
                })
            })
            .collect();
        let source = product(form, [na, nb, nc]);
        let mut bench = Bench::new(&source);
        let pa = bench.words(&pack(na, 2, ty, &a));
        let pb = bench.words(&pack(nb, 1, tb, &b));
        let pc = bench.words(&accumulators);
        bench.clean(&launch("product", 1, 32).u64(pa).u64(pb).u64(pc));
        let got = bench.read(pc, nc * 32);
        for l in 0..32 {
            for i in 0..4 {
                let (m, n) = (l / 4 + 8 * (i / 2), l % 4 * 2 + i % 2);
                let want = (0..k).fold(c[m * 8 + n], |s, x| s + a[m * k + x] * b[n * k + x]);
                let v = match (half, e) {
                    (true, _) => got[(i / 2) * 32 + l] >> (16 * (i % 2)) & 0xffff,
                    _ => got[i * 32 + l],
                };
                let want = match (half, e) {
                    (true, _) => bits(want, "f16"),
                    (_, 4) => want as u32,
                    _ => (want as f32).to_bits(),
                };
                assert_eq!(v, want, "{form} lane {l} register {i}");
            }
        }
    }
}

/// Halves of a transposed tile, stored by fragments: sm_90 and on.
pub const STORED: &str = "\
.version 7.8
.target sm_90
.address_size 64
.visible .entry stored(.param .u64 o)
{
    .reg .b32 %a<4>, %r<6>;
    .reg .u64 %d<3>;
    .shared .align 16 .b8 tile[256];
    ld.param.u64 %d0, [o];
    mov.u32 %r0, %laneid;
    mul.lo.u32 %r1, %r0, 2;
    add.u32 %r2, %r1, 1;
    shl.b32 %r3, %r2, 16;
    or.b32 %a0, %r3, %r1;
    mov.b32 %a1, %a0;
    mov.u32 %r4, tile;
    and.b32 %r5, %r0, 15;
    mad.lo.u32 %r5, %r5, 16, %r4;
    stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r5], {%a0, %a1};
    bar.sync 0;
    mad.lo.u32 %r5, %r0, 8, %r4;
    ld.shared.v2.b32 {%a2, %a3}, [%r5];
    mul.wide.u32 %d1, %r0, 8;
    add.u64 %d0, %d0, %d1;
    st.global.v2.b32 [%d0], {%a2, %a3};
    ret;
}
";

#[test]
fn fragments_are_stored_as_they_are_loaded() {
    let mut b = Bench::new(STORED);
    let o = b.buffer(256);
    b.clean(&launch("stored", 1, 32).u64(o));
    let want: Vec<u32> = (0..64u32)
        .map(|k| (k % 32) * 2)
        .map(|k| (k + 1) << 16 | k)
        .collect();
    assert_eq!(b.read(o, 64), want);
}

#[test]
fn products_need_the_whole_warp() {
    use shopfloor_ptx_emulator::Finding;
    let source = product("m16n8k8.row.col.f32.f16.f16.f32", [2, 1, 4]);
    let mut b = Bench::new(&source);
    let p: Vec<u64> = (0..3).map(|_| b.words(&[0; 128])).collect();
    let o = b.run(&launch("product", 1, 16).u64(p[0]).u64(p[1]).u64(p[2]));
    only(
        &o,
        Finding::WarpMask,
        line_of(&source, "product", "mma.sync"),
    );
}
