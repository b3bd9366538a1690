//! The kernels that are timed, as PTX text.
use std::fmt::Write;

/// Loads and stores that a thread has under way in the kernels that stream.
pub(crate) const UNDER_WAY: usize = 8;
/// Multiply-adds of a thread in a round.
pub(crate) const FMA_ROUND: usize = 128;
/// Sums that a thread keeps apart.
const SUMS: usize = 16;
/// Products of a warp in a round.
pub(crate) const MMA_ROUND: usize = 32;
/// Products that do not wait for each other.
const TILES: usize = 8;
/// Loads of a chase in a round.
pub(crate) const CHASE_ROUND: usize = 8;
/// What ends the kernel that answers the host.
pub(crate) const END: u32 = u32::MAX;

fn head(target: &str) -> String {
    format!(".version 7.8\n.target {target}\n.address_size 64\n")
}

/// Streams over the `mask + 1` bytes (a power of two) at `at`, 16 bytes of a thread at a time: `rounds`
/// times [`UNDER_WAY`] of them, all threads side by side. What is read goes into a sum that is stored
/// if it is `never`, so that nothing can be left out.
fn stream(entry: &str, read: bool) -> String {
    let mut body = String::new();
    for i in 0..UNDER_WAY {
        let v = 16 + 4 * i;
        let r = format!("{{%r{}, %r{}, %r{}, %r{}}}", v, v + 1, v + 2, v + 3);
        let _ = write!(
            body,
            "    cvt.u64.u32 %d3, %r8;\n    add.s64 %d4, %d0, %d3;\n"
        );
        match read {
            // Through L2 alone: what a level before it holds is not asked.
            true => {
                let _ = writeln!(body, "    ld.global.cg.v4.u32 {r}, [%d4];");
            }
            false => body += "    st.global.v4.u32 [%d4], {%r9, %r10, %r9, %r10};\n",
        }
        body += "    add.s32 %r8, %r8, %r7;\n    and.b32 %r8, %r8, %r1;\n";
    }
    if read {
        for i in 0..4 * UNDER_WAY {
            let _ = writeln!(body, "    xor.b32 %r11, %r11, %r{};", 16 + i);
        }
    }
    format!(
        r"
.visible .entry {entry}(.param .u64 at, .param .u32 mask, .param .u32 rounds, .param .u32 never)
.maxntid 1024, 1, 1
{{
    .reg .pred %p;
    .reg .b32 %r<48>;
    .reg .b64 %d<5>;
    ld.param.u64 %d0, [at];
    ld.param.u32 %r1, [mask];
    ld.param.u32 %r2, [rounds];
    ld.param.u32 %r3, [never];
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %ntid.x;
    mov.u32 %r6, %tid.x;
    mad.lo.s32 %r8, %r4, %r5, %r6;
    shl.b32 %r8, %r8, 4;
    and.b32 %r8, %r8, %r1;
    mov.u32 %r4, %nctaid.x;
    mul.lo.s32 %r7, %r5, %r4;
    shl.b32 %r7, %r7, 4;
    mov.u32 %r9, %r6;
    mov.u32 %r11, 0;
    mov.u32 %r10, 0;
again:
    setp.ge.u32 %p, %r10, %r2;
    @%p bra done;
{body}    add.s32 %r10, %r10, 1;
    bra again;
done:
    setp.ne.u32 %p, %r11, %r3;
    @%p ret;
    st.global.u32 [%d0], %r11;
    ret;
}}
"
    )
}

