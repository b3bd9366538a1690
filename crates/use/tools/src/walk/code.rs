//! The code made of a tile program: PTX beside machine code, WGSL, or what a CPU executes.
use super::narration::{Build, NumberFormat};
use super::{Subject, cpu_code};
use crate::emitted::{Emitted, sass};
use emit::ptx::Ptx;
use report::walk::{CodeLine, Pane, Picture, Scene};

/// Lines of a text that the walk carries; `shopfloor emit` prints all.
const LINES: usize = 1500;

/// What was made of the step's tile program.
pub(super) enum Code {
    /// PTX with all that its launch needs, and its machine code or why there is none.
    Ptx {
        ptx: Ptx,
        sass: Result<String, String>,
    },
    /// WGSL.
    Wgsl(String),
    /// A CPU's micro-kernel.
    Cpu(cpu_code::MicroKernelInfo),
    /// Nothing, and why.
    None(String),
}

pub(super) fn emitted(s: &Subject) -> Code {
    let Some(program) = &s.program else {
        return Code::None("a host step is plain code of the library and has no text".into());
    };
    if s.gpu().is_none() {
        return match cpu_code::micro(s) {
            Ok(m) => Code::Cpu(m),
            Err(why) => Code::None(why),
        };
    }
    let Some(arch) = crate::targets::arch_of(s.machine) else {
        let arrays = vec![emit::wgsl::Array::Work; program.kernel().operands.len()];
        return match emit::wgsl::emit(program, &arrays) {
            Ok(w) => Code::Wgsl(w.text),
            Err(e) => Code::None(e.to_string()),
        };
    };
    match emit::ptx::emit(program, arch) {
        Ok(ptx) => {
            let sass = match s.quick {
                true => Err("machine code was left out".into()),
                false => machine_code(s, program.to_string(), &ptx.text, arch),
            };
            Code::Ptx { ptx, sass }
        }
        Err(e) => Code::None(e.to_string()),
    }
}

fn machine_code(
    s: &Subject,
    program: String,
    text: &str,
    arch: &'static str,
) -> Result<String, String> {
    let folder = std::env::temp_dir().join(format!("shopfloor-walk-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let e = Emitted {
        step: s.step.name.clone(),
        program,
        text: text.into(),
        arch: Some(arch),
    };
    let made = sass(&e, &folder).map_err(|e| e.to_string());
    // What is left behind there hurts nobody.
    let _ = std::fs::remove_dir_all(&folder);
    made
}

/// What an instruction of PTX does, by its opcode; a guard in front does not count.
pub(super) fn ptx_role(line: &str) -> &'static str {
    let t = line.trim_start();
    let t = match t.strip_prefix('@') {
        Some(rest) => rest.split_once(' ').map_or("", |x| x.1),
        None => t,
    };
    by_prefix(
        t,
        &[
            ("cp.async.commit", "barrier"),
            ("cp.async.wait", "barrier"),
            ("cp.async", "stage"),
            ("ldmatrix", "fetch"),
            ("ld.shared", "fetch"),
            ("ld.param", "param"),
            ("ld.global", "load"),
            ("ld.", "load"),
            ("st.shared", "stage"),
            ("st.", "store"),
            ("wgmma.mma", "math"),
            ("wgmma.", "barrier"),
            ("fence.", "barrier"),
            ("mma", "math"),
            ("fma", "math"),
            ("dp4a", "math"),
            ("bar", "barrier"),
            ("bra", "loop"),
            ("//", "note"),
        ],
    )
}

fn sass_role(line: &str) -> &'static str {
    let t = line.trim_start();
    let t = match t.strip_prefix('@') {
        Some(rest) => rest.split_once(' ').map_or("", |x| x.1.trim_start()),
        None => t,
    };
    by_prefix(
        t,
        &[
            ("LDGSTS", "stage"),
            ("LDGDEPBAR", "barrier"),
            ("DEPBAR", "barrier"),
            ("LDSM", "fetch"),
            ("LDS", "fetch"),
            ("LDG", "load"),
            ("LD.", "load"),
            ("STS", "stage"),
            ("STG", "store"),
            ("ST.", "store"),
            ("HMMA", "math"),
            ("HGMMA", "math"),
            ("IGMMA", "math"),
            ("QGMMA", "math"),
            ("IMMA", "math"),
            ("HFMA", "math"),
            ("FFMA", "math"),
            ("IDP", "math"),
            ("BAR", "barrier"),
            ("BRA", "loop"),
        ],
    )
}

fn wgsl_role(line: &str) -> &'static str {
    let t = line.trim_start();
    match () {
        () if t.contains("workgroupBarrier") => "barrier",
        () if t.contains(" = read_") => "load",
        () if t.starts_with("write_") => "store",
        () if t.contains("fma(") => "math",
        () if t.starts_with("for ") || t.starts_with("loop") || t.starts_with("while") => "loop",
        () if t.starts_with("//") => "note",
        () => "",
    }
}

