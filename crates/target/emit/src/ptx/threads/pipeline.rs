//! Pipelines with sides: warps that copy, and those that compute, each waiting for the other's barriers in shared
//! memory, from sm_90a on.
use super::counted::Part;
use super::{Name, Out, Printer, Printing};
use crate::ptx::source::Source;
use crate::simt::dependents::waits;
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
        self.come?;
        Some(format!("bar.sync {COMPUTING}, {}", self.computing))
    }
}

/// The form and the last operand of a copy that is sent to the CTAs of a cluster; nothing where it is to its own CTA.
#[derive(Default)]
struct Sent {
    form: &'static str,
    mask: String,
}

/// A side as it is printed: what its labels begin with, how many pieces further on its next one is, and the parity
/// of the phase that its first pieces wait for.
struct Way {
    name: &'static str,
    step: u32,
    parity: u32,
}

/// The parts of a pipeline's body: what stands before both sides and between them, and behind.
struct Parts<'b> {
    before: &'b [Inst],
    copy: Side<'b>,
    between: &'b [Inst],
    compute: Side<'b>,
    rest: &'b [Inst],
}

/// A side, its piece, its stage and what is done for it.
#[derive(Clone, Copy)]
struct Side<'b> {
    whole: &'b Inst,
    piece: Reg,
    stage: Reg,
    body: &'b [Inst],
}

impl Side<'_> {
    fn of(i: &Inst) -> Option<Side<'_>> {
        match i {
            Inst::Side { piece, stage, body } => Some(Side {
                whole: i,
                piece: *piece,
                stage: *stage,
                body,
            }),
            _ => None,
        }
    }
}

impl Parts<'_> {
    fn of(body: &[Inst]) -> Option<Parts<'_>> {
        let mut sides = body.iter().enumerate();
        let (first, copy) = sides.find_map(|(at, i)| Some((at, Side::of(i)?)))?;
        let (second, compute) = sides.find_map(|(at, i)| Some((at, Side::of(i)?)))?;
        Some(Parts {
            before: &body[..first],
            copy,
            between: &body[first + 1..second],
            compute,
            rest: &body[second + 1..],
        })
    }
}

