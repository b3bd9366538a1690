//! What a CPU executes of a tile program: calls of micro-kernels, and the machine code of each.
use super::Subject;
use super::narration::{Build, NumberFormat};
use cpu::Called;
use kernel::{Mapping, Stmt};
use report::walk::{CodeLine, Pane};
use std::process::Command;

/// Lines of machine code of one function that are shown.
const LINES: usize = 240;
/// Functions whose machine code is shown.
const FUNCTIONS: usize = 12;
/// Bytes of code that are looked at for one function.
const BYTES: u64 = 16 << 10;

/// A step's micro-kernel.
pub(super) struct MicroKernelInfo {
    /// Instruction set.
    isa: cpu::Isa,
    /// Register tile, where the step has products.
    tile: Option<(usize, usize)>,
    /// Statements of a task as the executor runs them.
    calls: Vec<String>,
    /// Functions that those come down to, each once.
    functions: Vec<Function>,
    /// What is not shown and why; empty where everything is.
    pub missing: String,
}

/// A function with its machine code.
struct Function {
    name: String,
    when: &'static str,
    /// Machine code, or why there is none.
    code: Result<String, String>,
}

/// The instruction set that the plan's target names.
pub(super) fn isa(s: &Subject) -> cpu::Isa {
    let named = s.plan.devices.get(s.step.device as usize);
    named
        .and_then(|d| d.target.strip_prefix("cpu-"))
        .and_then(cpu::Isa::from_name)
        .unwrap_or(cpu::Isa::Portable)
}

/// The functions of `called`, each once, with machine code unless that was left out.
fn functions(called: &[Called], quick: bool) -> Vec<Function> {
    let mut seen = Vec::new();
    let mut out = Vec::new();
    for c in called {
        if seen.contains(&c.code) {
            continue;
        }
        seen.push(c.code);
        let code = match (quick, out.len() < FUNCTIONS) {
            (true, _) => Err("machine code was left out".into()),
            (_, false) => Err(format!("{FUNCTIONS} functions are shown")),
            _ => disassembled(c.code as u64),
        };
        out.push(Function {
            name: c.name.clone(),
            when: c.when,
            code,
        });
    }
    out
}

/// The micro-kernel of the step.
///
/// # Errors
/// The step is not planned for a CPU.
pub(super) fn micro(s: &Subject) -> Result<MicroKernelInfo, String> {
    let program = s
        .program
        .as_ref()
        .ok_or("a host step has no tile program")?;
    let Mapping::Cpu(map) = &program.schedule().mapping else {
        return Err("the step is planned for a GPU".into());
    };
    let isa = isa(s);
    let k = program.kernel();
    let tile = map.micro.map(|m| (m.mr as usize, m.nr as usize));
    let name = |t: u16| k.tiles.get(t as usize).map_or("?", |t| t.name.as_str());
    let (called, why) = match cpu::called(program, &s.plan.dims, isa) {
        Ok(called) => (called, None),
        Err(why) => (vec![], Some(why)),
    };
    let calls = k
        .body
        .iter()
        .map(|st| {
            let line = match st {
                Stmt::Load { dst, operand } => {
                    let o = k
                        .operands
                        .get(*operand as usize)
                        .map_or("?", |o| o.name.as_str());
                    match program.schedule().place(*dst) {
                        kernel::Place::InPlace => format!("view    {} = {o} in place", name(*dst)),
                        _ => format!("copy    {} = {o}", name(*dst)),
                    }
                }
                Stmt::Store { operand, src } => {
                    let o = k
                        .operands
                        .get(*operand as usize)
                        .map_or("?", |o| o.name.as_str());
                    format!("store   {o} = {}", name(*src))
                }
                Stmt::Map { dst, args, .. } if args.is_empty() => format!("fill    {}", name(*dst)),
                Stmt::Map { dst, args, .. } => {
                    let args: Vec<&str> = args.iter().map(|&t| name(t)).collect();
                    format!("map     {} = f({})", name(*dst), args.join(", "))
                }
                Stmt::Contract { acc, a, b, .. } => {
                    let tile = tile.map_or(String::new(), |(m, n)| format!(" in tiles of {m}x{n}"));
                    format!(
                        "product {} += {} . {}{tile}",
                        name(*acc),
                        name(*a),
                        name(*b)
                    )
                }
                Stmt::Fold { state, args, .. } => {
                    let all = |l: &[u16]| l.iter().map(|&t| name(t)).collect::<Vec<_>>().join(", ");
                    format!("fold    {} of {}", all(state), all(args))
                }
                Stmt::Relabel { dst, src, .. } => {
                    format!("view    {} = {}", name(*dst), name(*src))
                }
            };
            with_functions(&line, st, &called)
        })
        .collect();
    let functions = functions(&called, s.quick);
    let missing = match why {
        Some(why) => why,
        None if s.quick => "machine code was left out".into(),
        None => missing(&functions),
    };
    Ok(MicroKernelInfo {
        isa,
        tile,
        calls,
        functions,
        missing,
    })
}

