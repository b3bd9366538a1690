//! Who knows of whose accesses: vector clocks, kept short.
//!
//! Every CTA has one clock, which ticks at each synchronising instruction of any of its warps. An
//! access is stamped with its thread and that clock. What a thread knows of its own CTA after a
//! barrier is one number; only what it learned by acquiring is a list, shared until it grows.

use crate::program::{Scope, Sem};
use std::collections::HashMap;
use std::sync::Arc;

/// Agents, which access memory for others, count from here; threads lie below.
pub(crate) const AGENTS: u32 = 1 << 31;
/// The host, as a thread.
pub(crate) const HOST: u32 = u32::MAX;

/// When a thread did something, and how strongly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The thread, from 1; 0 is nobody.
    pub thread: u32,
    /// The clock times four, plus the strength: 0 weak, else one more than the scope.
    pub when: u32,
}

impl Stamp {
    pub fn clock(self) -> u32 {
        self.when >> 2
    }
    pub fn strength(self) -> u32 {
        self.when & 3
    }
}

/// Strength of an access.
pub(crate) fn strength(sem: Sem, scope: Scope) -> u32 {
    match sem {
        Sem::Weak => 0,
        _ => scope as u32 + 1,
    }
}

fn warp_key(warp: u32) -> u64 {
    1 << 33 | u64::from(warp)
}

fn cta_key(cta: u32) -> u64 {
    2 << 33 | u64::from(cta)
}

/// What threads and warps wrote before a `fence.proxy.async` of theirs.
fn proxied_key(thread: u32) -> u64 {
    3 << 33 | u64::from(thread)
}

/// What barriers threads made before a `fence.mbarrier_init` of theirs.
fn init_key(thread: u32) -> u64 {
    5 << 33 | u64::from(thread)
}

fn proxied_warp_key(warp: u32) -> u64 {
    4 << 33 | u64::from(warp)
}

/// What is known: of threads, warps and CTAs, everything before a clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Vc(Vec<(u64, u32)>);

impl Vc {
    fn get(&self, key: u64) -> u32 {
        match self.0.binary_search_by_key(&key, |e| e.0) {
            Ok(k) => self.0[k].1,
            Err(_) => 0,
        }
    }

    pub fn set(&mut self, key: u64, clock: u32) {
        if clock == 0 {
            return;
        }
        match self.0.binary_search_by_key(&key, |e| e.0) {
            Ok(k) => self.0[k].1 = self.0[k].1.max(clock),
            Err(k) => self.0.insert(k, (key, clock)),
        }
    }

    pub fn set_thread(&mut self, thread: u32, clock: u32) {
        self.set(u64::from(thread), clock);
    }

    pub fn set_warp(&mut self, warp: u32, clock: u32) {
        self.set(warp_key(warp), clock);
    }

    pub fn set_cta(&mut self, cta: u32, clock: u32) {
        self.set(cta_key(cta), clock);
    }

    pub fn set_proxied_thread(&mut self, thread: u32, clock: u32) {
        self.set(proxied_key(thread), clock);
    }

    pub fn set_proxied_warp(&mut self, warp: u32, clock: u32) {
        self.set(proxied_warp_key(warp), clock);
    }

    pub fn set_init_fenced(&mut self, thread: u32, clock: u32) {
        self.set(init_key(thread), clock);
    }

    /// Whether a fence behind the making of a barrier is known: its own kind, or of the proxy.
    pub fn init_fenced(&self, s: Stamp, warp: u32) -> bool {
        self.get(init_key(s.thread)) > s.clock() || self.proxied(s, warp)
    }

    /// A proxy fence: so are the copies of `cp.async` that are known of.
    pub fn proxied_copies(&mut self) {
        let own = |e: &&(u64, u32)| (u64::from(AGENTS)..1 << 32).contains(&e.0) && e.0 & 1 == 1;
        let all: Vec<(u64, u32)> = self.0.iter().filter(own).copied().collect();
        for (agent, clock) in all {
            self.set_proxied_thread(agent as u32, clock);
        }
    }

    /// Whether a proxy fence behind the write `s` is known.
    pub fn proxied(&self, s: Stamp, warp: u32) -> bool {
        let c = s.clock();
        self.get(proxied_warp_key(warp)) > c || self.get(proxied_key(s.thread)) > c
    }

    fn covers(&self, other: &Vc) -> bool {
        other.0.len() <= self.0.len() && other.0.iter().all(|(k, c)| self.get(*k) >= *c)
    }

