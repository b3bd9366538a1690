//! What products of warpgroups see of shared memory, and those that are under way.
use crate::simt::ir::{Inst, Lines, Program, Reg, SharedArray, Var, Warpgroup};
use kernel::Fragment;
use std::collections::VecDeque;

/// Threads of a warpgroup.
pub(super) const GROUP: usize = 128;

/// A factor: how it lies, and its first element.
pub(super) type Factor = (Lines, i64);

/// A left factor: in shared memory, or words of each thread of the warpgroup with what they were as the product began.
#[derive(Clone)]
pub(super) enum LeftRead {
    Lines(Factor),
    Words([Reg; 4], Vec<[u64; 4]>),
}

/// A product under way.
#[derive(Clone)]
pub(super) struct Product {
    pub fragment: Fragment,
    pub sums: Vec<Var>,
    pub fresh: bool,
    pub a: LeftRead,
    pub b: Factor,
}

/// Products of one warpgroup: those that are in no group yet, and groups, the oldest first.
#[derive(Default)]
pub(super) struct Products {
    pub open: Vec<Product>,
    pub groups: VecDeque<Vec<Product>>,
}

/// Whether products of warpgroups see an element.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum Seen {
    #[default]
    Yes,
    /// It was written since.
    Written,
    /// Its writer has said so since ([`Warpgroup::ProxyFence`]), and no barrier came yet.
    Fenced,
}

/// What matters of shared memory for products of warpgroups; nothing where a program has none.
#[derive(Default)]
pub(super) struct Proxy {
    pub products: Vec<Products>,
    /// Per array and element: whether it is seen, and how many products under way read it.
    pub elements: Vec<Vec<(Seen, u32)>>,
    /// What each thread wrote and did not fence, and what was fenced.
    written: Vec<Vec<(u32, usize)>>,
    fenced: Vec<(u32, usize)>,
}

fn multiplies(body: &[Inst]) -> bool {
    let one =
        |i: &Inst| matches!(i, Inst::Warpgroup(Warpgroup::Multiply { .. })) || multiplies(i.body());
    body.iter().any(one)
}

impl Proxy {
    pub fn of(p: &Program, lanes: usize) -> Proxy {
        if !multiplies(&p.body) {
            return Proxy::default();
        }
        let array = |a: &SharedArray| vec![Default::default(); a.elements as usize];
        Proxy {
            products: (0..lanes.div_ceil(GROUP))
                .map(|_| Products::default())
                .collect(),
            elements: p.shared.iter().map(array).collect(),
            written: vec![vec![]; lanes],
            fenced: vec![],
        }
    }

    /// Thread `lane` writes an element.
    pub fn write(&mut self, array: u32, at: usize, lane: usize) -> Result<(), String> {
        let Some(e) = self
            .elements
            .get_mut(array as usize)
            .and_then(|a| a.get_mut(at))
        else {
            return Ok(());
        };
        if e.1 > 0 {
            return Err("a write to what a product under way reads".into());
        }
        e.0 = Seen::Written;
        self.written[lane].push((array, at));
        Ok(())
    }

    /// All threads met.
    pub fn barrier(&mut self) {
        for (array, at) in self.fenced.drain(..) {
            let seen = &mut self.elements[array as usize][at].0;
            if *seen == Seen::Fenced {
                *seen = Seen::Yes;
            }
        }
    }

    /// Thread `lane` says that what it wrote is to be seen.
    pub fn fence(&mut self, lane: usize) {
        let Some(list) = self.written.get_mut(lane) else {
            return;
        };
        for (array, at) in list.drain(..) {
            let seen = &mut self.elements[array as usize][at].0;
            if *seen == Seen::Written {
                *seen = Seen::Fenced;
                self.fenced.push((array, at));
            }
        }
    }

    /// No product of the thread's warpgroup that is under way adds to `v`.
    pub fn free(&self, v: Var, lane: usize) -> Result<(), String> {
        let Some(own) = self.products.get(lane / GROUP) else {
            return Ok(());
        };
        let mut all = own.groups.iter().flatten().chain(&own.open);
        match all.any(|p| p.sums.contains(&v)) {
            true => Err(format!("${v} is touched while a product adds to it")),
            false => Ok(()),
        }
    }
}