fn by_prefix(t: &str, table: &[(&str, &'static str)]) -> &'static str {
    let found = table.iter().find(|(p, _)| t.starts_with(p));
    found.map_or("", |f| f.1)
}

fn pane(language: &str, text: &str, role: fn(&str) -> &'static str) -> Pane {
    let all: Vec<&str> = text.lines().collect();
    let lines: Vec<CodeLine> = all
        .iter()
        .enumerate()
        .take(LINES)
        .map(|(i, l)| CodeLine {
            number: i as u32 + 1,
            text: l.replace('\t', "    "),
            role: role(l),
        })
        .collect();
    Pane {
        language: language.into(),
        lines,
        of: all.len() as u32,
    }
}

/// Instructions and labels of nvdisasm's listing, without the file's headers and the instructions' offsets.
fn instructions(listing: &str) -> String {
    let lines = listing.lines().map(str::trim).filter_map(|l| {
        let code = match l.strip_prefix("/*").and_then(|r| r.split_once("*/")) {
            Some((_, code)) => code.trim(),
            None => l,
        };
        if code.starts_with(".L_") {
            return Some(code.to_string());
        }
        let (code, _) = code.split_once(';')?;
        Some(format!("    {}", code.trim_end()))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The registers that the assembler took for a thread.
pub(super) fn registers_taken(listing: &str) -> Option<u64> {
    let at = listing.split("SHI_REGISTERS=").nth(1)?;
    let digits: String = at.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// What lines of a role do: role, key of their number, what they do, and the same in the workshop.
const ROLES: [(&str, &str, &str, &str); 7] = [
    (
        "load",
        "n_load",
        "read global memory into registers",
        "Fetch from the warehouse.",
    ),
    (
        "stage",
        "n_stage",
        "put a piece into shared memory, straight from global memory where they are asynchronous copies",
        "Bring pallets to the bench before they are needed.",
    ),
    (
        "fetch",
        "n_fetch",
        "take fragments from shared memory into registers",
        "Take from the bench into the hand.",
    ),
    ("math", "n_math", "multiply and add", "Do the work."),
    (
        "barrier",
        "n_barrier",
        "wait for copies or for the CTA's other warps",
        "Wait until the pallet is there and everybody is ready.",
    ),
    (
        "store",
        "n_store",
        "write results to global memory",
        "Carry what is finished away.",
    ),
    ("loop", "n_loop", "branch: loops and bounds", "And again."),
];

/// How many lines of each role a text has.
fn roles(text: &Pane, b: &mut Build) {
    for (role, key, what, analogy) in ROLES {
        let n = count(text, role);
        if n == 0 {
            continue;
        }
        b.number(
            key,
            &format!("lines that {what}"),
            (n as f64, NumberFormat::Of("line")),
            "",
            "lines of the text by their opcode",
        );
        let verb = if n == 1 {
            "is there to"
        } else {
            "are there to"
        };
        b.beat(role, format!("{{{key}}} {verb} {what}."), analogy);
    }
}

fn count(p: &Pane, role: &str) -> usize {
    p.lines.iter().filter(|l| l.role == role).count()
}

pub(super) fn scene(s: &Subject, code: &Code) -> Option<Scene> {
    let mut b = Build::new("code", "The code");
    let (panes, note) = match code {
        Code::None(_) if s.program.is_none() => return None,
        Code::None(why) => (vec![], why.clone()),
        Code::Wgsl(text) => (vec![pane("WGSL", text, wgsl_role)], String::new()),
        Code::Cpu(m) => {
            cpu_code::say(s, m, &mut b);
            return Some(b.done(Picture::Code {
                panes: cpu_code::panes(m),
                note: m.missing.clone(),
            }));
        }
        Code::Ptx { ptx, sass, .. } => {
            let mut panes = vec![pane("PTX", &ptx.text, ptx_role)];
            let note = match sass {
                Ok(listing) => {
                    panes.push(pane("SASS", &instructions(listing), sass_role));
                    String::new()
                }
                Err(why) => format!("Without machine code: {why}."),
            };
            (panes, note)
        }
    };
    let Some(first) = panes.first() else {
        b.name("why", "why not", note.clone(), "the emitter");
        b.beat("", "There is no text to show: {why}.", "");
        return Some(b.done(Picture::Code { panes, note }));
    };
    let emitter = "the emitter's text, which chooses nothing: schedule and mapping say it all";
    b.name("language", "language", &first.language, emitter);
    b.number(
        "lines",
        "lines",
        (f64::from(first.of), NumberFormat::Of("line")),
        "",
        emitter,
    );
    b.beat(
        "",
        "The emitter prints the tile program as {lines} of {language}; nothing is chosen here any more.",
        "The work plan as orders to single machines.",
    );
    if let Some(machine) = panes.get(1) {
        b.number(
            "sass_lines",
            "machine instructions",
            (f64::from(machine.of), NumberFormat::Whole),
            "",
            "ptxas and nvdisasm",
        );
        b.beat(
            "",
            "ptxas makes {sass_lines} lines of machine code (SASS) of it, with real registers and an order of its own.",
            "The same orders in the machines' own language.",
        );
    }
    roles(first, &mut b);
    Some(b.done(Picture::Code { panes, note }))
}