    fn join(&mut self, other: &Vc) {
        let mut out = Vec::with_capacity(self.0.len() + other.0.len());
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) if x.0 == y.0 => {
                    let e = (x.0, x.1.max(y.1));
                    a.next();
                    b.next();
                    e
                }
                (Some(x), Some(y)) if x.0 < y.0 => {
                    let e = **x;
                    a.next();
                    e
                }
                (Some(x), None) => {
                    let e = **x;
                    a.next();
                    e
                }
                (_, Some(y)) => {
                    let e = **y;
                    b.next();
                    e
                }
                (None, None) => break,
            };
            out.push(next);
        }
        self.0 = out;
    }

    /// Whether `s`, of another CTA or the host, is known.
    pub fn knows(&self, s: Stamp, warp: u32, cta: u32) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let c = s.clock();
        self.get(u64::from(s.thread)) > c
            || (s.thread != HOST && (self.get(cta_key(cta)) > c || self.get(warp_key(warp)) > c))
    }
}

/// Joins `other` into `vc`, without copying where one covers the other.
pub(crate) fn join(vc: &mut Arc<Vc>, other: &Arc<Vc>) {
    if Arc::ptr_eq(vc, other) || vc.covers(other) {
        return;
    }
    if other.covers(vc) {
        *vc = other.clone();
        return;
    }
    Arc::make_mut(vc).join(other);
}

/// What a lane knows, and what it holds ready for a fence.
#[derive(Debug, Clone, Default)]
pub(crate) struct LaneSync {
    pub vc: Arc<Vc>,
    /// Everything of the own CTA before this clock is known.
    pub cta_seen: u32,
    /// Everything of the own warp before this clock is known.
    pub warp_seen: u32,
    /// What was known at the last fence of at least each scope.
    pub fenced: [Option<Arc<Vc>>; 3],
    /// What relaxed reads observed, by the scope that a fence needs to make it known.
    pub pending: [Option<Arc<Vc>>; 3],
}

/// One release that a location carries.
#[derive(Debug, Clone)]
struct Release {
    /// The CTA, or [`HOST`].
    cta: u32,
    scope: Scope,
    vc: Arc<Vc>,
}

/// What the locations of one memory carry from releases to acquires.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    at: HashMap<u64, Vec<Release>>,
}

/// How far apart two parties are: the least scope that includes both.
fn relation(a: u32, b: u32) -> Scope {
    if a == b {
        Scope::Cta
    } else if a == HOST || b == HOST {
        Scope::Sys
    } else {
        Scope::Gpu
    }
}

/// A party to synchronisation.
pub(crate) struct Party<'a> {
    pub cta: u32,
    /// What it knows, itself included.
    pub known: Arc<Vc>,
    pub sync: &'a mut LaneSync,
}

impl Messages {
    /// Nothing to look for: no location carries anything.
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// A weak write took the location.
    pub fn overwrite(&mut self, word: u64) {
        if !self.at.is_empty() {
            self.at.remove(&word);
        }
    }

    /// A strong write; `chain` when it is one half of a read-modify-write, which passes on what
    /// it found.
    pub fn write(&mut self, word: u64, p: &Party<'_>, sem: Sem, scope: Scope, chain: bool) {
        let list = self.at.entry(word).or_default();
        if !chain {
            list.clear();
        }
        let mut add = |scope: Scope, vc: &Arc<Vc>| match list
            .iter_mut()
            .find(|r| r.cta == p.cta && r.scope == scope)
        {
            Some(r) => join(&mut r.vc, vc),
            None => list.push(Release {
                cta: p.cta,
                scope,
                vc: vc.clone(),
            }),
        };
        if sem.releases() {
            add(scope, &p.known);
        } else {
            for level in [Scope::Sys, Scope::Gpu, Scope::Cta] {
                if level <= scope
                    && let Some(vc) = &p.sync.fenced[level as usize]
                {
                    add(level, vc);
                }
            }
        }
        if list.is_empty() {
            self.at.remove(&word);
        }
    }

    /// A strong read.
    pub fn read(&self, word: u64, cta: u32, sync: &mut LaneSync, sem: Sem, scope: Scope) {
        let Some(list) = self.at.get(&word) else {
            return;
        };
        for r in list {
            let needed = relation(r.cta, cta);
            if r.scope < needed || scope < needed {
                continue;
            }
            if sem.acquires() {
                join(&mut sync.vc, &r.vc);
            } else {
                match &mut sync.pending[needed as usize] {
                    Some(vc) => join(vc, &r.vc),
                    none => *none = Some(r.vc.clone()),
                }
            }
        }
    }
}

/// A fence of `scope` by a lane that knows `known` (itself included).
pub(crate) fn fence(sync: &mut LaneSync, scope: Scope, known: impl FnOnce(&LaneSync) -> Arc<Vc>) {
    for level in 0..=scope as usize {
        if let Some(vc) = sync.pending[level].take() {
            join(&mut sync.vc, &vc);
        }
    }
    let known = known(sync);
    for level in 0..=scope as usize {
        sync.fenced[level] = Some(known.clone());
    }
}
