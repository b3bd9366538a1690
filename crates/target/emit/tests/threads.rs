//! Programs of threads made by hand: what the rules refuse, and what the interpreter notices of memory that
//! threads share.
use expr::{Binary, Compare, Scalar};
use kernel::{Factors, Fragment, OperandId};
use layout::{DType, Dim};
use shopfloor_emit::simt::Program;
use shopfloor_emit::simt::ir::{Buffer, Inst, Op, Reg, SharedArray, Ty, Var};
use shopfloor_emit::simt::run::{Memory, run};
use shopfloor_emit::simt::verify::verify;

/// Threads of every program here: one warp.
const THREADS: u32 = 32;
/// Elements that a thread copies, and that all of them do.
const EACH: u32 = 4;
const ALL: u32 = EACH * THREADS;

/// Operands: the first is read, the second written.
const X: OperandId = 0;
const Y: OperandId = 1;
/// Shared arrays, by the types of their elements.
const F32S: u32 = 0;
const F16S: u32 = 1;
/// Four variables of f32 from this one on, and one of i32.
const SUMS: Var = 0;
const COUNT: Var = 4;

/// A program under construction.
struct Made(Program);

impl Made {
    fn new() -> Made {
        let buffer = |name: &str, written| Buffer {
            constant: false,
            name: name.into(),
            dtype: DType::F32,
            written,
        };
        let array = |name: &str, dtype| SharedArray {
            name: name.into(),
            dtype,
            elements: ALL,
        };
        Made(Program {
            name: "made".into(),
            threads: THREADS,
            registers: None,
            regs: vec![],
            vars: vec![Ty::F32, Ty::F32, Ty::F32, Ty::F32, Ty::I32],
            shared: vec![array("f32s", DType::F32), array("f16s", DType::F16)],
            dims: vec![],
            operands: vec![buffer("x", false), buffer("y", true)],
            tensors: vec![],
            tasks: Dim::ONE,
            walkers: 0,
            cluster: 1,
            faults: vec![],
            body: vec![],
        })
    }

    /// A value that nothing defines yet.
    fn fresh(&mut self, ty: Ty) -> Reg {
        self.0.regs.push(ty);
        (self.0.regs.len() - 1) as Reg
    }

    fn add(&mut self, i: Inst) {
        self.0.body.push(i);
    }

    fn value(&mut self, ty: Ty, op: Op) -> Reg {
        let r = self.fresh(ty);
        self.add(Inst::Let(r, op));
        r
    }

    fn int(&mut self, v: u64) -> Reg {
        self.value(Ty::I32, Op::Const(v))
    }

    fn float(&mut self, v: f64) -> Reg {
        self.value(Ty::F32, Op::Const(v.to_bits()))
    }

    fn words<const N: usize>(&mut self) -> [Reg; N] {
        std::array::from_fn(|_| self.value(Ty::U32, Op::Const(0)))
    }

    /// A truth value that is not the same for all threads.
    fn differs(&mut self) -> Reg {
        let (l, k) = (self.value(Ty::I32, Op::Thread), self.int(5));
        self.value(Ty::Bool, Op::Compare(Compare::Lt, l, k))
    }

    /// What `make` adds, in the body of an If or a For instead.
    fn within(&mut self, make: impl FnOnce(&mut Made), around: impl FnOnce(Vec<Inst>) -> Inst) {
        let outer = std::mem::take(&mut self.0.body);
        make(self);
        let body = std::mem::replace(&mut self.0.body, outer);
        self.add(around(body));
    }

    fn when(&mut self, cond: Reg, make: impl FnOnce(&mut Made)) {
        self.within(make, |body| Inst::If { cond, body });
    }

    fn repeat(&mut self, bounds: [Reg; 3], make: impl FnOnce(&mut Made, Reg)) {
        let i = self.fresh(Ty::I32);
        let [from, to, step] = bounds;
        self.within(
            |m| make(m, i),
            |body| Inst::For {
                i,
                from,
                to,
                step,
                body,
            },
        );
    }

    fn load_matrix(&mut self, array: u32, index: Reg, transposed: bool) {
        let dst = std::array::from_fn(|_| self.fresh(Ty::U32));
        self.add(Inst::LoadMatrix {
            dst,
            array,
            index,
            transposed,
        });
    }

    fn multiply(&mut self, sums: [Var; 4], a: [Reg; 4], b: [Reg; 2]) {
        let fragment = Fragment {
            m: 16,
            n: 8,
            k: 16,
            input: DType::F16,
            acc: DType::F32,
            factors: Factors::Whole,
            right: None,
        };
        self.add(Inst::Multiply {
            fragment,
            sums,
            a,
            b,
        });
    }

