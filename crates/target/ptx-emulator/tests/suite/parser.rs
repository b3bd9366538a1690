//! What the reader takes, and how it refuses.

use crate::suite::common::*;
use shopfloor_ptx_emulator::*;

fn refused(text: &str) -> String {
    let mut m = Machine::new();
    let loaded = match m.load(text) {
        Ok(l) => l,
        Err(e) => return e.to_string(),
    };
    match loaded.params("k") {
        Ok(_) => panic!("taken: {text}"),
        Err(e) => e.to_string(),
    }
}

fn kernel(body: &str) -> String {
    format!(
        "{HEAD}.visible .entry k()\n{{\n.reg .u32 %r<4>;\n.reg .u64 %d<4>;\n.reg .pred %p;\n{body}\n}}\n"
    )
}

#[test]
fn errors_name_the_line_and_what_was_not_understood() {
    for (body, want) in [
        (
            "frobnicate.u32 %r0, %r1;",
            "line 9: not supported: instruction 'frobnicate.u32'",
        ),
        ("add.u32 %r0, %r1;", "line 9: 2 operands"),
        (
            "add.u32 %r0, %r1, %r9;",
            "line 9: register '%r9' is not declared",
        ),
        (
            "add.u32 %r0, %r1, %d0;",
            "line 9: '%d0' has 64 bits, but 32 bits are wanted",
        ),
        (
            "add.rz.u32 %r0, %r1, 1;",
            "line 9: not supported: '.rz' of 'add.rz.u32'",
        ),
        ("bra NOWHERE;", "line 9: there is no label 'NOWHERE'"),
        ("@%r0 ret;", "line 9: '%r0' is no predicate"),
        (
            "ld.global.u32 %r0, %d0;",
            "line 9: an address in brackets is wanted",
        ),
        (
            "ld.relaxed.global.u32 %r0, [%d0];",
            "line 9: 'ld.relaxed.global.u32' needs a scope",
        ),
        (
            "wgmma.fence.sync.aligned;",
            "line 9: 'wgmma.fence.sync.aligned' needs .target sm_90a",
        ),
        (
            "add.f32 %r0, %r0, 1;",
            "line 9: an integer where a floating-point number is wanted",
        ),
        (
            "mapa.shared::cluster.u32 %r0, %r1, 0;",
            "line 9: 'mapa.shared::cluster.u32' needs .target sm_90 or later",
        ),
        (
            "cp.async.bulk.commit_group;",
            "line 9: 'cp.async.bulk.commit_group' needs .target sm_90 or later",
        ),
        (
            "barrier.cluster.arrive;",
            "line 9: 'barrier.cluster.arrive' needs .target sm_90 or later",
        ),
        ("mov.u32 %r0, 5", "line 10: ',' expected"),
        (".reg .u32 %r<4>;", "line 9: '%r0' is declared twice"),
        ("A: A: ret;", "line 9: label 'A' stands twice"),
    ] {
        let e = refused(&kernel(body));
        assert!(e.contains(want), "{body}: {e}");
    }
}

#[test]
fn text_that_is_no_module_is_refused() {
    for (text, want) in [
        ("", "no .target"),
        ("hello", "'hello' is not understood"),
        (
            ".version 8.0\n.target sm_80\n.address_size 32",
            "line 3: not supported",
        ),
        (
            ".target sm_80\n.global .u32 x[9999999999];",
            "line 2: 'x' is larger",
        ),
        (
            ".target sm_80\n.visible .entry k(.param .u32 a",
            "',' or ')' expected",
        ),
        (".target sm_80 /* open", "line 1: a comment"),
        (
            ".target sm_80\n.entry k() .reqnctapercluster 2 { ret; }",
            "line 2: '.reqnctapercluster' needs .target sm_90 or later",
        ),
    ] {
        let e = refused(text);
        assert!(e.contains(want), "{text}: {e}");
    }
    let deep = format!(".target sm_80\n.global .u32 x = {};", "(".repeat(100_000));
    assert!(refused(&deep).contains("nested"));
    let deep = format!(
        ".target sm_80\n.global .u32 x[2] = {};",
        "{".repeat(100_000)
    );
    assert!(refused(&deep).contains("nested"));
    let deep = kernel(&format!("mov.b32 %r0, {};", "{".repeat(100_000)));
    assert!(refused(&deep).contains("nested"));
}

#[test]
fn what_compilers_write_is_read() {
    let source = format!(
        "// Generated\n{HEAD}
.file 1 \"kernel.cu\"
.visible .entry k(
    .param .u64 .ptr .global .align 16 k_param_0, // a pointer
    .param .align 8 .b8 k_param_1[12],
    .param .f32 k_param_2
)
.maxntid 128, 1, 1
.minnctapersm 2
{{
    .pragma \"nounroll\";
    .reg .pred %p<2>;
    .reg .b32 %r<5>;
    .reg .f32 %f<3>;
    .reg .b64 %rd<4>;
    .loc 1 10 5
    ld.param.u64 %rd1, [k_param_0];
    ld.param.u32 %r1, [k_param_1+8];
    ld.param.f32 %f1, [k_param_2];
    .loc 1 11 5, function_name $info, inlined_at 1 10 5
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r2, %tid.x;
    setp.gt.s32 %p1, %r2, (3 + 4) * 2 - 1;
    @%p1 bra $L__BB0_2;
    {{ .reg .b32 %r<2>; mov.b32 %r1, -1; }}
    cvt.rn.f32.s32 %f2, %r1;
    fma.rn.ftz.f32 %f2, %f2, 0f40000000, %f1;
    mul.wide.s32 %rd3, %r2, 4;
    add.s64 %rd3, %rd2, %rd3;
    st.global.wb.L1::no_allocate.f32 [%rd3], %f2;
$L__BB0_2:
    ret;
}}
.section .debug_str {{ .b8 1, 2 }}
"
    );
    let mut b = Bench::new(&source);
    let p = b.buffer(56);
    let mut l = launch("k", 1, 32).u64(p);
    l.args.push([[0; 4], [0; 4], 21u32.to_le_bytes()].concat());
    let l = l.f32(0.5);
    b.clean(&l);
    assert_eq!(b.read_floats(p, 14), [42.5; 14]);
    let params = b.module.params("k").unwrap();
    assert_eq!(
        params.iter().map(|p| p.offset).collect::<Vec<u32>>(),
        [0, 8, 20]
    );
    let too_many = Launch {
        block: [129, 1, 1],
        ..l
    };
    let e = b.machine.run(&b.module, &too_many).unwrap_err().to_string();
    assert!(e.contains("at most 128 threads"), "{e}");
}

#[test]
fn launches_that_no_device_takes_are_refused() {
    let b = Bench::new(&kernel("ret;"));
    let no = |l: Launch| b.machine.run(&b.module, &l).unwrap_err().to_string();
    assert!(no(launch("k", 1, 0)).contains("1 to 1024"));
    assert!(no(launch("k", 1, 1025)).contains("1 to 1024"));
    assert!(no(launch("k", 0, 32)).contains("empty"));
    assert!(
        no(Launch {
            grid: [u32::MAX; 3],
            ..launch("k", 1, 32)
        })
        .contains("empty or has more")
    );
    assert!(
        no(Launch {
            shared: 1 << 20,
            ..launch("k", 1, 32)
        })
        .contains("shared memory")
    );
    assert!(no(launch("k", 1, 32).u32(1)).contains("0 parameters, 1 were given"));
    assert!(no(launch("other", 1, 32)).contains("the module has: k"));
}
