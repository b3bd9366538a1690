//! Names to numbers: from a module as written to the instructions of one kernel.

mod alu;
mod bulk;
mod cluster;
mod control;
mod float;
mod flow;
mod matrix;
mod mbarrier;
mod mem;
mod mods;
mod moves;
mod operand;
mod sync;
mod wgmma;

use crate::counters::Class;
use crate::error::{PtxError, text, unsupported};
use crate::parse::ast::*;
use crate::program::*;
use crate::sm90::Sm90;
use crate::writes::writes;
use mods::Mods;
use std::collections::HashMap;

/// Most registers of one kernel, and most bytes of a thread's local memory.
const MAX_ROWS: u32 = 1 << 20;
const MAX_LOCAL: u64 = 512 << 10;
/// Most bytes of a kernel's parameters.
const MAX_PARAMS: u64 = 32_764;

/// What a name stands for.
#[derive(Debug, Clone)]
pub(crate) enum Sym {
    Reg(Ty, u32),
    Local(u32),
    Shared(u32),
    /// A variable of the module, at its address.
    Global(Space, u64),
    /// A parameter of the kernel: its offset and size.
    Param(u32, u32),
    Targets(Vec<String>),
}

/// A function that is called: where its parameters lie.
#[derive(Debug, Clone)]
struct Callee {
    index: usize,
    params: Vec<Sym>,
    returns: Vec<Sym>,
    /// Bytes of each, parameters first.
    bytes: Vec<u32>,
    entry: Option<u32>,
}

/// A branch whose target is not known yet.
struct BranchFixup {
    at: u32,
    labels: Vec<usize>,
}

pub(crate) struct Builder<'a> {
    ast: &'a Ast,
    k: Kernel,
    scopes: Vec<HashMap<String, Sym>>,
    /// Numbers of the scopes open, for labels.
    scope_ids: Vec<u32>,
    labels: HashMap<(u32, String), usize>,
    label_at: Vec<u32>,
    fixes: Vec<BranchFixup>,
    calls: Vec<(u32, usize)>,
    callees: Vec<Callee>,
    consts32: HashMap<u32, u32>,
    consts64: HashMap<u64, u32>,
    starts: HashMap<(Start, bool), u32>,
    in_function: bool,
    /// Where dynamic shared memory begins: behind all that is declared.
    dynamic_at: u32,
    pending_reads: Vec<(Width, u32)>,
    line: u32,
    guard: u32,
    approx: bool,
}

/// Registers of a thread at entry, as an assembler settles them: what is asked for, or what the CTAs asked
/// for leave of an SM's 65,536.
fn entry_registers(f: &Function) -> u32 {
    let threads = f.maxntid.or(f.reqntid).map(|t| {
        let all = t.iter().fold(1u32, |p, v| p.saturating_mul(*v));
        all.clamp(1, 1024).next_multiple_of(128)
    });
    match (f.maxnreg, threads, f.minctas) {
        (Some(n), ..) => n.next_multiple_of(8).min(256),
        (None, Some(t), Some(n)) => (65_536 / t / n.max(1) / 8 * 8).min(256),
        _ => 0,
    }
}

/// A kernel without code.
fn blank(name: &str, f: &Function) -> Kernel {
    Kernel {
        name: name.into(),
        params: Vec::new(),
        param_bytes: 0,
        code: Vec::new(),
        reads: Vec::new(),
        rows32: 0,
        rows64: 0,
        preds: 0,
        const32: Vec::new(),
        const64: Vec::new(),
        start32: Vec::new(),
        start64: Vec::new(),
        shared_static: 0,
        dynamic_shared: false,
        local_bytes: 0,
        reqntid: f.reqntid,
        maxntid: f.maxntid,
        cluster: f.cluster,
        communicates: false,
        waits: false,
        names: Default::default(),
        registers: entry_registers(f),
        hazards: Vec::new(),
    }
}