    fn copy(&mut self, array: u32, (operand, elements): (OperandId, u32), at: Reg) {
        self.add(Inst::Copy {
            array,
            to: at,
            operand,
            index: at,
            elements,
            guard: None,
        });
    }

    /// The number of this thread, and the first of the `EACH` elements of the thread `beyond` that one.
    fn place(&mut self, beyond: u64) -> (Reg, Reg) {
        let l = self.value(Ty::I32, Op::Thread);
        let (each, more, all) = (
            self.int(EACH.into()),
            self.int(beyond * u64::from(EACH)),
            self.int(ALL.into()),
        );
        let own = self.value(Ty::I32, Op::Binary(Binary::Mul, l, each));
        let at = self.value(Ty::I32, Op::Binary(Binary::Add, own, more));
        let past = self.value(Ty::Bool, Op::Compare(Compare::Ge, at, all));
        let less = self.value(Ty::I32, Op::Binary(Binary::Sub, at, all));
        (l, self.value(Ty::I32, Op::Select(past, less, at)))
    }

    fn load_shared(&mut self, array: u32, index: Reg) -> Reg {
        self.value(Ty::F32, Op::LoadShared { array, index })
    }

    fn store(&mut self, index: Reg, value: Reg) {
        self.add(Inst::Store {
            operand: Y,
            index,
            values: vec![value],
            guard: None,
        });
    }

    fn store_shared(&mut self, index: Reg, value: Reg) {
        self.add(Inst::StoreShared {
            array: F32S,
            index,
            values: vec![value],
        });
    }
}

fn made(make: impl FnOnce(&mut Made)) -> Program {
    let mut m = Made::new();
    make(&mut m);
    m.0
}

/// Asserts that the rules refuse what `make` makes, with these words.
#[track_caller]
fn refused(words: &str, make: impl FnOnce(&mut Made)) {
    let e = verify(&made(make)).expect_err(words);
    assert!(e.contains(words), "'{e}' does not say '{words}'");
}

#[test]
fn a_program_that_keeps_to_the_rules_is_accepted() {
    let p = made(|m| {
        let (l, at) = m.place(0);
        m.copy(F32S, (X, EACH), at);
        m.add(Inst::Commit);
        m.add(Inst::Wait(0));
        m.add(Inst::Barrier);
        let [zero, two, one] = [0, 2, 1].map(|v| m.int(v));
        m.repeat([zero, two, one], |m, i| {
            // The bounds are those of all threads, and so all come by.
            let is = m.value(Ty::Bool, Op::Compare(Compare::Eq, i, zero));
            m.when(is, |m| m.add(Inst::Barrier));
            m.load_matrix(F16S, at, true);
            m.load_matrix(F32S, at, false);
            let (a, b) = (m.words(), m.words());
            m.multiply([SUMS, SUMS + 1, SUMS + 2, SUMS + 3], a, b);
            m.add(Inst::Set(COUNT, i));
        });
        let sum = m.value(Ty::F32, Op::Get(SUMS));
        let sum = m.value(Ty::F32, Op::Shuffle(sum, 1));
        let cond = m.differs();
        let any = m.value(Ty::Bool, Op::AnyLane(cond));
        m.when(cond, |m| m.store(l, sum));
        m.when(any, |m| m.store(l, sum));
    });
    assert_eq!(verify(&p), Ok(()));
}

#[test]
fn values_are_defined_once_and_before_they_are_read() {
    refused("%0 is read where it is not seen", |m| {
        let late = m.fresh(Ty::F32);
        let sum = m.value(Ty::F32, Op::Binary(Binary::Add, late, late));
        m.add(Inst::Let(late, Op::Const(0)));
        m.add(Inst::Set(SUMS, sum));
    });
    refused("%9 is read where it is not seen", |m| {
        m.add(Inst::Set(SUMS, 9))
    });
    refused("is read where it is not seen", |m| {
        // What a body defines ends with it.
        let (cond, own) = (m.differs(), m.fresh(Ty::F32));
        m.when(cond, |m| m.add(Inst::Let(own, Op::Const(0))));
        m.add(Inst::Set(SUMS, own));
    });
    refused("%0 is defined twice", |m| {
        let once = m.int(0);
        m.add(Inst::Let(once, Op::Const(1)));
    });
    refused("%1 is defined twice", |m| {
        let (zero, twice) = (m.int(0), m.fresh(Ty::F32));
        m.add(Inst::LoadSharedRun {
            dst: vec![twice, twice],
            array: F32S,
            index: zero,
        });
    });
    refused("%3 is no value", |m| m.add(Inst::Let(3, Op::Const(0))));
}