/// One thread that follows addresses from `at` on: `rounds` times [`CHASE_ROUND`] of them.
fn chase(entry: &str, cache: &str) -> String {
    let step = format!("    ld.global.{cache}.u64 %d0, [%d0];\n").repeat(CHASE_ROUND);
    format!(
        r"
.visible .entry {entry}(.param .u64 at, .param .u64 out, .param .u32 rounds)
{{
    .reg .pred %p;
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    ld.param.u64 %d0, [at];
    ld.param.u64 %d1, [out];
    ld.param.u32 %r0, [rounds];
    mov.u32 %r1, 0;
again:
    setp.ge.u32 %p, %r1, %r0;
    @%p bra done;
{step}    add.s32 %r1, %r1, 1;
    bra again;
done:
    st.global.u64 [%d1], %d0;
    ret;
}}
"
    )
}

/// Multiply-adds on registers; the first thread also says how many clocks it took.
fn fma() -> String {
    let mut body = String::new();
    for i in 0..FMA_ROUND {
        let s = i % SUMS;
        let _ = writeln!(
            body,
            "    fma.rn.f32 %f{s}, %f{s}, %f{SUMS}, %f{};",
            SUMS + 1
        );
    }
    let mut begin = String::new();
    let mut end = String::new();
    for s in 0..SUMS {
        let _ = writeln!(
            begin,
            "    add.rn.f32 %f{s}, %f{}, 0f{:08X};",
            SUMS + 2,
            (s as f32).to_bits()
        );
        if s > 0 {
            let _ = writeln!(end, "    add.rn.f32 %f0, %f0, %f{s};");
        }
    }
    format!(
        r"
.visible .entry fma(.param .u64 out, .param .u64 clocks, .param .u32 rounds, .param .f32 times, .param .f32 plus)
{{
    .reg .pred %p;
    .reg .b32 %r<6>;
    .reg .b64 %d<6>;
    .reg .f32 %f<20>;
    ld.param.u64 %d0, [out];
    ld.param.u64 %d5, [clocks];
    ld.param.u32 %r0, [rounds];
    ld.param.f32 %f{times}, [times];
    ld.param.f32 %f{plus}, [plus];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    cvt.rn.f32.u32 %f{own}, %r3;
{begin}    mov.u32 %r5, 0;
    mov.u64 %d1, %clock64;
again:
    setp.ge.u32 %p, %r5, %r0;
    @%p bra done;
{body}    add.s32 %r5, %r5, 1;
    bra again;
done:
    mov.u64 %d2, %clock64;
{end}    mul.wide.u32 %d3, %r4, 4;
    add.s64 %d4, %d0, %d3;
    st.global.f32 [%d4], %f0;
    setp.ne.u32 %p, %r4, 0;
    @%p ret;
    sub.s64 %d2, %d2, %d1;
    st.global.u64 [%d5], %d2;
    ret;
}}
",
        times = SUMS,
        plus = SUMS + 1,
        own = SUMS + 2,
    )
}

/// Products of f16 fragments into f32 on tensor cores, on registers: 16x8x`k` each.
fn mma(k: u32) -> String {
    let half = k / 8;
    let a: Vec<String> = (0..2 * half).map(|i| format!("%r{}", 8 + i)).collect();
    let b: Vec<String> = (0..half).map(|i| format!("%r{}", 12 + i)).collect();
    let mut body = String::new();
    for i in 0..MMA_ROUND {
        let t = 4 * (i % TILES);
        let c = format!("{{%f{}, %f{}, %f{}, %f{}}}", t, t + 1, t + 2, t + 3);
        let _ = writeln!(
            body,
            "    mma.sync.aligned.m16n8k{k}.row.col.f32.f16.f16.f32 {c}, {{{}}}, {{{}}}, {c};",
            a.join(", "),
            b.join(", ")
        );
    }
    let mut begin = String::new();
    let mut end = String::new();
    for i in 0..4 * TILES {
        let _ = writeln!(begin, "    mov.f32 %f{i}, 0f00000000;");
        if i > 0 {
            let _ = writeln!(end, "    add.rn.f32 %f0, %f0, %f{i};");
        }
    }
    // Small numbers of many patterns: an idle multiplier draws less power than one at work.
    for r in a.iter().chain(&b) {
        let _ = write!(
            begin,
            "    mad.lo.s32 %r6, %r6, 1664525, 1013904223;\n    and.b32 {r}, %r6, 0x83ff83ff;\n    or.b32 {r}, {r}, 0x14001400;\n"
        );
    }
    format!(
        r"
.visible .entry mma(.param .u64 out, .param .u32 rounds)
{{
    .reg .pred %p;
    .reg .b32 %r<16>;
    .reg .b64 %d<4>;
    .reg .f32 %f<{regs}>;
    ld.param.u64 %d0, [out];
    ld.param.u32 %r0, [rounds];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    mov.u32 %r6, %r4;
{begin}    mov.u32 %r5, 0;
again:
    setp.ge.u32 %p, %r5, %r0;
    @%p bra done;
{body}    add.s32 %r5, %r5, 1;
    bra again;
done:
{end}    mul.wide.u32 %d1, %r4, 4;
    add.s64 %d2, %d0, %d1;
    st.global.f32 [%d2], %f0;
    ret;
}}
",
        regs = 4 * TILES
    )
}

