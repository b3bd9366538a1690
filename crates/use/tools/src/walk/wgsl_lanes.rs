//! Invocations onto addresses where the code is WGSL: counted from the threads that are printed, by their
//! interpreter, over one workgroup on zeros.
use super::Subject;
use super::lanes::{self, LIT, Narrated, REQUESTS, Words};
use super::narration::{Build, NumberFormat};
use emit::simt::Caps;
use emit::simt::run::{Asked, Memory, Request, RunEnd, run};
use expr::Scalar;
use kernel::{OperandId, TileProgram};
use layout::{Arrange, DType};
use report::walk::{LaneRequest, Picture, Scene};
use std::collections::BTreeMap;

/// Steps of single threads at most.
const STEPS: u64 = 8_000_000;
/// Bytes of a word, in which WGSL's memory is.
const WORD: u64 = 4;

/// What one instruction asked.
struct AccessSite {
    operand: OperandId,
    index: u32,
    write: bool,
    /// Bytes of a lane.
    bytes: u64,
    /// Requests of subgroups.
    issued: u64,
    /// The first with the most invocations in it.
    lanes: Vec<Option<u64>>,
}

/// Zeros, and what is asked of them.
struct Counting {
    dtypes: Vec<DType>,
    /// Invocations of a subgroup.
    width: usize,
    sites: BTreeMap<usize, AccessSite>,
    shared: u64,
}

impl Memory for Counting {
    fn load(&mut self, operand: OperandId, _: i64) -> Result<Scalar, String> {
        let float = self
            .dtypes
            .get(operand as usize)
            .is_some_and(|d| d.is_float());
        Ok(if float {
            Scalar::Float(0.0)
        } else {
            Scalar::Int(0)
        })
    }

    fn store(&mut self, _: OperandId, _: i64, _: Scalar) -> Result<(), String> {
        Ok(())
    }

    fn seen(&mut self, r: &Request) {
        let groups = r.at.chunks(self.width).enumerate();
        let live = groups.filter(|(_, g)| g.iter().any(Option::is_some));
        let Asked::Operand(operand) = r.memory else {
            self.shared += live.count() as u64;
            return;
        };
        let bits = u64::from(self.dtypes.get(operand as usize).map_or(32, |d| d.bits()));
        // Narrow elements are taken out of their word.
        let bytes = (bits * u64::from(r.elements)).div_ceil(8).max(WORD);
        for (_, g) in live {
            let at = |a: &Option<i64>| {
                let byte = u64::try_from((*a)?).ok()?.saturating_mul(bits) / 8;
                Some(byte / WORD * WORD)
            };
            let site = self.sites.entry(r.site).or_insert_with(|| AccessSite {
                operand,
                index: r.index,
                write: r.write,
                bytes,
                issued: 0,
                lanes: vec![],
            });
            site.issued += 1;
            let before = site.lanes.iter().flatten().count();
            if g.iter().flatten().count() > before {
                site.lanes = g.iter().map(at).collect();
            }
        }
    }
}

/// Of each operand what is asked most often, with its line of `text`; lines of memory have `unit` bytes.
fn told(program: &TileProgram, counting: &Counting, text: &str, unit: u64) -> Vec<Narrated> {
    let lines: Vec<&str> = text.lines().collect();
    let operands = &program.kernel().operands;
    let name = |o: OperandId| operands.get(o as usize).map_or("?", |o| o.name.as_str());
    // Loads before stores.
    let mut all: Vec<&AccessSite> = counting.sites.values().collect();
    all.arrange_by_key(|x| (x.write, x.operand, std::cmp::Reverse(x.issued)));
    all.dedup_by_key(|x| (x.write, x.operand));
    let told = all.iter().take(REQUESTS).enumerate().map(|(i, x)| {
        let alike = counting.sites.values();
        let alike = alike.filter(|y| (y.write, y.operand) == (x.write, x.operand));
        let issued = alike.map(|y| y.issued).sum();
        let call = match x.write {
            true => format!("write_{}(r{}", x.operand, x.index),
            false => format!("read_{}(r{}", x.operand, x.index),
        };
        let whole = |l: &str| {
            let after = l.split_once(&call).and_then(|p| p.1.chars().next());
            after.is_some_and(|c| !c.is_ascii_digit())
        };
        let line = lines.iter().position(|l| whole(l));
        let (moved, ideal) = lanes::touched(&x.lanes, x.bytes, unit);
        let (way, stride) = lanes::way(&x.lanes, x.bytes);
        let first = x.lanes.iter().flatten().min().copied().unwrap_or(0) / unit * unit;
        Narrated {
            request: LaneRequest {
                space: "global",
                role: if x.write { "store" } else { "load" },
                lit: LIT[i],
                line: line.map_or(0, |l| l as u32 + 1),
                text: line.map_or(String::new(), |l| lines[l].trim().into()),
                cta: [0; 3],
                warp: 0,
                unit: unit as u32,
                way,
                stride,
                partial: None,
                bytes: x.bytes as u32,
                lanes: x.lanes.iter().map(|a| a.map(|a| a - first)).collect(),
                moved,
                ideal,
                issued,
            },
            name: name(x.operand).into(),
            tile: None,
            of: "workgroup",
        }
    });
    told.collect()
}