#[test]
fn bounds_and_steps_of_loops_are_defined() {
    for (missing, words) in [
        (0, "is read where it is not seen"),
        (1, "is read where it is not seen"),
        (2, "is no step"),
    ] {
        refused(words, |m| {
            let mut bounds = [0, 2, 1].map(|v| m.int(v));
            bounds[missing] = m.fresh(Ty::I32);
            m.repeat(bounds, |_, _| {});
        });
    }
    // A step may be a constant of the body.
    let p = made(|m| {
        let (from, to, step) = (m.int(0), m.int(2), m.fresh(Ty::I32));
        m.repeat([from, to, step], |m, _| {
            m.add(Inst::Let(step, Op::Const(1)))
        });
    });
    assert_eq!(verify(&p), Ok(()));
}

#[test]
fn what_threads_do_together_stands_where_all_come_by() {
    type Make = fn(&mut Made, Reg);
    let cases: [(&str, Make); 5] = [
        ("a barrier", |m, _| m.add(Inst::Barrier)),
        ("a matrix instruction", |m, at| {
            m.load_matrix(F16S, at, false)
        }),
        ("a matrix instruction", |m, _| {
            let (a, b) = (m.words(), m.words());
            m.multiply([SUMS, SUMS + 1, SUMS + 2, SUMS + 3], a, b);
        }),
        ("a shuffle", |m, at| {
            m.value(Ty::I32, Op::Shuffle(at, 1));
        }),
        ("a vote", |m, _| {
            let holds = m.value(Ty::Bool, Op::Const(1));
            m.value(Ty::Bool, Op::AnyLane(holds));
        }),
    ];
    for (what, make) in cases {
        let words = format!("{what} stands where not all threads come by");
        refused(&words, |m| {
            let (at, cond) = (m.int(0), m.differs());
            m.when(cond, |m| make(m, at));
        });
        // What differs may be a loop's bound, or be around a condition that does not.
        refused(&words, |m| {
            let (at, one, own) = (m.int(0), m.int(1), m.value(Ty::I32, Op::Thread));
            m.repeat([at, own, one], |m, _| make(m, at));
        });
        refused(&words, |m| {
            let (at, cond) = (m.int(0), m.differs());
            let all = m.value(Ty::Bool, Op::Const(1));
            m.when(cond, |m| m.when(all, |m| make(m, at)));
        });
        // A variable and shared memory are what each thread made them.
        refused(&words, |m| {
            let (at, count) = (m.int(0), m.value(Ty::I32, Op::Get(COUNT)));
            let cond = m.value(Ty::Bool, Op::Compare(Compare::Eq, at, count));
            m.when(cond, |m| make(m, at));
        });
        let p = made(|m| {
            let (at, all) = (m.int(0), m.value(Ty::Bool, Op::Const(1)));
            m.when(all, |m| make(m, at));
        });
        assert_eq!(verify(&p), Ok(()), "{what}");
    }
    refused("is no step", |m| {
        let (zero, two, own) = (m.int(0), m.int(2), m.value(Ty::I32, Op::Thread));
        m.repeat([zero, two, own], |m, _| m.add(Inst::Barrier));
    });
}

#[test]
fn memory_and_variables_that_are_named_exist() {
    let load = |operand, index| Op::Load {
        operand,
        index,
        guard: None,
    };
    refused("there is no operand 2", |m| {
        let at = m.int(0);
        m.value(Ty::F32, load(2, at));
    });
    refused("there is no operand 7", |m| {
        let at = m.int(0);
        m.copy(F32S, (7, EACH), at);
    });
    refused("there is no shared array 2", |m| {
        let at = m.int(0);
        m.load_shared(2, at);
    });
    refused("there is no shared array 5", |m| {
        let at = m.int(0);
        m.load_matrix(5, at, false);
    });
    refused("there is no variable $9", |m| {
        let x = m.float(0.0);
        m.add(Inst::Set(9, x));
    });
    refused("there is no fault 0", |m| {
        let cond = m.differs();
        m.add(Inst::Fault { cond, code: 0 });
    });
    refused("is no number of the program", |m| {
        m.value(Ty::I32, Op::Dim(0));
    });
}