/// A statement's line with the functions that it comes down to.
fn with_functions(line: &str, st: &Stmt, called: &[Called]) -> String {
    let roles: &[&str] = match st {
        Stmt::Load { .. } => &["copy", "widen"],
        Stmt::Store { .. } | Stmt::Relabel { .. } => &["copy"],
        Stmt::Map { .. } => &["map"],
        Stmt::Contract { .. } => &["product", "pack"],
        Stmt::Fold { .. } => &["fold", "pool"],
    };
    let tiles: Vec<usize> = match st {
        Stmt::Load { dst, .. } | Stmt::Map { dst, .. } | Stmt::Relabel { dst, .. } => {
            vec![*dst as usize]
        }
        Stmt::Store { src, .. } => vec![*src as usize],
        Stmt::Contract { acc, a, b, .. } => [acc, a, b].map(|t| *t as usize).to_vec(),
        Stmt::Fold { state, .. } => state.iter().map(|t| *t as usize).collect(),
    };
    let mut names: Vec<&str> = Vec::new();
    for c in called {
        let own = roles.contains(&c.role) && c.tile.is_some_and(|t| tiles.contains(&t));
        // A copy that is made only where something does not lie right is no part of the statement.
        let seldom = c.role == "copy" && !c.when.is_empty();
        if own && !seldom && !names.contains(&c.name.as_str()) {
            names.push(&c.name);
        }
    }
    match names.is_empty() {
        true => line.into(),
        false => format!("{line}  [{}]", names.join(", ")),
    }
}

/// Which functions have no code to show, and why.
fn missing(functions: &[Function]) -> String {
    let mut out: Vec<(String, Vec<&str>)> = Vec::new();
    for f in functions {
        if let Err(why) = &f.code {
            match out.iter_mut().find(|o| o.0 == *why) {
                Some(o) => o.1.push(&f.name),
                None => out.push((why.clone(), vec![&f.name])),
            }
        }
    }
    let all = out
        .iter()
        .map(|(why, names)| format!("{}: {why}", names.join(", ")));
    let all: Vec<String> = all.collect();
    match functions.is_empty() {
        true => {
            "its statements only name memory that is read and written elsewhere: nothing is called"
                .into()
        }
        false => all.join("; "),
    }
}

/// Machine code of the function at `address` of this process, as objdump shows it.
fn disassembled(address: u64) -> Result<String, String> {
    let none = "where this program's code lies in its file cannot be seen here";
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| none.to_string())?;
    // A line has `from-to flags offset device inode path`.
    let parsed = maps.lines().filter_map(|l| {
        let mut parts = l.split_whitespace();
        let (from, to) = parts.next()?.split_once('-')?;
        let hex = |t: &str| u64::from_str_radix(t, 16).ok();
        let path = parts.nth(4)?;
        Some((hex(from)?, hex(to)?, path))
    });
    let all: Vec<(u64, u64, &str)> = parsed.collect();
    let own = all.iter().find(|m| (m.0..m.1).contains(&address));
    let file = own
        .map(|m| m.2)
        .filter(|p| p.starts_with('/'))
        .ok_or(none)?;
    // The file's first mapping begins at its address 0: it is position independent.
    let base = all
        .iter()
        .filter(|m| m.2 == file)
        .map(|m| m.0)
        .min()
        .ok_or(none)?;
    let at = address - base;
    let out = Command::new("objdump")
        .args(["--disassemble", "--no-show-raw-insn", "-M", "intel"])
        .arg(format!("--start-address={at:#x}"))
        .arg(format!("--stop-address={:#x}", at + BYTES))
        .arg(file)
        .output()
        .map_err(|_| "objdump cannot be started; binutils has it".to_string())?;
    let text = String::from_utf8_lossy(&out.stdout);
    let mut lines = Vec::new();
    for l in text.lines() {
        // `  1234:	vmovups zmm0,[rax]`; a line that ends in `>:` is where a function begins.
        if l.ends_with(">:") && !lines.is_empty() {
            break;
        }
        let Some((place, code)) = l.split_once(":\t") else {
            continue;
        };
        if u64::from_str_radix(place.trim(), 16).is_err() {
            continue;
        }
        let code = code.split(['#', '<']).next().unwrap_or(code).trim_end();
        let line = code.split_whitespace().collect::<Vec<_>>().join(" ");
        // A stripped program names no function: what fills up behind a return is the end of one.
        let ended = lines.last().is_some_and(|l: &String| l.starts_with("ret"));
        if ended && is_padding(&line) {
            break;
        }
        lines.push(line);
    }
    match lines.is_empty() {
        true => Err(format!("objdump shows no code of {file}")),
        false => Ok(lines.join("\n")),
    }
}