impl Printer<'_> {
    /// A pipeline, what stands in one alone, or a copy at once.
    pub(super) fn sided(&mut self, own: usize, i: &Inst) -> Out<()> {
        match i {
            Inst::Pipeline { pipeline, body } => self.pipeline(own, pipeline, body),
            Inst::Side { .. } => Err("a side stands in no pipeline".into()),
            Inst::Freed => self.freed(),
            Inst::Bulk {
                array,
                to,
                operand,
                index,
                elements,
                among,
            } => self.bulk((*array, *to), (*operand, *index, *elements), *among),
            Inst::Box {
                array,
                to,
                tensor,
                at,
                ..
            } => self.boxed((*array, *to), (*tensor, at)),
            _ => Ok(()),
        }
    }

    /// What a pipeline begins and ends with, and its body.
    fn pipeline(&mut self, own: usize, p: &Pipeline, body: &[Inst]) -> Out<()> {
        let parts = Parts::of(body).ok_or("a pipeline without two sides")?;
        self.labels += 1;
        let (label, thread) = (self.labels, self.temp("tr"));
        let computing = self.p.threads - p.copiers * WARP;
        self.line(format_args!("mov.u32 {thread}, %tid.x;"));
        self.first_thread(thread, &format!("$counted_{label}"), |s| {
            for stage in 0..p.stages {
                // A warp that copies, and a lane of each that computes, in all CTAs that copy to each other's stages.
                let each = [
                    (stage, WARP),
                    (p.stages + stage, p.among * computing / WARP),
                ];
                for (number, count) in each {
                    let at = s.barrier_at(p, number);
                    s.line(format_args!(
                        "mbarrier.init.shared::cta.b64 [{at}], {count};"
                    ));
                }
            }
            // Copies that go by themselves count at them too.
            s.line("fence.mbarrier_init.release.cluster;");
            for tensor in 0..s.p.tensors.len() {
                s.line(format_args!("prefetch.tensormap [%map_{tensor}];"));
            }
        });
        let meet = self.source.barrier();
        let rank = match p.among {
            1 => {
                self.line(format_args!("{meet};"));
                None
            }
            _ if *self.source != Source::Entry => {
                return Err("clusters are of steps that are launched alone".into());
            }
            _ => {
                // The fence behind the barriers' beginnings orders those, and there is nothing else.
                self.cluster_meets("relaxed");
                let rank = self.temp("tr");
                self.line(format_args!("mov.u32 {rank}, %cluster_ctarank;"));
                Some(rank)
            }
        };
        self.pipeline = Some(Printing {
            rank,
            pipeline: *p,
            label,
            thread,
            computing,
            sides: 0,
            filled: None,
            waited: None,
            come: None,
        });
        let start = self.out.place();
        self.inner(|s| s.two_sides(p, &parts))?;
        self.parts[own].body = start..self.out.place();
        self.pipeline = None;
        self.out.label(format_args!("$over_{label}"));
        if p.among > 1 {
            // Others copy to this CTA's shared memory, and arrive at its barriers, until they are here.
            self.cluster_meets("release");
        }
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

    /// The CTAs of the cluster meet.
    fn cluster_meets(&mut self, order: &str) {
        self.line(format_args!("barrier.cluster.arrive.{order};"));
        self.line("barrier.cluster.wait.acquire;");
    }

    /// Where the CTAs of a cluster arrive, or wait for each other.
    pub(super) fn meeting(&mut self, i: &Inst) {
        match i {
            Inst::ClusterArrive => self.line("barrier.cluster.arrive.release;"),
            Inst::ClusterWait => self.line("barrier.cluster.wait.acquire;"),
            _ => {}
        }
    }

    /// The pipeline at hand.
    fn printing(&mut self) -> Out<&mut Printing> {
        self.pipeline
            .as_mut()
            .ok_or("it stands in no pipeline".into())
    }

    /// A pipeline's body: what stands before its sides is printed for each of them where they walk tasks.
    fn two_sides(&mut self, p: &Pipeline, parts: &Parts) -> Out<()> {
        let (label, thread, computing) = {
            let own = self.printing()?;
            (own.label, own.thread, own.computing)
        };
        let entry = *self.source == Source::Entry;
        let walk = p.walk.filter(|_| entry);
        if walk.is_none() {
            if let Some(task) = p.walk {
                let (task, from) = (self.r(task), self.source.task());
                self.line(format_args!("mov.u32 {task}, {from};"));
            }
            self.once(parts.before)?;
        }
        // The other side has none of the zeros of this one.
        let begun = self.begun.clone();
        let [more, fewer] = p.registers;
        let shared_out = entry && more > fewer;
        // Where threads that copy go on they are counted where the CTAs of a cluster meet; else they have ended by then.
        let meets = !entry && parts.rest.contains(&Inst::ClusterWait);
        let q = self.temp("tp");
        self.line(format_args!("setp.lt.u32 {q}, {thread}, {computing};"));
        self.line(format_args!("@{q} bra $computing_{label};"));
        if shared_out {
            self.line(format_args!("setmaxnreg.dec.sync.aligned.u32 {fewer};"));
        }
        let (i, step) = (self.r(parts.copy.piece), p.turns());
        self.line(format_args!("shr.u32 {i}, {thread}, 5;"));
        self.line(format_args!("sub.s32 {i}, {i}, {};", computing / WARP));
        if step < p.copiers {
            let q = self.temp("tp");
            self.line(format_args!("setp.ge.s32 {q}, {i}, {step};"));
            let end = if meets { "copied" } else { "over" };
            self.line(format_args!("@{q} bra ${end}_{label};"));
        }
        let stage = self.r(parts.copy.stage);
        self.line(format_args!("mov.b32 {stage}, {i};"));
        if self.source.begins() && waits(parts.copy.body) {
            let waited = self.temp("tr");
            self.line(format_args!("mov.b32 {waited}, 0;"));
            self.printing()?.waited = Some(waited);
        }
        let way = Way {
            name: "copy",
            step,
            parity: 1,
        };
        self.inner(|s| {
            s.tasks(walk, &way, |s, parity| {
                if walk.is_some() {
                    s.once(parts.before)?;
                }
                s.begin(parts.copy.whole);
                s.side((p, &parts.copy), &way, parity)?;
                let end = s.second(p.pieces);
                s.line(format_args!("sub.s32 {i}, {i}, {end};"));
                Ok(())
            })
        })?;
        if meets {
            self.out.label(format_args!("$copied_{label}"));
            parts.rest.iter().for_each(|i| self.meeting(i));
        }
        if walk.is_none() {
            self.line(format_args!("bra $over_{label};"));
        }
        self.begun = begun;
        self.out.label(format_args!("$computing_{label}"));
        if shared_out {
            self.line(format_args!("setmaxnreg.inc.sync.aligned.u32 {more};"));
        }
        let (i, stage) = (self.r(parts.compute.piece), self.r(parts.compute.stage));
        self.printing()?.come = Some([i, stage]);
        self.line(format_args!("mov.b32 {stage}, 0;"));
        let way = Way {
            name: "compute",
            step: 1,
            parity: 0,
        };
        self.inner(|s| {
            s.tasks(walk, &way, |s, parity| {
                if walk.is_some() {
                    // It is the text of the same instructions.
                    let counted = s.parts.len();
                    s.once(parts.before)?;
                    s.parts.truncate(counted);
                }
                s.once(parts.between)?;
                s.line(format_args!("mov.b32 {i}, 0;"));
                s.begin(parts.compute.whole);
                s.side((p, &parts.compute), &way, parity)?;
                s.once(parts.rest)
            })
        })
    }

    /// Waits for the kernels before, where this is the first step of a launch: a kernel that stays has waited before it
    /// comes to a step. A warp that copies does so for its first piece alone.
    pub(super) fn dependency_wait(&mut self) {
        if !self.source.begins() {
            return;
        }
        let copying = self.pipeline.as_ref().filter(|p| p.come.is_none());
        let Some(waited) = copying.and_then(|p| p.waited) else {
            return self.line("griddepcontrol.wait;");
        };
        self.labels += 1;
        let (q, label) = (self.temp("tp"), format!("$waited_{}", self.labels));
        self.line(format_args!("setp.ne.u32 {q}, {waited}, 0;"));
        self.line(format_args!("@{q} bra {label};"));
        self.line("griddepcontrol.wait;");
        self.line(format_args!("mov.b32 {waited}, 1;"));
        self.out.label(label);
    }

    /// What a side does for its task, or for every task of the CTA one after the other; `f` has the parity of the phase
    /// that the side waits for, which goes on from task to task.
    fn tasks(
        &mut self,
        walk: Option<Reg>,
        way: &Way,
        f: impl FnOnce(&mut Self, Name) -> Out<()>,
    ) -> Out<()> {
        let parity = self.temp("tr");
        self.line(format_args!("mov.b32 {parity}, {};", way.parity));
        let Some(task) = walk else {
            return f(self, parity);
        };
        let (label, task) = (self.printing()?.label, self.r(task));
        let (over, ctas) = (self.temp("tp"), self.temp("tr"));
        let from = self.source.task();
        self.line(format_args!("mov.u32 {task}, {from};"));
        self.out.label(format_args!("${}_task_{label}", way.name));
        self.line(".pragma \"nounroll\";");
        self.line(format_args!("setp.ge.s32 {over}, {task}, %tasks;"));
        self.line(format_args!("@{over} bra $over_{label};"));
        f(self, parity)?;
        self.line(format_args!("mov.u32 {ctas}, %nctaid.x;"));
        self.line(format_args!("add.s32 {task}, {task}, {ctas};"));
        self.line(format_args!("bra ${}_task_{label};", way.name));
        Ok(())
    }

    /// `f` by the CTA's first thread alone.
    fn first_thread(&mut self, thread: Name, label: &str, f: impl FnOnce(&mut Self)) {
        let p = self.temp("tp");
        self.line(format_args!("setp.ne.u32 {p}, {thread}, 0;"));
        self.line(format_args!("@{p} bra {label};"));
        f(self);
        self.out.label(label);
    }

    /// Where barrier `number` of a pipeline is.
    fn barrier_at(&self, p: &Pipeline, number: u32) -> String {
        let first = self.shared[p.barriers as usize];
        format!("shared_bytes+{}", first + BYTES * number)
    }

    /// A side's pieces of a task.
    fn side(&mut self, (p, side): (&Pipeline, &Side), way: &Way, parity: Name) -> Out<()> {
        let (own, start) = (self.parts.len(), self.out.place());
        self.parts.push(Part::default());
        let printing = self.printing()?;
        printing.sides += 1;
        let (label, thread, copies) = (printing.label, printing.thread, printing.sides == 1);
        let (i, stage) = (self.r(side.piece), self.r(side.stage));
        let (end, q) = (self.second(p.pieces), self.temp("tp"));
        let (name, step) = (way.name, way.step);
        self.out.label(format_args!("${name}_{label}"));
        self.line(".pragma \"nounroll\";");
        self.line(format_args!("setp.ge.s32 {q}, {i}, {end};"));
        self.line(format_args!("@{q} bra ${name}_end_{label};"));
        let [there, free] = self.stage_barriers(p, stage);
        // Threads of other CTAs say as well that a stage is free.
        let (awaited, order) = match copies {
            true if p.among > 1 => (free, ".acquire.cluster"),
            true => (free, ""),
            false => (there, ""),
        };
        let wait = format!("${name}_wait_{label}");
        self.await_barrier(&wait, (awaited, order), parity);
        self.printing()?.filled = copies.then_some(there);
        self.body_of(own, side.body)?;
        if !copies && reads_shared(side.body) {
            // One lane says that the stage is free which all lanes read.
            self.line("bar.warp.sync -1;");
        }
        match copies {
            true => self.line(format_args!(
                "mbarrier.arrive.shared::cta.b64 _, [{there}];"
            )),
            false => self.release(p, p.behind, [i, stage], thread),
        }
        self.line(format_args!("add.s32 {i}, {i}, {step};"));
        self.advance(p, (stage, parity), step);
        self.line(format_args!("bra ${name}_{label};"));
        self.out.label(format_args!("${name}_end_{label}"));
        self.parts[own].whole = start..self.out.place();
        Ok(())
    }

    /// Goes on by `step` stages, into the next phase behind the last one.
    fn advance(&mut self, p: &Pipeline, (stage, parity): (Name, Name), step: u32) {
        let (q, less, other) = (self.temp("tp"), self.temp("tr"), self.temp("tr"));
        self.line(format_args!("add.s32 {stage}, {stage}, {step};"));
        self.line(format_args!("setp.ge.s32 {q}, {stage}, {};", p.stages));
        self.line(format_args!("sub.s32 {less}, {stage}, {};", p.stages));
        self.line(format_args!("selp.b32 {stage}, {less}, {stage}, {q};"));
        self.line(format_args!("xor.b32 {other}, {parity}, 1;"));
        self.line(format_args!("selp.b32 {parity}, {other}, {parity}, {q};"));
    }

    /// A lane of a warp that fills a stage copies a run of bytes, which the stage's barrier counts.
    fn bulk(
        &mut self,
        (array, to): (u32, Reg),
        (operand, index, elements): (OperandId, Reg, u32),
        among: u32,
    ) -> Out<()> {
        let filled = self.filled()?;
        let bytes = self.p.operands[operand as usize].dtype.bits() * elements / 8;
        let mut from = self.global(operand, index, None);
        let mut to = self.shared_at(array, to);
        let (share, sent) = (bytes / among.max(1), self.sent(among));
        if let Some(by) = self.share_at(among, share)? {
            (from, to) = (self.further(from, by), self.further(to, by));
        }
        let Sent { form, mask } = sent;
        self.begun(filled, bytes, |s| {
            s.line(format_args!(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes{form} [{to}], [{from}], {share}, [{}]{mask};",
                filled.1
            ));
        });
        Ok(())
    }

    /// The same of a box of a tensor.
    fn boxed(&mut self, (array, to): (u32, Reg), (tensor, at): (u32, &[Reg])) -> Out<()> {
        let filled = self.filled()?;
        let t = &self.p.tensors[tensor as usize];
        let bits = self.p.operands[t.operand as usize].dtype.bits();
        let bytes = u32::try_from(t.view.elements()).unwrap_or(0) * bits / 8;
        let mut corner: Vec<String> = at.iter().map(|&r| self.second(r).to_string()).collect();
        let mut to = self.shared_at(array, to);
        let sent = self.sent(t.among);
        if let Some(by) = self.share_at(t.among, bytes / t.among.max(1))? {
            let (along, share) = (t.view.share(t.among)).ok_or("a box has no equal shares")?;
            let d = &share.dims[along];
            let (first, rank) = (self.temp("tr"), self.printing()?.rank);
            let rank = rank.ok_or("it is in no cluster")?;
            let own = self.r(at[along]);
            self.line(format_args!(
                "mad.lo.s32 {first}, {rank}, {}, {own};",
                d.count * d.step
            ));
            corner[along] = first.to_string();
            to = self.further(to, by);
        }
        let (dims, corner) = (corner.len(), corner.join(", "));
        let Sent { form, mask } = sent;
        self.begun(filled, bytes, |s| {
            s.line(format_args!(
                "cp.async.bulk.tensor.{dims}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{form} [{to}], [%map_{tensor}, {{{corner}}}], [{}]{mask};",
                filled.1
            ));
        });
        Ok(())
    }

    /// This thread's number, and the barrier of the stage that is filled.
    fn filled(&mut self) -> Out<(Name, Name)> {
        let own = self.printing()?;
        let barrier = own.filled.ok_or("a copy at once fills no stage")?;
        Ok((own.thread, barrier))
    }

    /// How a copy is sent to all of so many CTAs.
    fn sent(&mut self, among: u32) -> Sent {
        if among == 1 {
            return Sent::default();
        }
        let all = self.temp("th");
        self.line(format_args!("mov.b16 {all}, {};", (1u32 << among) - 1));
        Sent {
            form: ".multicast::cluster",
            mask: format!(", {all}"),
        }
    }

    /// Bytes from the first of a copy to this CTA's share of so many bytes; `None` where it copies all.
    fn share_at(&mut self, among: u32, share: u32) -> Out<Option<Name>> {
        if among == 1 {
            return Ok(None);
        }
        let rank = self.printing()?.rank.ok_or("it is in no cluster")?;
        let by = self.temp("tr");
        self.line(format_args!("mul.lo.s32 {by}, {rank}, {share};"));
        Ok(Some(by))
    }

    /// What one lane of a warp begins, which brings so many bytes that a stage's barrier counts.
    fn begun(&mut self, (thread, barrier): (Name, Name), bytes: u32, f: impl FnOnce(&mut Self)) {
        let (lane, other) = (self.temp("tr"), self.temp("tp"));
        self.labels += 1;
        let label = format!("$begun_{}", self.labels);
        self.line(format_args!("and.b32 {lane}, {thread}, 31;"));
        self.line(format_args!("setp.ne.u32 {other}, {lane}, 0;"));
        self.line(format_args!("@{other} bra {label};"));
        self.line(format_args!(
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [{barrier}], {bytes};"
        ));
        f(self);
        self.out.label(label);
    }

    /// The barriers of a stage: that it is there, and that it is free.
    fn stage_barriers(&mut self, p: &Pipeline, stage: Name) -> [Name; 2] {
        let (base, there, free) = (self.temp("tr"), self.temp("tr"), self.temp("tr"));
        let first = self.shared[p.barriers as usize];
        self.line(format_args!("mov.u32 {base}, shared_bytes;"));
        self.line(format_args!(
            "mad.lo.s32 {there}, {stage}, {BYTES}, {base};"
        ));
        self.line(format_args!("add.s32 {there}, {there}, {first};"));
        self.line(format_args!(
            "add.s32 {free}, {there}, {};",
            BYTES * p.stages
        ));
        [there, free]
    }

    /// Waits until the phase of such a parity of a barrier is over.
    fn await_barrier(&mut self, label: &str, (barrier, order): (Name, &str), parity: Name) {
        let q = self.temp("tp");
        self.out.label(label);
        self.line(format_args!(
            "mbarrier.try_wait.parity{order}.shared::cta.b64 {q}, [{barrier}], {parity};"
        ));
        self.line(format_args!("@!{q} bra {label};"));
    }

    /// A lane of each warp that computes says that the stage is free of the piece so many before piece `i`,
    /// where there was one; one for each CTA that copies to it.
    fn release(&mut self, p: &Pipeline, before: u32, [i, stage]: [Name; 2], thread: Name) {
        self.labels += 1;
        let label = format!("$kept_{}", self.labels);
        let (lane, skip) = (self.temp("tr"), self.temp("tp"));
        self.line(format_args!("and.b32 {lane}, {thread}, 31;"));
        self.line(format_args!("setp.ge.u32 {skip}, {lane}, {};", p.among));
        if before > 0 {
            let early = self.temp("tp");
            self.line(format_args!("setp.lt.s32 {early}, {i}, {before};"));
            self.line(format_args!("or.pred {skip}, {skip}, {early};"));
        }
        self.line(format_args!("@{skip} bra {label};"));
        let done = self.stage_before(p, stage, before);
        let free = self.stage_barriers(p, done)[1];
        if p.among == 1 {
            self.line(format_args!("mbarrier.arrive.shared::cta.b64 _, [{free}];"));
        } else {
            let there = self.temp("tr");
            self.line(format_args!(
                "mapa.shared::cluster.u32 {there}, {free}, {lane};"
            ));
            self.line(format_args!(
                "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{there}];"
            ));
        }
        self.out.label(label);
    }

    /// The stage of the piece so many before.
    fn stage_before(&mut self, p: &Pipeline, stage: Name, by: u32) -> Name {
        if by == 0 {
            return stage;
        }
        let (before, more, q) = (self.temp("tr"), self.temp("tr"), self.temp("tp"));
        self.line(format_args!("sub.s32 {before}, {stage}, {by};"));
        self.line(format_args!("setp.lt.s32 {q}, {before}, 0;"));
        self.line(format_args!("add.s32 {more}, {before}, {};", p.stages));
        self.line(format_args!("selp.b32 {before}, {more}, {before}, {q};"));
        before
    }

    /// A lane of each warp that computes says that the stages are free that were kept, where there were pieces.
    fn freed(&mut self) -> Out<()> {
        let own = self.printing()?;
        let (p, thread, come) = (own.pipeline, own.thread, own.come);
        let [i, stage] = come.ok_or("nobody computes yet")?;
        for before in 1..=p.behind {
            self.release(&p, before, [i, stage], thread);
        }
        Ok(())
    }
}