#[test]
fn types_and_sizes_fit() {
    refused("%0 is f32 where i32 is asked for", |m| {
        let x = m.float(0.0);
        m.add(Inst::Set(COUNT, x));
    });
    refused("variable $4 is not of %0's type", |m| {
        m.value(Ty::F32, Op::Get(COUNT));
    });
    refused("%0 is f32 where i32 is asked for", |m| {
        let x = m.float(0.0);
        m.load_shared(F32S, x);
    });
    refused("%0 is i32 where f32 is asked for", |m| {
        let at = m.int(0);
        m.store(at, at);
    });
    refused("%0 is i32 where bool is asked for", |m| {
        let at = m.int(0);
        m.when(at, |_| {});
    });
    refused("sums of a product are no variables of f32", |m| {
        let (a, b) = (m.words(), m.words());
        m.multiply([SUMS, SUMS + 1, SUMS + 2, COUNT], a, b);
    });
    refused("%4 is f32 where u32 is asked for", |m| {
        let a = m.words();
        let x = m.float(0.0);
        m.multiply([SUMS, SUMS + 1, SUMS + 2, SUMS + 3], a, [x, x]);
    });
    for elements in [0, 3, 8] {
        refused(&format!("{elements} of f32 are copied to f32"), |m| {
            let at = m.int(0);
            m.copy(F32S, (X, elements), at);
        });
    }
    refused("4 of f32 are copied to f16", |m| {
        let at = m.int(0);
        m.copy(F16S, (X, EACH), at);
    });
    refused("blocks of elements of 32 bits are loaded", |m| {
        let at = m.int(0);
        m.load_matrix(F32S, at, true);
    });
}

/// The operands' elements.
struct Elements([Vec<f64>; 2]);

impl Memory for Elements {
    fn load(&mut self, operand: OperandId, at: i64) -> Result<Scalar, String> {
        Ok(Scalar::Float(self.0[operand as usize][at as usize]))
    }

    fn store(&mut self, operand: OperandId, at: i64, v: Scalar) -> Result<(), String> {
        self.0[operand as usize][at as usize] = v.as_f64();
        Ok(())
    }
}

/// What each thread stores, where `x` holds its elements' numbers. The rules have nothing against the program.
fn result(make: impl FnOnce(&mut Made)) -> Result<Vec<f64>, String> {
    let p = made(make);
    verify(&p).unwrap();
    let x = (0..ALL).map(f64::from).collect();
    let mut memory = Elements([x, vec![-1.0; THREADS as usize]]);
    run(&p, &|_| None, &mut memory, 0..1, u64::MAX)?;
    Ok(memory.0[1].clone())
}

/// The first elements of the threads `beyond` each one.
fn firsts(beyond: u32) -> Vec<f64> {
    let first = |l: u32| f64::from(EACH * (l + beyond) % ALL);
    (0..THREADS).map(first).collect()
}

/// A thread copies its elements, then come `between`, then it stores the first one of the thread `beyond` it.
fn copied(between: &[Inst], beyond: u64) -> Result<Vec<f64>, String> {
    result(|m| {
        let (_, own) = m.place(0);
        m.copy(F32S, (X, EACH), own);
        between.iter().for_each(|i| m.add(i.clone()));
        let (l, at) = m.place(beyond);
        let v = m.load_shared(F32S, at);
        m.store(l, v);
    })
}

#[test]
fn what_is_copied_is_there_after_the_wait_for_its_group() {
    use Inst::{Barrier, Commit, Wait};
    assert_eq!(copied(&[Commit, Wait(0)], 0), Ok(firsts(0)));
    let early: [&[Inst]; 5] = [
        &[],
        &[Commit],
        &[Commit, Barrier],
        // One group may be under way, and it is this one.
        &[Commit, Wait(1)],
        // The copy is in no group.
        &[Wait(0), Commit],
    ];
    for between in early {
        let y = copied(between, 0).unwrap();
        assert!(y.iter().all(|v| v.is_nan()), "{between:?}: {y:?}");
    }
    // A later group may be under way still.
    assert_eq!(copied(&[Commit, Commit, Wait(1)], 0), Ok(firsts(0)));
}

#[test]
fn what_another_thread_copied_is_there_after_a_barrier_that_follows_the_wait() {
    use Inst::{Barrier, Commit, Wait};
    assert_eq!(copied(&[Commit, Wait(0), Barrier], 1), Ok(firsts(1)));
    let early: [&[Inst]; 3] = [
        &[Commit, Wait(0)],
        // The wait is for the thread's own copies.
        &[Commit, Barrier, Wait(0)],
        &[Barrier, Commit, Wait(0)],
    ];
    for between in early {
        let e = copied(between, 1).expect_err(&format!("{between:?}"));
        assert!(e.contains("threads race") && e.contains("'f32s'"), "{e}");
    }
    // Without a wait there is no race, and nothing that is known either.
    let y = copied(&[Commit, Barrier], 1).unwrap();
    assert!(y.iter().all(|v| v.is_nan()), "{y:?}");
}

