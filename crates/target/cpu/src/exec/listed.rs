//! The functions that a compiled tile program calls, with the addresses of their code: what tools show
//! of a step beside its statements. Read off the operations that run, so that nothing is listed twice.
use super::vm::Program;
use super::{CContract, CFold, CKernel, CMap, CTerm, Lift, Op};
use crate::ukr::Kernels;
use layout::DType;

/// A function that operations of a step call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// Tile of the kernel that the operation makes or moves; `None` for what is made on the way.
    pub tile: Option<usize>,
    /// What the operation does: `product`, `map`, `fold`, `pool`, `copy`, `widen` (a factor as it lies) or
    /// `pack`.
    pub role: &'static str,
    /// Neighbours along a product's sum that are one element of its factors: 4 of 8-bit integers, 2 of
    /// 16 bits; else 1.
    pub group: u32,
    /// What the function is called.
    pub name: String,
    /// When it is called rather than another way being taken; empty for always.
    pub when: &'static str,
    /// Address of its first instruction.
    pub code: usize,
}

struct List<'a> {
    k: &'a CKernel,
    names: Vec<(&'static str, usize)>,
    out: Vec<Called>,
}

/// The functions that `k`'s operations call, in the order of the operations, each once for every tile.
pub(crate) fn listed(k: &CKernel, tiles: usize) -> Vec<Called> {
    let mut l = List {
        k,
        names: k.kernels.named(),
        out: Vec::new(),
    };
    l.ops(&k.body);
    for c in &mut l.out {
        c.tile = c.tile.filter(|&t| t < tiles);
    }
    let mut out: Vec<Called> = Vec::new();
    for c in l.out {
        if !out.contains(&c) {
            out.push(c);
        }
    }
    out
}