/// Decodes the kernel `name`; `globals` holds the addresses of the module's variables.
pub(crate) fn decode(
    ast: &Ast,
    name: &str,
    globals: &HashMap<String, (Space, u64)>,
) -> Result<Kernel, PtxError> {
    let Some(f) = ast.functions.iter().find(|f| f.entry && f.name == name) else {
        let have: Vec<&str> = ast
            .functions
            .iter()
            .filter(|f| f.entry)
            .map(|f| f.name.as_str())
            .collect();
        return Err(PtxError::NoKernel {
            name: name.into(),
            have: have.join(", "),
        });
    };
    let Some(body) = &f.body else {
        return text(f.line, format!("kernel '{name}' has no body"));
    };
    let mut b = Builder {
        ast,
        k: blank(name, f),
        scopes: vec![HashMap::new()],
        scope_ids: Vec::new(),
        labels: HashMap::new(),
        label_at: Vec::new(),
        fixes: Vec::new(),
        calls: Vec::new(),
        callees: Vec::new(),
        consts32: HashMap::new(),
        consts64: HashMap::new(),
        starts: HashMap::new(),
        in_function: false,
        dynamic_at: dynamic_at(ast, body),
        pending_reads: Vec::new(),
        line: f.line,
        guard: ALWAYS,
        approx: false,
    };
    for (n, (space, at)) in globals {
        b.scopes[0].insert(n.clone(), Sym::Global(*space, *at));
    }
    for v in ast.vars.iter().filter(|v| v.space == Space::Shared) {
        b.variable(v)?;
    }
    if f.cluster.is_some() {
        b.needs_sm_90(".reqnctapercluster")?;
    }
    b.scopes.push(HashMap::new());
    for p in &f.params {
        if p.bytes + u64::from(b.k.param_bytes) + p.align > MAX_PARAMS {
            return text(
                f.line,
                format!("more than {MAX_PARAMS} bytes of parameters"),
            );
        }
        let offset = b.k.param_bytes.next_multiple_of(p.align.max(1) as u32);
        b.k.param_bytes = offset + p.bytes as u32;
        b.k.params.push(KernelParam {
            name: p.name.clone(),
            bytes: p.bytes as u32,
            offset,
        });
        b.name(&p.name, Sym::Param(offset, p.bytes as u32))?;
    }
    b.function(body, f.name.as_str())?;
    b.scopes.pop();
    let mut done = 0;
    while done < b.callees.len() {
        let callee = b.callees[done].clone();
        let f = &ast.functions[callee.index];
        let Some(body) = &f.body else {
            return unsupported(f.line, format!("function '{}', which has no body", f.name));
        };
        b.scopes.push(HashMap::new());
        b.in_function = true;
        for (p, s) in f.params.iter().zip(&callee.params) {
            b.name(&p.name, s.clone())?;
        }
        for (p, s) in f.returns.iter().zip(&callee.returns) {
            b.name(&p.name, s.clone())?;
        }
        b.callees[done].entry = Some(b.k.code.len() as u32);
        b.function(body, &f.name)?;
        b.scopes.pop();
        done += 1;
    }
    for (at, callee) in std::mem::take(&mut b.calls) {
        if let Op::Call(target) = &mut b.k.code[at as usize].op {
            *target = b.callees[callee].entry.unwrap_or(0);
        }
    }
    b.no_recursion()?;
    b.k.hazards = hazards(&b.k);
    if b.k.dynamic_shared {
        b.k.shared_static = b.dynamic_at;
    }
    Ok(b.k)
}

/// The 32-bit registers that each instruction writes, where `wgmma` may still be using them.
fn hazards(k: &Kernel) -> Vec<Box<[R]>> {
    let product = |i: &Inst| matches!(&i.op, Op::Sm90(s) if matches!(**s, Sm90::Wgmma(_)));
    if !k.code.iter().any(product) {
        return Vec::new();
    }
    let own = |i: &Inst| {
        let mut all = Vec::new();
        writes(&i.op, &mut all);
        let rows = all.into_iter().filter(|(w, r)| {
            matches!(w, Width::W16 | Width::W32) && *r & CONST == 0 && *r < k.rows32
        });
        rows.map(|(_, r)| r).collect()
    };
    k.code.iter().map(own).collect()
}

/// Bytes of shared memory declared by the module, the kernel and every function, as far as the
/// alignment of the unsized array.
fn dynamic_at(ast: &Ast, body: &[Stmt]) -> u32 {
    let functions = ast.functions.iter().filter(|f| !f.entry);
    let bodies = functions.filter_map(|f| f.body.as_deref()).chain([body]);
    let inner = bodies.flatten().filter_map(|s| match s {
        Stmt::Var(v) => Some(v),
        _ => None,
    });
    let (mut at, mut align) = (0u64, 16);
    for v in ast
        .vars
        .iter()
        .chain(inner)
        .filter(|v| v.space == Space::Shared)
    {
        match v.bytes {
            0 => align = align.max(v.align),
            // Whatever the order, no variable needs more than this.
            b => at += b + v.align.max(1) - 1,
        }
    }
    at.next_multiple_of(align).min(1 << 24) as u32
}