#[test]
fn threads_that_share_an_element_have_a_barrier_between() {
    let stored = |barrier: bool, beyond: u64| {
        result(|m| {
            let (_, own) = m.place(0);
            let v = m.value(Ty::F32, Op::Convert(own));
            m.store_shared(own, v);
            if barrier {
                m.add(Inst::Barrier);
            }
            let (l, at) = m.place(beyond);
            let v = m.load_shared(F32S, at);
            m.store(l, v);
        })
    };
    assert_eq!(stored(true, 3), Ok(firsts(3)));
    assert_eq!(stored(false, 0), Ok(firsts(0)));
    let e = stored(false, 3).unwrap_err();
    assert!(
        e.contains("threads race for element 12 of shared 'f32s'"),
        "{e}"
    );
    // The other way round: another thread has read what is written.
    let overwritten = |barrier: bool| {
        result(|m| {
            let (_, own) = m.place(0);
            let v = m.value(Ty::F32, Op::Convert(own));
            m.store_shared(own, v);
            m.add(Inst::Barrier);
            let (l, at) = m.place(1);
            let read = m.load_shared(F32S, at);
            if barrier {
                m.add(Inst::Barrier);
            }
            m.store_shared(own, v);
            m.store(l, read);
        })
    };
    assert_eq!(overwritten(true), Ok(firsts(1)));
    let e = overwritten(false).unwrap_err();
    assert!(e.contains("threads race"), "{e}");
    // Two writers race too.
    let e = result(|m| {
        let (zero, v) = (m.int(0), m.float(1.0));
        m.store_shared(zero, v);
    });
    assert!(e.unwrap_err().contains("threads race for element 0"));
}

#[test]
fn what_changes_is_touched_behind_the_wait_for_the_kernels_before() {
    use Inst::{DependencyWait, LaunchDependents};
    /// Puts `x` into shared memory, as a constant or not, waits, and stores it.
    fn moved(m: &mut Made, constant: bool, parts: [&[Inst]; 3]) {
        m.0.operands[usize::from(X)].constant = constant;
        let [before, between, behind] = parts;
        let (l, own) = m.place(0);
        before.iter().for_each(|i| m.add(i.clone()));
        m.copy(F32S, (X, EACH), own);
        between.iter().for_each(|i| m.add(i.clone()));
        [Inst::Commit, Inst::Wait(0)]
            .into_iter()
            .for_each(|i| m.add(i));
        let v = m.load_shared(F32S, own);
        m.store(l, v);
        behind.iter().for_each(|i| m.add(i.clone()));
    }
    let (wait, next) = (DependencyWait, LaunchDependents);
    let one = std::slice::from_ref::<Inst>;
    let fine: [(bool, [&[Inst]; 3]); 5] = [
        (false, [&[], &[], &[]]),
        (false, [one(&wait), &[], &[]]),
        (true, [&[], one(&wait), &[]]),
        (true, [&[wait.clone(), next.clone()], &[], &[]]),
        (true, [&[], &[wait.clone(), next.clone()], one(&next)]),
    ];
    for (constant, parts) in fine {
        assert_eq!(result(|m| moved(m, constant, parts)), Ok(firsts(0)));
    }
    let wrong: [(&str, bool, [&[Inst]; 3]); 4] = [
        ("'x' is read before", false, [&[], one(&wait), &[]]),
        ("'y' is written before", true, [&[], &[], one(&wait)]),
        (
            "may start before earlier kernels are over",
            true,
            [one(&next), one(&wait), &[]],
        ),
        (
            "although this one waits for no earlier kernel",
            true,
            [&[], &[], one(&next)],
        ),
    ];
    for (words, constant, parts) in wrong {
        refused(words, |m| moved(m, constant, parts));
    }
    // Some threads, or all of them perhaps not at all.
    refused("where not all threads come by", |m| {
        let cond = m.differs();
        m.when(cond, |m| m.add(DependencyWait));
    });
    refused("where not all threads come by", |m| {
        let bounds = [0, 0, 1].map(|v| m.int(v));
        m.repeat(bounds, |m, _| m.add(DependencyWait));
    });
    // The interpreter notices what the rules would refuse.
    let broken = made(|m| moved(m, false, [&[], one(&wait), &[]]));
    let x = (0..ALL).map(f64::from).collect();
    let mut memory = Elements([x, vec![-1.0; THREADS as usize]]);
    let e = run(&broken, &|_| None, &mut memory, 0..1, u64::MAX).unwrap_err();
    assert!(e.contains("before earlier kernels are over"), "{e}");
}