/// The scene, where the step's code is WGSL.
pub(super) fn scene(s: &Subject) -> Option<Scene> {
    let program = s.program.as_ref()?;
    let mut b = Build::new("lanes", "Invocations onto addresses");
    let counted = count(s);
    let (counting, ended, text) = match counted {
        Ok(c) => c,
        Err(why) => {
            b.name("why", "why not", why, "the threads of the tile program");
            b.beat("", "Nothing is drawn here: {why}.", "");
            return Some(b.done(Picture::Lanes { requests: vec![] }));
        }
    };
    let near = s.machine.level("L2").or(s.machine.level("device"));
    let unit = near.map_or(64, |l| l.line.max(1));
    let told = told(program, &counting, &text, unit);
    let here = match ended {
        RunEnd::Whole => "the threads that the WGSL prints, over one workgroup on zeros",
        RunEnd::Cut => {
            "the threads that the WGSL prints, over the first steps of one workgroup on zeros"
        }
    };
    let threads = s.gpu().map_or(0, |g| g.threads);
    b.number(
        "threads",
        "invocations of a workgroup",
        (f64::from(threads), NumberFormat::Of("invocation")),
        "",
        "the schedule",
    );
    b.number(
        "width",
        "invocations of a subgroup",
        (counting.width as f64, NumberFormat::Whole),
        "",
        format!("limits of {}", s.machine.name),
    );
    b.number(
        "line",
        "bytes of a line",
        (unit as f64, NumberFormat::Whole),
        "",
        format!("levels of {}", s.machine.name),
    );
    let asked: u64 = counting.sites.values().map(|x| x.issued).sum();
    b.number(
        "asked",
        "requests to the arrays in memory",
        (asked as f64, NumberFormat::Count),
        "",
        here,
    );
    b.number(
        "shared",
        "requests to workgroup memory",
        (counting.shared as f64, NumberFormat::Count),
        "",
        here,
    );
    b.beat(
        "",
        "One workgroup of {threads} was followed thread by thread: {asked} requests of {width} invocations to memory, whose lines have {line} bytes, and {shared} to workgroup memory, whose banks WebGPU does not tell.",
        "One team's whole shift, watched step by step.",
    );
    let words = Words {
        unit: "line",
        lane: "invocation",
        source: here.into(),
    };
    Some(lanes::scene(b, told, &words))
}

/// One workgroup's requests, how far it came, and the text that is printed of the same threads.
fn count(s: &Subject) -> Result<(Counting, RunEnd, String), String> {
    let program = s.program.as_ref().ok_or("a host step has no threads")?;
    let threads = emit::simt::lower(program, Caps::default()).map_err(|e| e.to_string())?;
    let arrays = vec![emit::wgsl::Array::Work; program.kernel().operands.len()];
    let text = emit::wgsl::print(&threads, &arrays).map_err(|e| e.to_string())?;
    let width = s.machine.limits.warp.map_or(32, |w| w.value.max(1)) as usize;
    let mut counting = Counting {
        dtypes: program.kernel().operands.iter().map(|o| o.dtype).collect(),
        width,
        sites: BTreeMap::new(),
        shared: 0,
    };
    let top = |name: &str| s.plan.dims.get(name).map(|r| r.hi);
    let ended = run(&threads, &top, &mut counting, 0..1, STEPS)?;
    Ok((counting, ended, text.text))
}
