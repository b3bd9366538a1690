//! Pipelines with sides: warps that copy, and those that compute, each waiting for the other's barriers in shared
//! memory, from sm_90a on.
use super::{Name, Out, Printer, Printing};
use crate::ptx::source::Source;
use crate::simt::ir::{Inst, Op, Pipeline, Reg};
use kernel::OperandId;

/// Barrier of the threads that compute; 0 and 1 are those of [`Source::barrier`].
const COMPUTING: u32 = 2;
/// Threads of a warp.
const WARP: u32 = 32;
/// Bytes of what a barrier counts.
const BYTES: u32 = 8;

/// Whether threads read shared memory by themselves.
fn reads_shared(body: &[Inst]) -> bool {
    body.iter().any(|i| match i {
        Inst::Let(_, Op::LoadShared { .. }) | Inst::LoadSharedRun { .. } => true,
        i => reads_shared(i.body()),
    })
}

impl Printing {
    /// The barrier of the threads that compute, where these are printed alone.
    pub fn barrier(&self) -> Option<String> {
        (self.sides == 2).then(|| format!("bar.sync {COMPUTING}, {}", self.computing))
    }
}

impl Printer<'_> {
    /// A pipeline, one of its sides, or a copy at once in one.
    pub(super) fn sided(&mut self, own: usize, i: &Inst) -> Out<()> {
        match i {
            Inst::Pipeline { pipeline, body } => self.pipeline(own, pipeline, body),
            Inst::Side { piece, body } => self.side(own, *piece, body),
            Inst::Bulk {
                array,
                to,
                operand,
                index,
                elements,
            } => self.bulk((*array, *to), (*operand, *index, *elements)),
            _ => Ok(()),
        }
    }

    /// What a pipeline begins and ends with, and its body.
    fn pipeline(&mut self, own: usize, p: &Pipeline, body: &[Inst]) -> Out<()> {
        self.labels += 1;
        let (label, thread) = (self.labels, self.temp("tr"));
        let computing = self.p.threads - p.copiers * WARP;
        self.line(format_args!("mov.u32 {thread}, %tid.x;"));
        self.first_thread(thread, &format!("$counted_{label}"), |s| {
            for stage in 0..p.stages {
                // A warp that copies, and a lane of each that computes.
                let each = [(stage, WARP), (p.stages + stage, computing / WARP)];
                for (number, count) in each {
                    let at = s.barrier_at(p, number);
                    s.line(format_args!(
                        "mbarrier.init.shared::cta.b64 [{at}], {count};"
                    ));
                }
            }
            // Copies that go by themselves count at them too.
            s.line("fence.mbarrier_init.release.cluster;");
        });
        let meet = self.source.barrier();
        self.line(format_args!("{meet};"));
        self.pipeline = Some(Printing {
            pipeline: *p,
            label,
            thread,
            computing,
            sides: 0,
            filled: None,
        });
        self.body_of(own, body)?;
        self.pipeline = None;
        self.out.push_str(&format!("$over_{label}:\n"));
        // Inside a kernel that goes on the barriers are made anew.
        if *self.source != Source::Entry {
            self.line(format_args!("{meet};"));
            self.first_thread(thread, &format!("$forgotten_{label}"), |s| {
                for number in 0..2 * p.stages {
                    let at = s.barrier_at(p, number);
                    s.line(format_args!("mbarrier.inval.shared::cta.b64 [{at}];"));
                }
            });
        }
        Ok(())
    }

    /// `f` by the CTA's first thread alone.
    fn first_thread(&mut self, thread: Name, label: &str, f: impl FnOnce(&mut Self)) {
        let p = self.temp("tp");
        self.line(format_args!("setp.ne.u32 {p}, {thread}, 0;"));
        self.line(format_args!("@{p} bra {label};"));
        f(self);
        self.out.push_str(&format!("{label}:\n"));
    }

    /// Where barrier `number` of a pipeline is.
    fn barrier_at(&self, p: &Pipeline, number: u32) -> String {
        let first = self.shared[p.barriers as usize];
        format!("shared_bytes+{}", first + BYTES * number)
    }

    /// A side of the pipeline at hand: the first one ends at the pipeline's end, what stands behind the second one is
    /// of those that compute.
    fn side(&mut self, own: usize, piece: Reg, body: &[Inst]) -> Out<()> {
        let Some(printing) = &mut self.pipeline else {
            return Err("a side stands in no pipeline".into());
        };
        printing.sides += 1;
        let (p, label, thread) = (printing.pipeline, printing.label, printing.thread);
        let (computing, copies) = (printing.computing, printing.sides == 1);
        let i = self.r(piece);
        let [more, fewer] = p.registers;
        let shared_out = *self.source == Source::Entry && more > fewer;
        let step = if copies { p.turns() } else { 1 };
        if copies {
            let q = self.temp("tp");
            self.line(format_args!("setp.lt.u32 {q}, {thread}, {computing};"));
            self.line(format_args!("@{q} bra $computing_{label};"));
            if shared_out {
                self.line(format_args!("setmaxnreg.dec.sync.aligned.u32 {fewer};"));
            }
            self.line(format_args!("shr.u32 {i}, {thread}, 5;"));
            self.line(format_args!("sub.s32 {i}, {i}, {};", computing / WARP));
            if p.turns() < p.copiers {
                let q = self.temp("tp");
                self.line(format_args!("setp.ge.s32 {q}, {i}, {step};"));
                self.line(format_args!("@{q} bra $copy_end_{label};"));
            }
        } else {
            if shared_out {
                self.line(format_args!("setmaxnreg.inc.sync.aligned.u32 {more};"));
            }
            self.line(format_args!("mov.b32 {i}, 0;"));
        }
        let side = if copies { "copy" } else { "compute" };
        let (end, q) = (self.second(p.pieces), self.temp("tp"));
        self.out.push_str(&format!("${side}_{label}:\n"));
        self.line(".pragma \"nounroll\";");
        self.line(format_args!("setp.ge.s32 {q}, {i}, {end};"));
        self.line(format_args!("@{q} bra ${side}_end_{label};"));
        let [there, free] = self.stage_barriers(&p, i);
        let (round, own_barrier, others) = match copies {
            true => (self.round(&p, i, true), there, free),
            false => (self.round(&p, i, false), free, there),
        };
        self.await_barrier(&format!("${side}_wait_{label}"), others, round);
        if let Some(printing) = &mut self.pipeline {
            printing.filled = copies.then_some(own_barrier);
        }
        self.body_of(own, body)?;
        if !copies && reads_shared(body) {
            // One lane says that the stage is free which all lanes read.
            self.line("bar.warp.sync -1;");
        }
        match copies {
            true => self.line(format_args!(
                "mbarrier.arrive.shared::cta.b64 _, [{own_barrier}];"
            )),
            false => self.release(&p, (i, thread), label),
        }
        self.line(format_args!("add.s32 {i}, {i}, {step};"));
        self.line(format_args!("bra ${side}_{label};"));
        self.out.push_str(&format!("${side}_end_{label}:\n"));
        if copies {
            self.line(format_args!("bra $over_{label};"));
            self.out.push_str(&format!("$computing_{label}:\n"));
        }
        Ok(())
    }

    /// A lane of a warp that fills a stage copies a run of bytes, which the stage's barrier counts.
    fn bulk(
        &mut self,
        (array, to): (u32, Reg),
        (operand, index, elements): (OperandId, Reg, u32),
    ) -> Out<()> {
        let printing = self.pipeline.as_ref();
        let Some((barrier, thread)) = printing.and_then(|p| Some((p.filled?, p.thread))) else {
            return Err("a copy at once fills no stage".into());
        };
        let bytes = self.p.operands[operand as usize].dtype.bits() * elements / 8;
        let from = self.global(operand, index, None);
        let to = self.shared_at(array, to);
        let (lane, other) = (self.temp("tr"), self.temp("tp"));
        self.labels += 1;
        let label = format!("$begun_{}", self.labels);
        self.line(format_args!("and.b32 {lane}, {thread}, 31;"));
        self.line(format_args!("setp.ne.u32 {other}, {lane}, 0;"));
        self.line(format_args!("@{other} bra {label};"));
        self.line(format_args!(
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [{barrier}], {bytes};"
        ));
        self.line(format_args!(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{to}], [{from}], {bytes}, [{barrier}];"
        ));
        self.out.push_str(&format!("{label}:\n"));
        Ok(())
    }

    /// The barriers of piece `i`'s stage: that it is there, and that it is free.
    fn stage_barriers(&mut self, p: &Pipeline, i: Name) -> [Name; 2] {
        let (base, there, free) = (self.temp("tr"), self.temp("tr"), self.temp("tr"));
        let first = self.shared[p.barriers as usize];
        self.line(format_args!("rem.s32 {there}, {i}, {};", p.stages));
        self.line(format_args!("mov.u32 {base}, shared_bytes;"));
        self.line(format_args!(
            "mad.lo.s32 {there}, {there}, {BYTES}, {base};"
        ));
        self.line(format_args!("add.s32 {there}, {there}, {first};"));
        self.line(format_args!(
            "add.s32 {free}, {there}, {};",
            BYTES * p.stages
        ));
        [there, free]
    }

    /// The parity of the round of stages that piece `i` is in, or of the one before.
    fn round(&mut self, p: &Pipeline, i: Name, before: bool) -> Name {
        let round = self.temp("tr");
        self.line(format_args!("div.s32 {round}, {i}, {};", p.stages));
        if before {
            self.line(format_args!("add.s32 {round}, {round}, 1;"));
        }
        self.line(format_args!("and.b32 {round}, {round}, 1;"));
        round
    }

    /// Waits until the phase of such a parity of a barrier is over.
    fn await_barrier(&mut self, label: &str, barrier: Name, parity: Name) {
        let q = self.temp("tp");
        self.out.push_str(&format!("{label}:\n"));
        self.line(format_args!(
            "mbarrier.try_wait.parity.shared::cta.b64 {q}, [{barrier}], {parity};"
        ));
        self.line(format_args!("@!{q} bra {label};"));
    }

    /// A lane of each warp that computes says that the stage is free whose products are over behind piece `i`.
    fn release(&mut self, p: &Pipeline, (i, thread): (Name, Name), label: u32) {
        let (lane, done) = (self.temp("tr"), self.temp("tr"));
        let (other, early, skip) = (self.temp("tp"), self.temp("tp"), self.temp("tp"));
        self.line(format_args!("and.b32 {lane}, {thread}, 31;"));
        self.line(format_args!("setp.ne.u32 {other}, {lane}, 0;"));
        self.line(format_args!("sub.s32 {done}, {i}, {};", p.behind));
        self.line(format_args!("setp.lt.s32 {early}, {done}, 0;"));
        self.line(format_args!("or.pred {skip}, {other}, {early};"));
        self.line(format_args!("@{skip} bra $kept_{label};"));
        let free = self.stage_barriers(p, done)[1];
        self.line(format_args!("mbarrier.arrive.shared::cta.b64 _, [{free}];"));
        self.out.push_str(&format!("$kept_{label}:\n"));
    }
}