/// Whether an instruction does nothing, as those between functions.
fn is_padding(line: &str) -> bool {
    let nothing = ["nop", "cs nop", "data16", "int3", "xchg ax,ax"];
    nothing.iter().any(|p| line.starts_with(p))
}

/// Arithmetic on vectors, by how opcodes begin.
const MATH: [&str; 27] = [
    "vfmadd",
    "vfnmadd",
    "vmul",
    "vadd",
    "vsub",
    "vdiv",
    "vmax",
    "vmin",
    "vsqrt",
    "vdp",
    "vpdp",
    "vpmadd",
    "vpmul",
    "vpadd",
    "vpsub",
    "vpmax",
    "vpmin",
    "vrndscale",
    "vround",
    "vcvt",
    "mulps",
    "addps",
    "subps",
    "divps",
    "maxps",
    "minps",
    "sqrtps",
];

fn role(line: &str) -> &'static str {
    let op = line.split_whitespace().next().unwrap_or("");
    let begins = |list: &[&str]| list.iter().any(|p| op.starts_with(p));
    match () {
        () if op == ";" => "note",
        () if begins(&MATH) && !op.ends_with("ss") && !op.ends_with("sd") => "math",
        () if begins(&["vbroadcast"]) => "fetch",
        () if begins(&["vmovup", "vmovap", "movup", "movap", "vmovdq"]) => {
            let first = line.split_once(' ').map_or("", |x| x.1);
            match first.split(',').next().unwrap_or("").contains('[') {
                true => "store",
                false => "load",
            }
        }
        () if begins(&["prefetch"]) => "stage",
        () if op.starts_with('j') => "loop",
        () => "",
    }
}

/// Where the lines that are shown begin: most arithmetic is in them.
fn hottest(all: &[&str]) -> usize {
    let math: Vec<usize> = (0..all.len()).filter(|i| role(all[*i]) == "math").collect();
    let most = (0..math.len()).max_by_key(|&i| {
        let end = math[i] + LINES / 2;
        let inside = math[i..].iter().take_while(|m| **m < end).count();
        (inside, std::cmp::Reverse(i))
    });
    most.map_or(0, |i| math[i].saturating_sub(LINES / 4))
}

pub(super) fn panes(m: &MicroKernelInfo) -> Vec<Pane> {
    let calls = m.calls.iter().enumerate().map(|(i, l)| CodeLine {
        number: i as u32 + 1,
        text: l.clone(),
        role: match l.split_whitespace().next() {
            Some("product" | "fold") => "math",
            Some("copy") => "load",
            Some("store") => "store",
            _ => "",
        },
    });
    let mut out = vec![Pane {
        language: "calls".into(),
        lines: calls.collect(),
        of: m.calls.len() as u32,
    }];
    let mut lines = Vec::new();
    let mut of = 0;
    let put = |text: String, lines: &mut Vec<CodeLine>, number: usize| {
        lines.push(CodeLine {
            number: number as u32,
            role: role(&text),
            text,
        });
    };
    for f in &m.functions {
        let Ok(code) = &f.code else { continue };
        let all: Vec<&str> = code.lines().collect();
        let when = match f.when {
            "" => String::new(),
            when => format!(", {when}"),
        };
        put(format!("; {}{when}", f.name), &mut lines, of + 1);
        for (i, l) in all.iter().enumerate().skip(hottest(&all)).take(LINES) {
            put((*l).into(), &mut lines, of + i + 2);
        }
        of += all.len() + 1;
    }
    if !lines.is_empty() {
        out.push(Pane {
            language: "x86-64".into(),
            lines,
            of: of as u32,
        });
    }
    out
}