impl Builder<'_> {
    pub(crate) fn name(&mut self, name: &str, sym: Sym) -> Result<(), PtxError> {
        let scope = self
            .scopes
            .last_mut()
            .map(|s| s.insert(name.to_string(), sym));
        match scope {
            Some(None) => Ok(()),
            _ => text(self.line, format!("'{name}' is declared twice")),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Sym> {
        self.scopes.iter().rev().find_map(|s| s.get(name))
    }

    /// Makes room for a variable.
    fn variable(&mut self, v: &Var) -> Result<(), PtxError> {
        self.line = v.line;
        let align = v.align.max(1);
        let sym = match v.space {
            Space::Shared if v.bytes == 0 => {
                self.k.dynamic_shared = true;
                Sym::Shared(self.dynamic_at)
            }
            Space::Shared => {
                let at = u64::from(self.k.shared_static).next_multiple_of(align);
                if at + v.bytes > 1 << 20 {
                    return text(v.line, "more shared memory than any device has");
                }
                self.k.shared_static = (at + v.bytes) as u32;
                Sym::Shared(at as u32)
            }
            Space::Local | Space::Param => Sym::Local(self.local(v.bytes, align)?),
            _ => return unsupported(v.line, "module variables declared inside a body"),
        };
        self.name(&v.name, sym)
    }

    fn local(&mut self, bytes: u64, align: u64) -> Result<u32, PtxError> {
        let at = u64::from(self.k.local_bytes).next_multiple_of(align.max(4));
        if at + bytes > MAX_LOCAL {
            return text(
                self.line,
                format!("more than {MAX_LOCAL} bytes of local memory"),
            );
        }
        self.k.local_bytes = (at + bytes) as u32;
        Ok(at as u32)
    }

    pub(crate) fn new_reg(&mut self, ty: Ty, name: &str) -> Result<u32, PtxError> {
        let (count, names) = match operand::width(ty) {
            Width::P => (&mut self.k.preds, 2),
            Width::W64 => (&mut self.k.rows64, 1),
            _ => (&mut self.k.rows32, 0),
        };
        let row = *count;
        if row >= MAX_ROWS {
            return text(self.line, "too many registers");
        }
        *count += 1;
        self.k.names[names].push(name.to_string());
        Ok(row)
    }

    fn function(&mut self, body: &[Stmt], name: &str) -> Result<(), PtxError> {
        let start = self.k.code.len() as u32;
        // Labels first: branches go forward.
        self.labels.clear();
        self.label_at.clear();
        let (mut ids, mut next) = (vec![0u32], 1);
        for s in body {
            match s {
                Stmt::Open => {
                    ids.push(next);
                    next += 1;
                }
                Stmt::Close => {
                    ids.pop();
                }
                Stmt::Label(l, line) => {
                    let id = self.label_at.len();
                    self.label_at.push(u32::MAX);
                    let scope = ids.last().copied().unwrap_or(0);
                    if self.labels.insert((scope, l.clone()), id).is_some() {
                        return text(*line, format!("label '{l}' stands twice"));
                    }
                }
                _ => {}
            }
        }
        // One more, for the end.
        let end = self.label_at.len();
        self.label_at.push(u32::MAX);
        self.scope_ids = vec![0];
        let mut next = 1;
        for s in body {
            match s {
                Stmt::Open => {
                    self.scopes.push(HashMap::new());
                    self.scope_ids.push(next);
                    next += 1;
                }
                Stmt::Close => {
                    self.scopes.pop();
                    self.scope_ids.pop();
                }
                Stmt::Label(l, line) => {
                    self.line = *line;
                    let id = self.label(l)?;
                    self.label_at[id] = self.k.code.len() as u32;
                }
                Stmt::Reg(ty, n, None, line) => {
                    self.line = *line;
                    let row = self.new_reg(*ty, n)?;
                    self.name(n, Sym::Reg(*ty, row))?;
                }
                Stmt::Reg(ty, n, Some(count), line) => {
                    self.line = *line;
                    for k in 0..*count {
                        let n = format!("{n}{k}");
                        let row = self.new_reg(*ty, &n)?;
                        self.name(&n, Sym::Reg(*ty, row))?;
                    }
                }
                Stmt::Var(v) => self.variable(v)?,
                Stmt::Targets(n, list) => self.name(n, Sym::Targets(list.clone()))?,
                Stmt::Inst(i) => self.instruction(i, end)?,
            }
        }
        self.label_at[end] = self.k.code.len() as u32;
        self.guard = ALWAYS;
        self.pending_reads.clear();
        if self.in_function {
            self.emit(Op::Return, Class::Control);
        } else {
            self.emit(Op::Exit, Class::Control);
        }
        for f in std::mem::take(&mut self.fixes) {
            let to: Vec<u32> = f.labels.iter().map(|l| self.label_at[*l]).collect();
            let line = self.k.code[f.at as usize].line;
            if to.contains(&u32::MAX) {
                return text(line, format!("a label of '{name}' has no place"));
            }
            match &mut self.k.code[f.at as usize].op {
                Op::Bra(target, _) => *target = to[0],
                Op::Brx(b) => b.0 = to,
                _ => {}
            }
        }
        flow::reconverge(&mut self.k.code, start as usize);
        Ok(())
    }

    pub(crate) fn label(&self, name: &str) -> Result<usize, PtxError> {
        for id in self.scope_ids.iter().rev() {
            if let Some(l) = self.labels.get(&(*id, name.to_string())) {
                return Ok(*l);
            }
        }
        text(self.line, format!("there is no label '{name}'"))
    }

    pub(crate) fn emit(&mut self, op: Op, class: Class) {
        let first = self.k.reads.len() as u32;
        self.pending_reads
            .sort_unstable_by_key(|(w, r)| (*w as u8, *r));
        self.pending_reads.dedup();
        self.k.reads.append(&mut self.pending_reads);
        if self.guard != ALWAYS {
            self.k.reads.push((Width::P, self.guard / 2));
        }
        let count = (self.k.reads.len() as u32 - first) as u16;
        self.k.code.push(Inst {
            op,
            guard: self.guard,
            line: self.line,
            class,
            approx: self.approx,
            reads: (first, count),
        });
    }

    fn instruction(&mut self, i: &RawInst, end: usize) -> Result<(), PtxError> {
        self.line = i.line;
        self.pending_reads.clear();
        self.guard = match &i.guard {
            None => ALWAYS,
            Some((p, negated)) => self.predicate(p)? * 2 + u32::from(*negated),
        };
        self.approx = i.opcode.iter().any(|p| p == "approx" || p == "full");
        let mut m = Mods::new(i);
        let o = &i.operands[..];
        let done = self.alu(&mut m, o)?
            || self.floating(&mut m, o)?
            || self.moving(&mut m, o)?
            || self.memory(&mut m, o)?
            || self.synchronising(&mut m, o)?
            || self.matrix(&mut m, o)?
            || self.control(&mut m, o, end)?;
        if !done {
            return unsupported(i.line, format!("instruction '{}'", i.opcode.join(".")));
        }
        if let Some(Op::Sm90(op)) = self.k.code.last().map(|i| &i.op)
            && !op.since_sm_80()
        {
            self.needs_sm_90(&i.opcode.join("."))?;
        }
        m.all_used()
    }

    fn needs_sm_90(&self, what: &str) -> Result<(), PtxError> {
        let digits = self.ast.target.chars().filter(char::is_ascii_digit);
        match digits.collect::<String>().parse() {
            Ok(0..90u32) => text(self.line, format!("'{what}' needs .target sm_90 or later")),
            _ => Ok(()),
        }
    }

    fn no_recursion(&self) -> Result<(), PtxError> {
        // Frames are static, one for each function, so that a call that comes back to itself would
        // overwrite its own.
        let bounds: Vec<u32> = self.callees.iter().filter_map(|c| c.entry).collect();
        let owner = |pc: u32| bounds.iter().rposition(|b| pc >= *b);
        let mut edges = vec![Vec::new(); bounds.len()];
        for (pc, i) in self.k.code.iter().enumerate() {
            if let (Op::Call(to), Some(from)) = (&i.op, owner(pc as u32))
                && let Some(to) = owner(*to)
            {
                edges[from].push((to, i.line));
            }
        }
        for start in 0..bounds.len() {
            let (mut open, mut seen) = (vec![start], vec![false; bounds.len()]);
            while let Some(f) = open.pop() {
                for (to, line) in &edges[f] {
                    if *to == start {
                        return unsupported(*line, "a call that comes back to its own function");
                    }
                    if !std::mem::replace(&mut seen[*to], true) {
                        open.push(*to);
                    }
                }
            }
        }
        Ok(())
    }
}
