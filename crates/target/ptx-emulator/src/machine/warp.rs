//! A warp: its registers, and the groups of lanes that walk through the code together.

use crate::clocks::LaneSync;
use crate::machine::cluster::Clusters;
use crate::machine::warpgroup::Flight;
use crate::program::{CONST, Kernel, R, SINK, Start};
use crate::timing::trace::Trace;

/// No node, no lane.
pub(crate) const NONE: u32 = u32::MAX;

/// Where lanes that branched apart meet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    pub pc: u32,
    /// Where the function that it lies in returns to.
    pub calls: Vec<u32>,
    /// Lanes that are to come; those that exit no longer count.
    pub expected: u32,
    pub arrived: u32,
    pub parent: u32,
}

/// What a group of lanes does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupState {
    Ready,
    /// Waits for the other lanes named in the mask, at a warp-wide instruction.
    Warp(u32),
    /// Waits at a CTA barrier.
    Barrier(u32),
    /// Waits for all lanes of the warp at an instruction that needs them together.
    Align,
    /// Waits for the other warps of its warpgroup.
    Warpgroup,
    /// Waits for registers that others give back.
    Registers,
    /// Polls words that nobody wrote since.
    Parked,
}

/// What the loop that a group is in did since it last went back.
#[derive(Debug, Clone, Default)]
pub(crate) struct Poll {
    pub pc: u32,
    pub hash: u64,
    pub last: u64,
    pub loads: u32,
    /// Something was written, or a barrier passed.
    pub dirty: bool,
    pub same: u32,
    /// Registers when the second identical round ended.
    pub registers: u64,
    /// Words read while the last round is recorded.
    pub words: Vec<u64>,
    /// Writes there had been when the round began.
    pub writes: u64,
    /// Rounds to let pass before registers are looked at again.
    pub patience: u32,
}

/// Lanes that walk together.
#[derive(Debug, Clone)]
pub(crate) struct Fragment {
    pub mask: u32,
    pub pc: u32,
    pub node: u32,
    pub calls: Vec<u32>,
    pub doing: GroupState,
    pub poll: Poll,
    pub apart: Divergence,
}

/// Whether lanes may go through an instruction that needs the whole warp without the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Divergence {
    /// They wait for them first.
    #[default]
    No,
    /// The others are at the same instruction.
    Beside,
    /// The others will not come: it is a mistake of the kernel.
    Never,
}

/// A copy that is under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy {
    /// Its number in the warp.
    pub number: u32,
    pub lane: u32,
    pub to: u32,
    pub bytes: u32,
    pub data: [u32; 4],
    /// Groups its lane had committed when it began.
    pub group: u32,
    pub pc: u32,
    pub written: bool,
}

/// A lane's bulk copies to global memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BulkGroups {
    pub committed: u32,
    /// The groups with copies that were waited for, those there are, and the last copy's instruction.
    pub waited: u32,
    pub begun: u32,
    pub pc: u32,
    /// Who reads shared memory and writes global memory for it.
    pub agents: [u32; 2],
}

#[derive(Debug)]
pub(crate) struct Warp {
    pub index: u32,
    /// Number in the launch.
    pub global: u32,
    pub r32: Vec<[u32; 32]>,
    pub r64: Vec<[u64; 32]>,
    pub preds: Vec<u32>,
    pub init32: Vec<u32>,
    pub init64: Vec<u32>,
    pub initp: Vec<u32>,
    pub carry: u32,
    /// Local memory, by word; which bytes were written.
    pub local: Vec<[u32; 32]>,
    pub local_written: Vec<[u8; 32]>,
    pub fragments: Vec<Fragment>,
    pub nodes: Vec<Node>,
    free_nodes: Vec<u32>,
    /// Lanes that have not ended.
    pub alive: u32,
    /// Lanes that have waited for the kernels before.
    pub waited: u32,
    /// Lanes there are.
    pub lanes: u32,
    pub current: usize,
    pub sync: Vec<LaneSync>,
    /// Asynchronous copies under way, and how many groups each lane committed.
    pub copies: Vec<Copy>,
    pub committed: [u32; 32],
    pub copied: u32,
    /// Bulk copies to global memory, by lane.
    pub bulk: Vec<BulkGroups>,
    /// Registers of a thread, as far as that is known.
    pub registers: u32,
    /// The cluster's phase that each lane arrived in, from 1; 0 once it has waited.
    pub cluster_phase: [u32; 32],
    pub steps: u64,
    /// Registers that products of its warpgroup use.
    pub flight: Flight,
    /// What it executed, where somebody wants to know.
    pub trace: Option<Box<Trace>>,
}

