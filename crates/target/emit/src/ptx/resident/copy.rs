//! The body that copies.

/// Copies a piece of memory: record = from, to, bytes, bytes per task.
pub(super) fn body(n: u32, threads: u32) -> String {
    let stride = 16 * threads;
    let (twice, ahead) = (2 * stride, stride + 16);
    format!(
        "// copies\n.func body_{n}(.reg .b64 %record, .reg .b32 %task)
{{
	.reg .pred %p;
	.reg .b32 %r<9>;
	.reg .b64 %from, %to, %end, %piece, %i, %k, %x;
	ld.global.u64 %from, [%record];
	ld.global.u64 %to, [%record+8];
	ld.global.u64 %end, [%record+16];
	ld.global.u64 %piece, [%record+24];
	cvta.to.global.u64 %from, %from;
	cvta.to.global.u64 %to, %to;
	cvt.u64.u32 %i, %task;
	mul.lo.u64 %i, %i, %piece;
	add.u64 %k, %i, %piece;
	min.u64 %end, %end, %k;
	mov.u32 %r4, %tid.x;
	mul.wide.u32 %k, %r4, 16;
	add.u64 %i, %i, %k;
$copy_two:
	add.u64 %k, %i, {ahead};
	setp.gt.u64 %p, %k, %end;
	@%p bra $copy_wide;
	add.u64 %x, %from, %i;
	ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%x];
	ld.global.v4.u32 {{%r5, %r6, %r7, %r8}}, [%x+{stride}];
	add.u64 %x, %to, %i;
	st.global.v4.u32 [%x], {{%r0, %r1, %r2, %r3}};
	st.global.v4.u32 [%x+{stride}], {{%r5, %r6, %r7, %r8}};
	add.u64 %i, %i, {twice};
	bra $copy_two;
$copy_wide:
	add.u64 %k, %i, 16;
	setp.gt.u64 %p, %k, %end;
	@%p bra $copy_rest;
	add.u64 %x, %from, %i;
	ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%x];
	add.u64 %x, %to, %i;
	st.global.v4.u32 [%x], {{%r0, %r1, %r2, %r3}};
	add.u64 %i, %i, {stride};
	bra $copy_wide;
$copy_rest:
	// A last piece may end within 16 bytes: one thread for each of them.
	and.b64 %i, %end, -16;
	cvt.u64.u32 %k, %r4;
	add.u64 %i, %i, %k;
	setp.ge.u64 %p, %i, %end;
	@%p bra $copy_end;
	add.u64 %x, %from, %i;
	ld.global.u8 %r0, [%x];
	add.u64 %x, %to, %i;
	st.global.u8 [%x], %r0;
$copy_end:
	ret;
}}

"
    )
}
