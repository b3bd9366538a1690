//! Integer instructions against Rust, over edge values.

use crate::suite::common::*;

/// One instruction on three operands of `bits` bits that gives `out` bits: %d from %a, %b, %c.
pub struct Case {
    pub name: &'static str,
    pub bits: u32,
    pub out: u32,
    pub text: &'static str,
    pub expect: fn(u64, u64, u64) -> u64,
}

/// A module whose kernel computes `text` for every thread.
pub fn module(name: &str, bits: u32, out: u32, text: &str) -> String {
    let (n, m) = (bits / 8, out / 8);
    format!(
        "{HEAD}
.visible .entry {name}(.param .u64 po, .param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{{
    .reg .pred %p, %q;
    .reg .u32 %i, %n, %x, %y;
    .reg .u64 %t, %u;
    .reg .b{bits} %a, %b, %c;
    .reg .b{out} %d;
    .reg .b16 %h<4>;
    .reg .b32 %w<4>;
    .reg .b64 %l<4>;
    mov.u32 %x, %ctaid.x;
    mov.u32 %y, %ntid.x;
    mov.u32 %i, %tid.x;
    mad.lo.u32 %i, %x, %y, %i;
    ld.param.u32 %n, [pn];
    setp.ge.u32 %p, %i, %n;
    @%p ret;
    ld.param.u64 %t, [pa];
    mad.wide.u32 %t, %i, {n}, %t;
    ld.global.b{bits} %a, [%t];
    ld.param.u64 %t, [pb];
    mad.wide.u32 %t, %i, {n}, %t;
    ld.global.b{bits} %b, [%t];
    ld.param.u64 %t, [pc];
    mad.wide.u32 %t, %i, {n}, %t;
    ld.global.b{bits} %c, [%t];
    {text}
    ld.param.u64 %t, [po];
    mad.wide.u32 %t, %i, {m}, %t;
    st.global.b{out} [%t], %d;
    ret;
}}
"
    )
}

/// Runs a case over all triples of `values`.
pub fn check(
    name: &str,
    (bits, out): (u32, u32),
    text: &str,
    values: &[u64],
    same: impl Fn(u64, u64, u64, u64) -> Result<(), String>,
) {
    let mut triples = Vec::new();
    let uses = |r: &str| text.contains(r);
    let one = &values[..1];
    for a in values {
        for b in if uses("%b") { values } else { one } {
            for c in if uses("%c") { values } else { one } {
                triples.push((*a, *b, *c));
            }
        }
    }
    let mut b = Bench::new(&module(name, bits, out, text));
    let n = (bits / 8) as usize;
    let m = (out / 8) as usize;
    let mut column = |f: fn(&(u64, u64, u64)) -> u64| {
        let all: Vec<u8> = triples
            .iter()
            .flat_map(|t| f(t).to_le_bytes()[..n].to_vec())
            .collect();
        b.bytes(&all)
    };
    let (pa, pb, pc) = (column(|t| t.0), column(|t| t.1), column(|t| t.2));
    let po = b.buffer(triples.len() * m);
    let l = launch(name, triples.len().div_ceil(128) as u32, 128)
        .u64(po)
        .u64(pa)
        .u64(pb)
        .u64(pc)
        .u32(triples.len() as u32);
    b.clean(&l);
    let got = b.machine.memory.read(po, triples.len() * m).unwrap();
    for (k, (x, y, z)) in triples.iter().enumerate() {
        let mut v = [0u8; 8];
        v[..m].copy_from_slice(&got[k * m..(k + 1) * m]);
        if let Err(e) = same(*x, *y, *z, u64::from_le_bytes(v)) {
            panic!("{name}: {text}\n a={x:#x} b={y:#x} c={z:#x}: {e}");
        }
    }
}

fn mask(bits: u32) -> u64 {
    if bits == 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

fn edges(bits: u32) -> Vec<u64> {
    let m = mask(bits);
    [
        0u64,
        1,
        2,
        7,
        31,
        32,
        33,
        0x1234_5678_9abc_def0,
        0xdead_beef_0bad_cafe,
        m,
        m >> 1,
        (m >> 1) + 1,
        m - 1,
        0x0080_ff7f_8001_00ff,
    ]
    .iter()
    .map(|v| v & m)
    .collect()
}

macro_rules! cases {
    ($($name:ident $bits:literal $out:literal $text:literal |$a:ident, $b:ident, $c:ident| $e:expr;)*) => {
        pub const CASES: &[Case] = &[$(Case {
            name: stringify!($name),
            bits: $bits,
            out: $out,
            text: $text,
            expect: |$a, $b, $c| {
                let _ = ($a, $b, $c);
                ($e) as u64
            },
        }),*];
        $(#[test]
        fn $name() {
            let c = CASES.iter().find(|c| c.name == stringify!($name)).unwrap();
            check(c.name, (c.bits, c.out), c.text, &edges(c.bits), |x, y, z, got| {
                let want = (c.expect)(x, y, z) & mask(c.out);
                if got == want { Ok(()) } else { Err(format!("got {got:#x}, want {want:#x}")) }
            });
        })*
    };
}

fn s32(v: u64) -> i32 {
    v as i32
}

fn lop(lut: u32, a: u32, b: u32, c: u32) -> u32 {
    (0..32).fold(0, |r, k| {
        let i = (a >> k & 1) << 2 | (b >> k & 1) << 1 | (c >> k & 1);
        r | (lut >> i & 1) << k
    })
}

cases! {
    add_u32 32 32 "add.u32 %d, %a, %b;" |a, b, c| (a as u32).wrapping_add(b as u32);
    sub_s32 32 32 "sub.s32 %d, %a, %b;" |a, b, c| (a as u32).wrapping_sub(b as u32);
    add_sat_s32 32 32 "add.sat.s32 %d, %a, %b;" |a, b, c| s32(a).saturating_add(s32(b)) as u32;
    sub_sat_s32 32 32 "sub.sat.s32 %d, %a, %b;" |a, b, c| s32(a).saturating_sub(s32(b)) as u32;
    mul_lo_s32 32 32 "mul.lo.s32 %d, %a, %b;" |a, b, c| (a as u32).wrapping_mul(b as u32);
    mul_hi_s32 32 32 "mul.hi.s32 %d, %a, %b;" |a, b, c| ((s32(a) as i64 * s32(b) as i64) >> 32) as u32;
    mul_hi_u32 32 32 "mul.hi.u32 %d, %a, %b;" |a, b, c| (a * b) >> 32;
    mul_wide_s32 32 64 "mul.wide.s32 %d, %a, %b;" |a, b, c| s32(a) as i64 * s32(b) as i64;
    mul_wide_u16 16 32 "mul.wide.u16 %d, %a, %b;" |a, b, c| a * b;
    mul_wide_s16 16 32 "mul.wide.s16 %d, %a, %b;" |a, b, c| (a as i16 as i32 * b as i16 as i32) as u32;
    mad_lo_u32 32 32 "mad.lo.u32 %d, %a, %b, %c;" |a, b, c| (a as u32).wrapping_mul(b as u32).wrapping_add(c as u32);
    mad_hi_u32 32 32 "mad.hi.u32 %d, %a, %b, %c;" |a, b, c| ((a * b >> 32) as u32).wrapping_add(c as u32);
    mad_hi_sat_s32 32 32 "mad.hi.sat.s32 %d, %a, %b, %c;" |a, b, c| ((s32(a) as i64 * s32(b) as i64 >> 32) as i32).saturating_add(s32(c)) as u32;
    mad_wide_s32 32 64 "cvt.u64.u32 %l0, %c; mad.wide.s32 %d, %a, %b, %l0;" |a, b, c| (s32(a) as i64 * s32(b) as i64).wrapping_add(c as i64);
    mul24_lo_s32 32 32 "mul24.lo.s32 %d, %a, %b;" |a, b, c| {
        let t = |v: u64| ((v as u32) << 8) as i32 as i64 >> 8;
        (t(a) * t(b)) as u32
    };
    mad24_lo_u32 32 32 "mad24.lo.u32 %d, %a, %b, %c;" |a, b, c| (((a & 0xffffff) * (b & 0xffffff)) as u32).wrapping_add(c as u32);
    sad_s32 32 32 "sad.s32 %d, %a, %b, %c;" |a, b, c| s32(a).abs_diff(s32(b)).wrapping_add(c as u32);
    sad_u16 16 16 "sad.u16 %d, %a, %b, %c;" |a, b, c| (a as u16).abs_diff(b as u16).wrapping_add(c as u16);
    div_s32 32 32 "or.b32 %b, %b, 1; div.s32 %d, %a, %b;" |a, b, c| s32(a).wrapping_div(s32(b) | 1) as u32;
    div_u32 32 32 "or.b32 %b, %b, 1; div.u32 %d, %a, %b;" |a, b, c| a as u32 / (b as u32 | 1);
    rem_s32 32 32 "or.b32 %b, %b, 1; rem.s32 %d, %a, %b;" |a, b, c| s32(a).wrapping_rem(s32(b) | 1) as u32;
    rem_u64 64 64 "or.b64 %b, %b, 1; rem.u64 %d, %a, %b;" |a, b, c| a % (b | 1);
    div_s64 64 64 "or.b64 %b, %b, 1; div.s64 %d, %a, %b;" |a, b, c| (a as i64).wrapping_div(b as i64 | 1);
    div_s16 16 16 "or.b16 %b, %b, 1; div.s16 %d, %a, %b;" |a, b, c| (a as i16).wrapping_div(b as i16 | 1) as u16;
    min_s32 32 32 "min.s32 %d, %a, %b;" |a, b, c| s32(a).min(s32(b)) as u32;
    max_u32 32 32 "max.u32 %d, %a, %b;" |a, b, c| (a as u32).max(b as u32);
    max_s64 64 64 "max.s64 %d, %a, %b;" |a, b, c| (a as i64).max(b as i64);
    min_s16 16 16 "min.s16 %d, %a, %b;" |a, b, c| (a as i16).min(b as i16) as u16;
    add_s16 16 16 "add.s16 %d, %a, %b;" |a, b, c| (a as u16).wrapping_add(b as u16);
    mul_hi_s16 16 16 "mul.hi.s16 %d, %a, %b;" |a, b, c| ((a as i16 as i32 * b as i16 as i32) >> 16) as u16;
    mul_lo_u64 64 64 "mul.lo.u64 %d, %a, %b;" |a, b, c| a.wrapping_mul(b);
    mul_hi_s64 64 64 "mul.hi.s64 %d, %a, %b;" |a, b, c| (a as i64 as i128 * b as i64 as i128) >> 64;
    mad_lo_s64 64 64 "mad.lo.s64 %d, %a, %b, %c;" |a, b, c| a.wrapping_mul(b).wrapping_add(c);
    neg_s32 32 32 "neg.s32 %d, %a;" |a, b, c| (a as u32).wrapping_neg();
    neg_s16 16 16 "neg.s16 %d, %a;" |a, b, c| (a as u16).wrapping_neg();
    abs_s64 64 64 "abs.s64 %d, %a;" |a, b, c| (a as i64).wrapping_abs();
    not_b64 64 64 "not.b64 %d, %a;" |a, b, c| !a;
    cnot_b32 32 32 "cnot.b32 %d, %a;" |a, b, c| a == 0;
    xor_b16 16 16 "xor.b16 %d, %a, %b;" |a, b, c| a ^ b;
    shl_b32 32 32 "shl.b32 %d, %a, %b;" |a, b, c| if b > 31 { 0 } else { a << b };
    shr_s32 32 32 "shr.s32 %d, %a, %b;" |a, b, c| (s32(a) >> b.min(31)) as u32;
    shr_u32 32 32 "shr.u32 %d, %a, %b;" |a, b, c| if b > 31 { 0 } else { a >> b };
    shr_s64 64 64 "cvt.u32.u64 %w0, %b; shr.s64 %d, %a, %w0;" |a, b, c| (a as i64) >> (b as u32).min(63);
    shl_b64 64 64 "cvt.u32.u64 %w0, %b; shl.b64 %d, %a, %w0;" |a, b, c| if b as u32 > 63 { 0 } else { a << (b as u32) };
    shr_s16 16 16 "cvt.u32.u16 %w0, %b; shr.s16 %d, %a, %w0;" |a, b, c| ((a as i16) >> b.min(15)) as u16;
    popc_b32 32 32 "popc.b32 %d, %a;" |a, b, c| a.count_ones();
    popc_b64 64 32 "popc.b64 %d, %a;" |a, b, c| a.count_ones();
    clz_b32 32 32 "clz.b32 %d, %a;" |a, b, c| (a as u32).leading_zeros();
    clz_b64 64 32 "clz.b64 %d, %a;" |a, b, c| a.leading_zeros();
    brev_b32 32 32 "brev.b32 %d, %a;" |a, b, c| (a as u32).reverse_bits();
    bfind_u32 32 32 "bfind.u32 %d, %a;" |a, b, c| if a == 0 { u32::MAX } else { 31 - (a as u32).leading_zeros() };
    bfind_s32 32 32 "bfind.s32 %d, %a;" |a, b, c| {
        let v = if s32(a) < 0 { !(a as u32) } else { a as u32 };
        if v == 0 { u32::MAX } else { 31 - v.leading_zeros() }
    };
    bfind_shift_u64 64 32 "bfind.shiftamt.u64 %d, %a;" |a, b, c| if a == 0 { u32::MAX } else { a.leading_zeros() };
    bfe_u32 32 32 "bfe.u32 %d, %a, %b, %c;" |a, b, c| {
        let (p, n) = (b & 255, c & 255);
        let v = if p > 31 { 0 } else { a >> p };
        if n > 31 { v } else { v & ((1 << n) - 1) }
    };
    bfe_s32 32 32 "bfe.s32 %d, %a, %b, %c;" |a, b, c| {
        let (p, n) = ((b & 255) as u32, (c & 255) as u32);
        if n == 0 { 0 } else {
            let wide = s32(a) as i64 >> p.min(31);
            if n > 31 { wide as u32 } else { ((wide << (64 - n)) >> (64 - n)) as u32 }
        }
    };
    bfi_b32 32 32 "bfi.b32 %d, %a, %b, 5, 9;" |a, b, c| (b & !(0x1ff << 5)) | (a & 0x1ff) << 5;
    lop3_e8 32 32 "lop3.b32 %d, %a, %b, %c, 0xe8;" |a, b, c| lop(0xe8, a as u32, b as u32, c as u32);
    lop3_96 32 32 "lop3.b32 %d, %a, %b, %c, 0x96;" |a, b, c| a ^ b ^ c;
    prmt_index 32 32 "prmt.b32 %d, %a, %b, 0xf452;" |a, b, c| {
        let all = b << 32 | a;
        let byte = |k: u32| all >> (8 * k) & 255;
        let sign = if byte(7) & 128 != 0 { 255 } else { 0 };
        byte(2) | byte(5) << 8 | byte(4) << 16 | sign << 24
    };
    prmt_rc16 32 32 "prmt.b32.rc16 %d, %a, %b, %c;" |a, b, c| {
        let h = if c & 1 == 1 { a >> 16 } else { a & 0xffff };
        h | h << 16
    };
    shf_l_wrap 32 32 "shf.l.wrap.b32 %d, %a, %b, %c;" |a, b, c| ((b << 32 | a) << (c & 31)) >> 32;
    shf_r_clamp 32 32 "shf.r.clamp.b32 %d, %a, %b, %c;" |a, b, c| (b << 32 | a) >> c.min(32);
    dp4a_u32_s32 32 32 "dp4a.u32.s32 %d, %a, %b, %c;" |a, b, c| (0..4).fold(c as u32, |r, k| {
        r.wrapping_add(((a >> (8 * k)) as u8 as i32 * (b >> (8 * k)) as i8 as i32) as u32)
    });
    slct_u32 32 32 "slct.u32.s32 %d, %a, %b, %c;" |a, b, c| if s32(c) >= 0 { a } else { b };
    add_carry 32 32 "add.cc.u32 %w0, %a, %b; addc.u32 %d, %c, 0;" |a, b, c| (c as u32).wrapping_add(((a + b) >> 32) as u32);
    sub_borrow 32 32 "sub.cc.u32 %w0, %a, %b; subc.u32 %d, %c, 0;" |a, b, c| (c as u32).wrapping_sub(u32::from(a < b));
    mad_carry 32 32 "mad.lo.cc.u32 %w0, %a, %b, %c; madc.hi.u32 %d, %a, %b, 7;" |a, b, c| {
        let low = (a * b & 0xffff_ffff) + c;
        ((a * b >> 32) + 7 + (low >> 32)) as u32
    };
    selp_u32 32 32 "setp.lt.s32 %p, %a, %b; selp.u32 %d, %a, %c, %p;" |a, b, c| if s32(a) < s32(b) { a } else { c };
    setp_and 32 32 "setp.gt.u32 %q, %a, 5; setp.lo.and.u32 %p, %b, %c, !%q; selp.u32 %d, 1, 0, %p;" |a, b, c| b < c && a <= 5;
    setp_both 32 32 "{ .reg .pred %p0; setp.eq.u32 %p0, 0, 0; setp.eq.xor.u32 %p|%q, %a, %b, %p0; } selp.u32 %x, 2, 0, %p; selp.u32 %y, 1, 0, %q; or.b32 %d, %x, %y;" |a, b, c| {
        if a == b { 1 } else { 2 }
    };
    set_u32 32 32 "set.ge.u32.s32 %d, %a, %b;" |a, b, c| if s32(a) >= s32(b) { u32::MAX } else { 0 };
    pack_16 32 32 "mov.b32 {%h0, %h1}, %a; mov.b32 %d, {%h1, %h0};" |a, b, c| (a as u32).rotate_left(16);
    pack_64 64 64 "mov.b64 {%w0, %w1}, %a; mov.b64 %d, {%w1, %w0};" |a, b, c| a.rotate_left(32);
    pack_8 32 32 "{ .reg .b8 %k<4>; mov.b32 {%h0, %h1}, %a; } mov.b32 %d, {%h0, %h0};" |a, b, c| (a & 0xffff) * 0x10001;
}