/// Where a warp is in its launch.
pub(crate) struct Place {
    pub ntid: [u32; 3],
    pub ctaid: [u32; 3],
    pub nctaid: [u32; 3],
    pub dynamic_shared: u32,
    pub total_shared: u32,
    pub slot: u32,
    pub slots: u32,
    pub first_warp: u32,
    pub clusters: Clusters,
}

impl Warp {
    pub fn new(k: &Kernel, index: u32, p: &Place) -> Warp {
        let threads = p.ntid.iter().product::<u32>();
        let lanes = (threads - index * 32).min(32);
        let mask = if lanes == 32 {
            u32::MAX
        } else {
            (1 << lanes) - 1
        };
        let mut w = Warp {
            index,
            global: p.first_warp + index,
            r32: vec![[0; 32]; k.rows32 as usize],
            r64: vec![[0; 32]; k.rows64 as usize],
            preds: vec![0; k.preds as usize],
            init32: vec![0; k.rows32 as usize],
            init64: vec![0; k.rows64 as usize],
            initp: vec![0; k.preds as usize],
            carry: 0,
            local: vec![[0; 32]; k.local_bytes.div_ceil(4) as usize],
            local_written: vec![[0; 32]; k.local_bytes.div_ceil(4) as usize],
            fragments: vec![Fragment {
                mask,
                pc: 0,
                node: NONE,
                calls: Vec::new(),
                doing: GroupState::Ready,
                poll: Poll::default(),
                apart: Divergence::No,
            }],
            nodes: Vec::new(),
            free_nodes: Vec::new(),
            alive: mask,
            lanes: mask,
            current: 0,
            waited: 0,
            sync: vec![LaneSync::default(); 32],
            copies: Vec::new(),
            committed: [0; 32],
            copied: 0,
            bulk: vec![BulkGroups::default(); 32],
            registers: k.registers,
            cluster_phase: [0; 32],
            steps: 0,
            flight: Flight::new(match k.hazards.is_empty() {
                true => 0,
                false => k.rows32 as usize,
            }),
            trace: None,
        };
        for (s, row) in &k.start32 {
            w.r32[*row as usize] = start(*s, index, p);
            w.init32[*row as usize] = u32::MAX;
        }
        for (s, row) in &k.start64 {
            w.r64[*row as usize] = start(*s, index, p).map(u64::from);
            w.init64[*row as usize] = u32::MAX;
        }
        w
    }

    #[inline(always)]
    pub fn a32<'a>(&'a self, k: &'a Kernel, r: R) -> &'a [u32; 32] {
        match r & CONST {
            0 => &self.r32[r as usize],
            _ => &k.const32[(r & !CONST) as usize],
        }
    }

    #[inline(always)]
    pub fn a64<'a>(&'a self, k: &'a Kernel, r: R) -> &'a [u64; 32] {
        match r & CONST {
            0 => &self.r64[r as usize],
            _ => &k.const64[(r & !CONST) as usize],
        }
    }

    /// A predicate; the constant one is true.
    #[inline(always)]
    pub fn ap(&self, r: R, negated: bool) -> u32 {
        let v = match r & CONST {
            0 => self.preds[r as usize],
            _ => u32::MAX,
        };
        if negated { !v } else { v }
    }

    #[inline(always)]
    pub fn put32(&mut self, d: R, act: u32, v: &[u32; 32]) {
        if d == SINK {
            return;
        }
        let row = &mut self.r32[d as usize];
        if act == u32::MAX {
            *row = *v;
        } else {
            for l in 0..32 {
                let m = 0u32.wrapping_sub(act >> l & 1);
                row[l] = (v[l] & m) | (row[l] & !m);
            }
        }
        self.init32[d as usize] |= act;
    }

    #[inline(always)]
    pub fn put64(&mut self, d: R, act: u32, v: &[u64; 32]) {
        if d == SINK {
            return;
        }
        let row = &mut self.r64[d as usize];
        if act == u32::MAX {
            *row = *v;
        } else {
            for l in 0..32 {
                let m = 0u64.wrapping_sub(u64::from(act >> l & 1));
                row[l] = (v[l] & m) | (row[l] & !m);
            }
        }
        self.init64[d as usize] |= act;
    }

    #[inline(always)]
    pub fn putp(&mut self, d: R, act: u32, v: u32) {
        if d == SINK {
            return;
        }
        let row = &mut self.preds[d as usize];
        *row = (v & act) | (*row & !act);
        self.initp[d as usize] |= act;
    }

