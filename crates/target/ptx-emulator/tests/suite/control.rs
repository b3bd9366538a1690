//! Branches and calls.

use crate::suite::common::*;

const SOURCE: &str = include_str!("ptx/warps.ptx");

fn run(kernel: &str, threads: u32) -> Vec<u32> {
    let mut b = Bench::new(SOURCE);
    let p = b.buffer(threads as usize * 4);
    b.clean(&launch(kernel, 1, threads).u64(p));
    b.read(p, threads as usize)
}

#[test]
fn lanes_that_leave_a_loop_at_different_times_meet_behind_it() {
    let steps = |mut n: u32| {
        let mut k = 0;
        while n != 1 {
            n = if n.is_multiple_of(2) {
                n / 2
            } else {
                3 * n + 1
            };
            k += 1;
        }
        k
    };
    assert_eq!(run("collatz", 32), (1..33).map(steps).collect::<Vec<u32>>());
}

#[test]
fn jump_tables_fall_through() {
    let want = [111, 110, 100];
    let got = run("table_jump", 64);
    assert!(
        got.iter().enumerate().all(|(k, v)| *v == want[k % 3]),
        "{got:?}"
    );
}

#[test]
fn functions_return_to_where_they_were_called() {
    let want = |k: u32| match k {
        20.. => 14,
        11.. => 2000 * k,
        _ => 2 * (10 - k),
    };
    assert_eq!(run("calls", 64), (0..64).map(want).collect::<Vec<u32>>());
}

#[test]
fn a_function_that_calls_itself_is_refused() {
    let source = format!(
        "{HEAD}.func again() {{ call again, (); ret; }}\n.visible .entry k() {{ call again, (); ret; }}"
    );
    let b = Bench::new(&source);
    let e = b.module.params("k").unwrap_err().to_string();
    assert!(
        e.contains("not supported") && e.contains("own function"),
        "{e}"
    );
}

#[test]
fn loops_without_an_end_still_reconverge() {
    // A persistent loop with a branch inside: every round starts with all lanes again.
    let source = format!(
        "{HEAD}
.visible .entry k(.param .u64 p)
{{
    .reg .pred %p, %q;
    .reg .u32 %r<6>;
    .reg .u64 %d<3>;
    ld.param.u64 %d0, [p];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d1, %r0, 4;
    add.u64 %d0, %d0, %d1;
    mov.u32 %r1, 0;
AGAIN:
    and.b32 %r2, %r0, 1;
    setp.eq.u32 %p, %r2, 0;
    @%p bra EVEN;
    add.u32 %r1, %r1, 3;
    bra JOIN;
EVEN:
    add.u32 %r1, %r1, 3;
JOIN:
    activemask.b32 %r3;
    setp.ne.u32 %q, %r3, 0xffffffff;
    @%q trap;
    st.global.u32 [%d0], %r1;
    setp.gt.u32 %q, %r1, 29;
    @%q exit;
    bra AGAIN;
}}"
    );
    let mut b = Bench::new(&source);
    let p = b.buffer(128);
    b.clean(&launch("k", 1, 32).u64(p));
    assert_eq!(b.read(p, 32), [30; 32]);
}