/// What instructions of a role do in a product and in other loops, and the same in the workshop.
const INSTRUCTIONS: [(&str, &str, &str, &str); 4] = [
    (
        "fetch",
        "Its inner loop takes one element of the rows' factor for all lanes (a broadcast).",
        "A number that is the same for all lanes is repeated over them once (a broadcast).",
        "One screw for a whole row of pieces.",
    ),
    (
        "load",
        "Of the other factor it takes whole vectors, which lie next to each other where that was packed at load.",
        "Whole vectors are loaded, an element for every lane.",
        "Parts that were laid out in the order of use.",
    ),
    (
        "math",
        "One instruction multiplies and adds a vector into its sums.",
        "One instruction computes all lanes of a vector.",
        "One movement does it for all of them.",
    ),
    (
        "store",
        "At the end the sums are written once.",
        "What is made is written by whole vectors.",
        "What is finished leaves the hand once.",
    ),
];

/// The sums that a micro-kernel holds in registers.
fn register_tile(s: &Subject, m: &MicroKernelInfo, b: &mut Build) {
    let Some((mr, nr)) = m.tile else { return };
    let here = "the tile program and its mapping";
    let lanes = m.isa.lanes();
    let vectors = mr * nr.div_ceil(lanes);
    b.number(
        "mr",
        "rows of the register tile",
        (mr as f64, NumberFormat::Whole),
        "",
        here,
    );
    b.number(
        "nr",
        "columns of the register tile",
        (nr as f64, NumberFormat::Whole),
        "",
        here,
    );
    b.number(
        "sums",
        "registers that hold sums",
        (vectors as f64, NumberFormat::Of("register")),
        format!("{mr} x ceil({nr} / {lanes} lanes)"),
        "the micro-kernel's shape",
    );
    let registers = s.machine.isa.vector_registers;
    b.number(
        "registers",
        "vector registers",
        (registers as f64, NumberFormat::Whole),
        "",
        format!("instruction set of {}", s.machine.name),
    );
    let calls = s.step.cost_work.calls;
    b.number(
        "calls",
        "calls of the micro-kernel",
        (calls, NumberFormat::Count),
        "tiles of the result, task by task",
        "read off the tile program",
    );
    b.beat(
        "math",
        "Products go through a micro-kernel that holds {mr} x {nr} sums in {sums} of the {registers} there are; it is called {calls} times.",
        "{mr} by {nr} pieces are worked on at once, all of them in the hand.",
    );
}

pub(super) fn say(s: &Subject, m: &MicroKernelInfo, b: &mut Build) {
    let here = "the tile program and its mapping";
    b.name(
        "isa",
        "instruction set",
        m.isa.name(),
        "the target of the plan",
    );
    b.number(
        "statements",
        "statements of a task",
        (m.calls.len() as f64, NumberFormat::Of("statement")),
        "",
        here,
    );
    b.beat(
        "",
        "A CPU needs no text: the executor goes through {statements} on whole tiles, each of them a call of a loop written for {isa}.",
        "The worker has the tools at hand and follows the work plan line by line.",
    );
    register_tile(s, m, b);
    if m.functions.is_empty() {
        return;
    }
    b.number(
        "functions",
        "functions that they come down to",
        (m.functions.len() as f64, NumberFormat::Of("function")),
        "",
        "the executor's operations for this tile program",
    );
    b.beat(
        "",
        "They come down to {functions}, named beside each statement.",
        "Every line of the plan is done with one of a few tools.",
    );
    let code = m.functions.iter().filter_map(|f| f.code.as_ref().ok());
    let all: Vec<&str> = code.flat_map(|c| c.lines()).collect();
    if all.is_empty() {
        return;
    }
    b.number(
        "instructions",
        "machine instructions of all of them",
        (all.len() as f64, NumberFormat::Whole),
        "",
        "objdump, of this very program",
    );
    b.beat(
        "note",
        "Their code has {instructions} instructions; of each the part with most arithmetic is shown.",
        "",
    );
    let product = m.tile.is_some() && m.functions.iter().any(|f| f.name.starts_with("product of"));
    for (what, of_product, of_other, analogy) in INSTRUCTIONS {
        if all.iter().any(|l| role(l) == what) {
            b.beat(what, if product { of_product } else { of_other }, analogy);
        }
    }
}