    fn node(&mut self, n: Node) -> u32 {
        match self.free_nodes.pop() {
            Some(k) => {
                self.nodes[k as usize] = n;
                k
            }
            None => {
                self.nodes.push(n);
                self.nodes.len() as u32 - 1
            }
        }
    }

    fn free(&mut self, id: u32) {
        self.nodes[id as usize] = Node::default();
        self.free_nodes.push(id);
    }

    /// No group can go on by itself: groups that wait for each other at one instruction go on
    /// together, lanes at a meeting place go on alone, and those whose others will never come are
    /// let through. Whether any can go on now.
    pub fn unblock(&mut self) -> bool {
        let at: Vec<u32> = self.aligned().map(|f| f.pc).collect();
        for pc in at {
            let here = self.aligned().filter(|f| f.pc == pc);
            if here.fold(0, |m, f| m | f.mask) == self.alive {
                self.together(pc);
                return true;
            }
        }
        if self.part() {
            return true;
        }
        let mut waiting = false;
        for f in &self.fragments {
            // These may still come.
            if matches!(f.doing, GroupState::Parked | GroupState::Warp(_)) {
                return false;
            }
            waiting |= f.doing == GroupState::Align;
        }
        for f in &mut self.fragments {
            if f.doing == GroupState::Align {
                f.doing = GroupState::Ready;
                f.apart = Divergence::Never;
            }
        }
        waiting
    }

    fn aligned(&self) -> impl Iterator<Item = &Fragment> {
        self.fragments
            .iter()
            .filter(|f| f.doing == GroupState::Align)
    }

    /// All groups that wait at `pc` go on, as one where they have the same way ahead.
    fn together(&mut self, pc: u32) {
        let here = |f: &Fragment| f.doing == GroupState::Align && f.pc == pc;
        let (mut all, rest): (Vec<Fragment>, Vec<Fragment>) = std::mem::take(&mut self.fragments)
            .into_iter()
            .partition(here);
        self.fragments = rest;
        while let Some(mut f) = all.pop() {
            let before = all.len();
            all.retain(|o| {
                let same = o.node == f.node && o.calls == f.calls;
                f.mask |= if same { o.mask } else { 0 };
                !same
            });
            f.doing = GroupState::Ready;
            let alone = before == all.len() || f.mask != self.alive;
            f.apart = if alone {
                Divergence::Beside
            } else {
                Divergence::No
            };
            self.fragments.push(f);
        }
        self.current = self.fragments.len() - 1;
    }

    /// Lanes that wait for others at a meeting place go on without them: those may be waiting for
    /// what these lanes do next, such as the release of a lock. Whether there were any.
    pub fn part(&mut self) -> bool {
        let before = self.fragments.len();
        for id in 0..self.nodes.len() {
            let n = &mut self.nodes[id];
            if n.arrived == 0 {
                continue;
            }
            let f = Fragment {
                mask: std::mem::take(&mut n.arrived),
                pc: n.pc,
                node: n.parent,
                calls: n.calls.clone(),
                doing: GroupState::Ready,
                poll: Poll::default(),
                apart: Divergence::No,
            };
            n.expected &= !f.mask;
            if n.expected == 0 {
                self.free(id as u32);
            }
            self.fragments.push(f);
        }
        self.fragments.len() > before
    }

    /// The current group splits: each part goes to its own place and all meet at `meet`.
    pub fn split(&mut self, parts: &[(u32, u32)], meet: u32) {
        let f = &self.fragments[self.current];
        let (mask, parent, calls) = (f.mask, f.node, f.calls.clone());
        let same = parent != NONE && self.nodes[parent as usize].pc == meet;
        let node = if meet == u32::MAX || same {
            parent
        } else {
            self.node(Node {
                pc: meet,
                calls: calls.clone(),
                expected: mask,
                arrived: 0,
                parent,
            })
        };
        for (k, (mask, pc)) in parts.iter().enumerate() {
            let poll = if k == 0 {
                std::mem::take(&mut self.fragments[self.current].poll)
            } else {
                Poll::default()
            };
            let f = Fragment {
                mask: *mask,
                pc: *pc,
                node,
                calls: calls.clone(),
                doing: GroupState::Ready,
                poll,
                apart: Divergence::No,
            };
            if k == 0 {
                self.fragments[self.current] = f;
            } else {
                self.fragments.push(f);
            }
        }
        // Those that are at the meeting place already have arrived.
        for k in (0..self.fragments.len()).rev() {
            self.arrive(k);
        }
    }

