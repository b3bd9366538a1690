//! What a CPU executes of a tile program: calls of a micro-kernel, and its machine code.
use super::Subject;
use super::say::{As, Build};
use kernel::{Mapping, Stmt};
use layout::DType;
use report::walk::{CodeLine, Pane};
use std::process::Command;

/// Lines of machine code that are shown.
const LINES: usize = 240;
/// Bytes of code that are looked at for one function.
const BYTES: u64 = 16 << 10;

/// A step's micro-kernel.
pub(super) struct Micro {
    /// Instruction set.
    isa: cpu::Isa,
    /// Register tile, where the step has products.
    tile: Option<(usize, usize)>,
    /// Statements of a task as the executor runs them.
    calls: Vec<String>,
    /// Machine code.
    code: Option<String>,
    /// Why there is none; empty where there is.
    pub missing: String,
}

/// The micro-kernel of the step.
///
/// # Errors
/// The step is not planned for a CPU.
pub(super) fn micro(s: &Subject) -> Result<Micro, String> {
    let program = s
        .program
        .as_ref()
        .ok_or("a host step has no tile program")?;
    let Mapping::Cpu(map) = &program.schedule().mapping else {
        return Err("the step is planned for a GPU".into());
    };
    let named = s.plan.devices.get(s.step.device as usize);
    let isa = named
        .and_then(|d| d.target.strip_prefix("cpu-"))
        .and_then(cpu::Isa::from_name)
        .unwrap_or(cpu::Isa::Portable);
    let k = program.kernel();
    let tile = map.micro.map(|m| (m.mr as usize, m.nr as usize));
    let name = |t: u16| k.tiles.get(t as usize).map_or("?", |t| t.name.as_str());
    let calls = k
        .body
        .iter()
        .map(|st| match st {
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
            Stmt::Relabel { dst, src, .. } => format!("view    {} = {}", name(*dst), name(*src)),
        })
        .collect();
    let sums = |st: &Stmt| match st {
        Stmt::Contract { acc, a, b, .. } => {
            let t = |i: &u16| k.tiles.get(*i as usize).map(|t| t.dtype);
            t(acc) == Some(DType::F32) && t(a) == Some(DType::F32) && t(b) == Some(DType::F32)
        }
        _ => false,
    };
    // Products of factors that both have the lane axis.
    let depthwise = |st: &Stmt| match (st, map.lanes) {
        (Stmt::Contract { a, b, .. }, Some(lane)) => {
            let has = |i: &u16| {
                k.tiles
                    .get(*i as usize)
                    .is_some_and(|t| t.axes.contains(&lane))
            };
            has(a) && has(b)
        }
        _ => false,
    };
    let kernel = tile.and_then(|(m, n)| cpu::ukr::gemm_kernel(isa, m, n));
    let (code, missing) = match kernel {
        _ if s.quick => (None, "machine code was left out".into()),
        None => (None, "a step without products runs rows through vector loops, which have no single function to show".into()),
        Some(_) if !k.body.iter().any(sums) => (None, "operands that are no f32 go through kernels of their own, whose code is not shown here".into()),
        Some(_) if k.body.iter().any(depthwise) => (None, "products along lanes go through kernels of their own, whose code is not shown here".into()),
        Some(_) if !isa.available() => (None, format!("{isa} is not there on this computer, so its code is not either")),
        Some(kernel) => match disassembled(kernel.code() as u64) {
            Ok(text) => (Some(text), String::new()),
            Err(why) => (None, why),
        },
    };
    Ok(Micro {
        isa,
        tile,
        calls,
        code,
        missing,
    })
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
        lines.push(code.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    match lines.is_empty() {
        true => Err(format!("objdump shows no code of {file}")),
        false => Ok(lines.join("\n")),
    }
}

fn role(line: &str) -> &'static str {
    let op = line.split_whitespace().next().unwrap_or("");
    let begins = |list: &[&str]| list.iter().any(|p| op.starts_with(p));
    match () {
        () if begins(&["vfmadd", "vfnmadd", "vmulps", "vaddps", "mulps", "addps"]) => "math",
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

pub(super) fn panes(m: &Micro) -> Vec<Pane> {
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
    if let Some(code) = &m.code {
        let all: Vec<&str> = code.lines().collect();
        let lines = all
            .iter()
            .enumerate()
            .skip(hottest(&all))
            .take(LINES)
            .map(|(i, l)| CodeLine {
                number: i as u32 + 1,
                text: (*l).into(),
                role: role(l),
            });
        out.push(Pane {
            language: "x86-64".into(),
            lines: lines.collect(),
            of: all.len() as u32,
        });
    }
    out
}

pub(super) fn say(s: &Subject, m: &Micro, b: &mut Build) {
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
        (m.calls.len() as f64, As::Of("statement")),
        "",
        here,
    );
    b.beat(
        "",
        "A CPU needs no text: the executor goes through {statements} on whole tiles, each of them a call of a loop written for {isa}.",
        "The worker has the tools at hand and follows the work plan line by line.",
    );
    if let Some((mr, nr)) = m.tile {
        let lanes = m.isa.lanes();
        let vectors = mr * nr.div_ceil(lanes);
        b.number(
            "mr",
            "rows of the register tile",
            (mr as f64, As::Whole),
            "",
            here,
        );
        b.number(
            "nr",
            "columns of the register tile",
            (nr as f64, As::Whole),
            "",
            here,
        );
        b.number(
            "sums",
            "registers that hold sums",
            (vectors as f64, As::Of("register")),
            format!("{mr} x ceil({nr} / {lanes} lanes)"),
            "the micro-kernel's shape",
        );
        let registers = s.machine.isa.vector_registers;
        b.number(
            "registers",
            "vector registers",
            (registers as f64, As::Whole),
            "",
            format!("instruction set of {}", s.machine.name),
        );
        let calls = s.step.cost_work.calls;
        b.number(
            "calls",
            "calls of the micro-kernel",
            (calls, As::Count),
            "tiles of the result, task by task",
            "read off the tile program",
        );
        b.beat(
            "math",
            "Products go through a micro-kernel that holds {mr} x {nr} sums in {sums} of the {registers} there are; it is called {calls} times.",
            "{mr} by {nr} pieces are worked on at once, all of them in the hand.",
        );
    }
    if m.code.is_some() {
        b.beat(
            "fetch",
            "Its inner loop takes one element of the rows' factor for all lanes (a broadcast).",
            "One screw for a whole row of pieces.",
        );
        b.beat(
            "load",
            "Of the other factor it takes whole vectors, which lie next to each other where that was packed at load.",
            "Parts that were laid out in the order of use beforehand.",
        );
        b.beat(
            "math",
            "One instruction multiplies and adds a vector into its sums.",
            "One movement does both.",
        );
        b.beat(
            "store",
            "At the end the sums are written once.",
            "What is finished leaves the hand once.",
        );
    }
}