impl List<'_> {
    fn kernels(&self) -> &'static Kernels {
        self.k.kernels
    }

    fn put(
        &mut self,
        (role, tile): (&'static str, usize),
        name: impl Into<String>,
        when: &'static str,
        code: usize,
    ) {
        self.out.push(Called {
            tile: Some(tile),
            role,
            group: 1,
            name: name.into(),
            when,
            code,
        });
    }

    /// One of the table's functions.
    fn known(&mut self, at: (&'static str, usize), code: usize, when: &'static str) {
        let found = self.names.iter().find(|n| n.1 == code);
        let name = found.map_or("a function of the table", |n| n.0);
        self.put(at, name, when, code);
    }

    fn ops(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Loop { body, .. } => self.ops(body),
                Op::Load {
                    dst,
                    operand,
                    in_place,
                } => {
                    let when = match in_place {
                        true => "where its bounds cut the piece",
                        false => "",
                    };
                    let cut = !self.k.operands[*operand].access.bounds.is_empty();
                    if !in_place || cut {
                        self.copy(*dst, *operand, when);
                    }
                }
                Op::Store { operand, src } => {
                    let when = match self.k.tiles[*src].direct {
                        Some(_) => "where it was not made in its place",
                        None => "",
                    };
                    self.copy(*src, *operand, when);
                }
                Op::Map(m) => self.map(m),
                Op::Fold(f) => self.fold(f),
                Op::Contract(c) => self.contract(c, false),
                Op::Nest(n) => {
                    for (w, operand) in n.wide.iter().zip([n.a, n.b]) {
                        let tile = if operand == n.a {
                            n.contract.a
                        } else {
                            n.contract.b
                        };
                        if let Some(w) = w {
                            let name = format!("widen {} to f32", w.dtype);
                            self.put(("widen", tile), name, "", super::vm::widen_code(w.dtype));
                        }
                    }
                    if n.copied {
                        self.copy(n.contract.a, n.a, "");
                    }
                    let in_turn = |t: &CTerm| Some(t.axis) == n.contract.lane && t.leaves.len() > 1;
                    let shared = self.k.operands[n.a].access.terms.iter().any(in_turn);
                    self.contract(&n.contract, shared);
                    if let Some(rest) = n.post.as_ref().and_then(|p| p.rest.as_ref()) {
                        self.map(rest);
                    }
                }
                Op::Nibbles(n) => {
                    let k = self.kernels();
                    let at = ("product", n.acc);
                    self.known(at, k.nibbles as *const () as usize, "");
                    self.known(at, k.row_sum as *const () as usize, "");
                }
                Op::Pool(p) => {
                    let at = ("pool", p.fold.state.first().copied().unwrap_or(p.tile));
                    if let Some((w, _)) = &p.wide {
                        let name = format!("widen {} to f32", w.dtype);
                        self.put(at, name, "", super::vm::widen_code(w.dtype));
                    }
                    self.known(at, p.simple.combine as *const () as usize, "");
                    if let Some((w, _)) = &p.wide {
                        let name = format!("narrow f32 to {}", w.dtype);
                        self.put(at, name, "", super::vm::narrow as *const () as usize);
                    }
                }
                Op::Relabel(r) if r.copied => {
                    let elem = self.k.tiles[r.src].elem;
                    self.rows(r.dst, elem, "");
                }
                Op::Relabel(_) => {}
            }
        }
    }

    /// Rows of `elem` bytes copied.
    fn rows(&mut self, tile: usize, elem: usize, when: &'static str) {
        let name = format!("copy of rows of {elem}-byte elements");
        self.put(("copy", tile), name, when, super::copy::row_code(elem));
    }

    fn copy(&mut self, tile: usize, operand: usize, when: &'static str) {
        let o = &self.k.operands[operand];
        if !o.access.indexed.is_empty() {
            let code = super::gather::gather as *const () as usize;
            self.put(("copy", tile), "gather of rows", when, code);
            return;
        }
        if o.elem == 0 {
            let code = super::transfer::load as *const () as usize;
            self.put(("copy", tile), "4-bit elements to bytes", when, code);
            return;
        }
        let elem = o.elem;
        self.rows(tile, elem, when);
        // Another axis than the tile's innermost lies contiguous in memory.
        let lane = self.k.tiles[tile].axes.last();
        let apart = |a: &usize| o.access.terms.iter().any(|t| t.axis == *a);
        let others = self.k.tiles[tile].axes.iter().filter(|a| Some(*a) != lane);
        if elem == 4 && others.into_iter().any(apart) {
            let code = self.kernels().transpose32 as *const () as usize;
            let when = "where another axis is the contiguous one";
            self.known(("copy", tile), code, when);
        }
    }

    fn map(&mut self, m: &CMap) {
        self.program(("map", m.dst), &m.prog, "");
    }

    fn program(&mut self, at: (&'static str, usize), p: &Program, when: &'static str) {
        for (name, code) in p.functions(self.kernels()) {
            match name {
                Some(name) => self.put(at, name, when, code),
                None => self.known(at, code, when),
            }
        }
    }

    fn fold(&mut self, f: &CFold) {
        let Some(&state) = f.state.first() else {
            return;
        };
        let at = ("fold", state);
        let k = self.kernels();
        let Some(s) = &f.simple else {
            self.program(at, &f.lift, "");
            self.program(at, &f.combine, "");
            return;
        };
        if s.lift == Lift::Program {
            self.program(at, &f.lift, "");
        }
        match (f.horizontal, s.lift) {
            (true, Lift::Square | Lift::Deviation) => {
                self.known(at, k.row_sum_sq as *const () as usize, "");
            }
            (true, _) => match s.reduce {
                Some(r) => self.known(at, r as *const () as usize, ""),
                None => self.program(at, &f.combine, ""),
            },
            (false, _) => {
                let few = match s.columns {
                    Some(c) => {
                        self.known(at, c as *const () as usize, "");
                        "where rows are not folded in one call"
                    }
                    None => "",
                };
                self.known(at, s.combine as *const () as usize, few);
            }
        }
    }

    /// `shared`: neighbouring lanes read the same inputs.
    fn contract(&mut self, c: &CContract, shared: bool) {
        let at = ("product", c.acc);
        let k = self.kernels();
        if c.depthwise && (c.dtype == DType::F32 || c.bytes) {
            let (code, planes) = match (c.bytes, shared) {
                (true, _) => (k.depthwise8 as *const () as usize, false),
                (_, true) => (k.grouped as *const () as usize, false),
                _ => (k.depthwise as *const () as usize, true),
            };
            self.known(at, code, "");
            if planes {
                let lines = k.lines as *const () as usize;
                self.known(at, lines, "where whole planes lie in rows");
            }
            return;
        }
        let fast = c.dtype == DType::F32 || c.grouped;
        let Some(g) = c.gemm.filter(|_| fast) else {
            let name = format!("product of {} element by element", c.dtype);
            self.put(
                at,
                name,
                "",
                super::contract::by_elements as *const () as usize,
            );
            return;
        };
        let (of, group) = match (c.grouped, c.dtype, self.k.tiles[c.a].dtype) {
            (false, ..) => ("f32".to_string(), 1),
            (true, DType::F32, d) => (format!("pairs of {d}"), 2),
            (true, _, DType::U8) => ("fours of 8-bit integers".to_string(), 4),
            (true, ..) => ("pairs of 16-bit integers".to_string(), 2),
        };
        if c.pack > 0 && !c.grouped {
            let code = k.pack_b as *const () as usize;
            self.known(("pack", c.b), code, "where columns lie apart");
        }
        let name = format!("product of {of} in tiles of {}x{}", g.mr(), g.nr());
        self.put(at, name, "", g.code());
        if let Some(last) = self.out.last_mut() {
            last.group = group;
        }
        if !c.grouped {
            let when = "where both factors are contiguous along the sum and rows or columns few";
            self.known(at, k.dot as *const () as usize, when);
        }
        if let Some(rest) = c.post.as_ref().and_then(|p| p.rest.as_ref()) {
            self.map(rest);
        }
    }
}