    /// Group `k` has come to a new place: it may be the one where others meet it.
    pub fn arrive(&mut self, k: usize) {
        let f = &self.fragments[k];
        if f.node == NONE || self.nodes[f.node as usize].pc != f.pc || f.doing != GroupState::Ready
        {
            return;
        }
        let (id, mask) = (f.node, f.mask);
        let n = &mut self.nodes[id as usize];
        n.arrived |= mask;
        if n.arrived == n.expected {
            let (parent, all) = (n.parent, n.arrived);
            self.free(id);
            let f = &mut self.fragments[k];
            f.mask = all;
            f.node = parent;
            self.arrive(k);
        } else {
            self.drop_fragment(k);
        }
    }

    fn drop_fragment(&mut self, k: usize) {
        self.fragments.swap_remove(k);
        if self.current >= self.fragments.len() || self.current == k {
            self.current = 0;
        }
        if let Some(r) = self
            .fragments
            .iter()
            .rposition(|f| f.doing == GroupState::Ready)
        {
            self.current = r;
        }
    }

    /// Lanes of the current group end.
    pub fn exit(&mut self, lanes: u32) {
        self.alive &= !lanes;
        // Groups that met and wait for these lanes go on without them.
        let f = &mut self.fragments[self.current];
        f.mask &= !lanes;
        let gone = f.mask == 0;
        let mut id = f.node;
        if gone {
            self.drop_fragment(self.current);
        }
        let mut up = id;
        while up != NONE {
            self.nodes[up as usize].expected &= !lanes;
            up = self.nodes[up as usize].parent;
        }
        while id != NONE {
            let n = self.nodes[id as usize].clone();
            if n.expected == 0 {
                self.free(id);
                id = n.parent;
                continue;
            }
            if n.arrived == n.expected {
                self.free(id);
                self.fragments.push(Fragment {
                    mask: n.expected,
                    pc: n.pc,
                    node: n.parent,
                    calls: n.calls,
                    doing: GroupState::Ready,
                    poll: Poll::default(),
                    apart: Divergence::No,
                });
                // The node above counts them, and may be complete with them.
                self.arrive(self.fragments.len() - 1);
            }
            break;
        }
    }

    /// A number that changes with any register.
    pub fn fingerprint(&self) -> u64 {
        let mut h = 0xcbf2_9ce4_8422_2325u64;
        let mut mix = |v: u64| h = (h ^ v).wrapping_mul(0x100_0000_01b3).rotate_left(17);
        for row in &self.r32 {
            for v in row {
                mix(u64::from(*v));
            }
        }
        for row in &self.r64 {
            for v in row {
                mix(*v);
            }
        }
        for v in &self.preds {
            mix(u64::from(*v));
        }
        h
    }
}

fn start(s: Start, index: u32, p: &Place) -> [u32; 32] {
    let mut out = [0u32; 32];
    for (l, o) in out.iter_mut().enumerate() {
        let l = l as u32;
        let t = index * 32 + l;
        let tid = [
            t % p.ntid[0],
            t / p.ntid[0] % p.ntid[1],
            t / (p.ntid[0] * p.ntid[1]),
        ];
        *o = match s {
            Start::Tid(a) => tid[a],
            Start::Ntid(a) => p.ntid[a],
            Start::Ctaid(a) => p.ctaid[a],
            Start::Nctaid(a) => p.nctaid[a],
            Start::Lane => l,
            Start::Warp => index,
            Start::Nwarp => p.ntid.iter().product::<u32>().div_ceil(32),
            Start::Smid => p.slot,
            Start::Nsmid => p.slots,
            Start::Gridid => 1,
            Start::MaskEq => 1 << l,
            Start::MaskLt => (1u32 << l) - 1,
            Start::MaskLe => ((1u64 << (l + 1)) - 1) as u32,
            Start::MaskGt => !(((1u64 << (l + 1)) - 1) as u32),
            Start::MaskGe => !((1u32 << l) - 1),
            Start::DynamicShared => p.dynamic_shared,
            Start::TotalShared => p.total_shared,
            Start::Zero => 0,
            Start::ClusterRank => p.clusters.rank(p.ctaid).1,
            Start::ClusterSize => p.clusters.size(),
            Start::ClusterId(a) => p.clusters.place(p.ctaid).0[a],
            Start::ClusterCount(a) => p.clusters.count()[a],
            Start::ClusterCtaid(a) => p.clusters.place(p.ctaid).1[a],
            Start::ClusterNctaid(a) => p.clusters.dims[a],
        };
    }
    out
}