/// A kernel of nothing; one that answers each new word of the host's until it is [`END`]; one of two
/// CTAs that hand a number to and fro. No parameter may have the name of a kernel: ptxas 13.5 crashes on
/// that where another kernel follows.
const TALK: &str = r"
.visible .entry nothing()
{
    ret;
}

.visible .entry answer(.param .u64 ask, .param .u64 reply, .param .u32 end)
{
    .reg .pred %p;
    .reg .b32 %r<3>;
    .reg .b64 %d<2>;
    ld.param.u64 %d0, [ask];
    ld.param.u64 %d1, [reply];
    ld.param.u32 %r0, [end];
    mov.u32 %r1, 0;
wait:
    ld.acquire.sys.global.u32 %r2, [%d0];
    setp.eq.s32 %p, %r2, %r1;
    @%p bra wait;
    mov.u32 %r1, %r2;
    st.release.sys.global.u32 [%d1], %r2;
    setp.ne.s32 %p, %r2, %r0;
    @%p bra wait;
    ret;
}

.visible .entry hop(.param .u64 at, .param .u32 rounds)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [at];
    ld.param.u32 %r0, [rounds];
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %d1, %r1, 128;
    add.s64 %d2, %d0, %d1;
    xor.b32 %r2, %r1, 1;
    mul.wide.u32 %d1, %r2, 128;
    add.s64 %d3, %d0, %d1;
    mov.u32 %r3, 0;
again:
    setp.ge.u32 %p, %r3, %r0;
    @%p bra done;
    add.s32 %r3, %r3, 1;
    setp.ne.u32 %p, %r1, 0;
    @%p bra wait;
    st.release.gpu.global.u32 [%d2], %r3;
wait:
    ld.acquire.gpu.global.u32 %r4, [%d3];
    setp.ne.s32 %p, %r4, %r3;
    @%p bra wait;
    setp.eq.u32 %p, %r1, 0;
    @%p bra again;
    st.release.gpu.global.u32 [%d2], %r3;
    bra again;
done:
    ret;
}
";

/// Tensor cores' k of one product on a GPU of this architecture (75, 80, ...).
pub(crate) fn mma_k(arch: u32) -> u32 {
    if arch >= 80 { 16 } else { 8 }
}

/// The modules for a GPU of this architecture (75, 80, ...), with what they are for.
pub(crate) fn modules(arch: u32) -> [(&'static str, String); 4] {
    let base = head("sm_75");
    let tensor = if arch >= 80 { "sm_80" } else { "sm_75" };
    [
        (
            "memory",
            base.clone()
                + &stream("read", true)
                + &stream("write", false)
                + &chase("chase_near", "ca")
                + &chase("chase", "cg"),
        ),
        ("fma", base.clone() + &fma()),
        ("mma", head(tensor) + &mma(mma_k(arch))),
        ("talk", base + TALK),
    ]
}
