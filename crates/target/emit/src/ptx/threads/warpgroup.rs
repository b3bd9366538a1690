//! Products of warpgroups: `wgmma` with the right factor in shared memory and the left one there or in registers, from
//! sm_90a on.
use super::matrix::{names, sums_kind};
use super::output::listed;
use super::{Name, Printer};
use crate::simt::ir::{LeftFactor, Lines, Var, Warpgroup};
use kernel::Fragment;

/// A distance of one unit to the line that follows, in a matrix descriptor.
const NEXT: i64 = 1 << 16;

impl Printer<'_> {
    /// A product of warpgroups, its groups, or a fence.
    pub(super) fn warpgroup(&mut self, w: &Warpgroup) {
        match w {
            Warpgroup::ProxyFence => self.line("fence.proxy.async.shared::cta;"),
            Warpgroup::Fence => self.line("wgmma.fence.sync.aligned;"),
            Warpgroup::Commit => self.line("wgmma.commit_group.sync.aligned;"),
            Warpgroup::Wait(left) => {
                self.line(format_args!("wgmma.wait_group.sync.aligned {left};"));
            }
            Warpgroup::Multiply {
                fragment,
                sums,
                fresh,
                a,
                b,
            } => self.warpgroup_multiply(fragment, (sums, *fresh), (a, b)),
        }
    }

    /// The matrix descriptor of lines: the address, the distance between lines that follow each other and that between
    /// blocks in units of 16 bytes, and which swizzle. With a swizzle no instruction is deeper than a line along the depth,
    /// and the first distance is unused.
    fn descriptor(&mut self, l: &Lines) -> Name {
        let bytes = self.p.shared[l.array as usize].dtype.bits() / 8;
        let (units, beyond) = self.shared_units(l.array, l.index);
        let (low, high, whole) = (self.temp("tr"), self.temp("tr"), self.temp("tl"));
        let next = i64::from(l.beyond * bytes / 16).max(1) * NEXT;
        self.line(format_args!("add.s32 {low}, {units}, {};", beyond + next));
        // A swizzle of one bit is called 3, of two 2, of three 1, and none 0.
        let swizzle = (4 - l.swizzle.bits) % 4;
        let upper = (l.pitch * bytes / 16) | (swizzle << 30);
        self.line(format_args!("mov.b32 {high}, {};", upper as i32));
        self.line(format_args!("mov.b64 {whole}, {{{low}, {high}}};"));
        whole
    }

    fn warpgroup_multiply(
        &mut self,
        fragment: &Fragment,
        (sums, fresh): (&[Var], bool),
        (left_factor, right_factor): (&LeftFactor, &Lines),
    ) {
        let Fragment { m, n, k, .. } = fragment;
        let [acc, left, right] = names(fragment);
        // Signs of factors, and of those in shared memory whether they lie across the depth.
        let across = u32::from(right_factor.across);
        let more = match (fragment.multiplied()[0].bits(), left_factor) {
            (8, _) => String::new(),
            (16, LeftFactor::Lines(_)) => format!(", 1, 1, 0, {across}"),
            (16, LeftFactor::Words(_)) => format!(", 1, 1, {across}"),
            _ => ", 1, 1".into(),
        };
        let a = match left_factor {
            LeftFactor::Lines(l) => self.descriptor(l).to_string(),
            LeftFactor::Words(words) => {
                let [a, b, c, d] = words.map(|r| self.r(r));
                format!("{{{a}, {b}, {c}, {d}}}")
            }
        };
        let b = self.descriptor(right_factor);
        let adds = self.temp("tp");
        self.truth(adds, !fresh);
        let kind = sums_kind(fragment);
        let sums = sums.iter().map(|&number| Name { kind, number });
        let list = listed(&sums.collect::<Vec<Name>>());
        self.line(format_args!(
            "wgmma.mma_async.sync.aligned.m{m}n{n}k{k}.{acc}.{left}.{right} {{{list}}}, {a}, {b}, {adds}{more};"
        ));
    }
}
