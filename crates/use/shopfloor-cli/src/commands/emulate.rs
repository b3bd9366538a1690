//! `shopfloor emulate`: PTX text run without a GPU.
use crate::output::{self, Done, Failure};
use crate::progress::Progress;
use ptx_emulator::tensor_map::{self, TensorMap};
use ptx_emulator::{
    Checks, Launch, Machine, MemoryKind, Outcome, PtxError, Report, counters_table,
};
use serde_json::{Value, json};
use shopfloor::{DType, Tensor};
use shopfloor_tools::stalls::{self, Reason, Stalls, Timing, stalls_table};
use shopfloor_tools::{calc, data};
use std::fmt::Write;
use std::path::PathBuf;

/// Elements of a buffer that are printed without `--all`.
const SHOWN: usize = 64;
/// Most elements of a buffer.
const MOST: u64 = 1 << 32;

#[derive(clap::Args)]
pub struct Args {
    /// A file of PTX text
    file: PathBuf,
    /// The kernel to run; may be left out where there is one
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// CTAs along x, y and z
    #[arg(long, value_name = "X,Y,Z", default_value = "1")]
    grid: String,
    /// Threads of a CTA along x, y and z [default: what the text requires (.reqntid), else 32]
    #[arg(long, value_name = "X,Y,Z")]
    block: Option<String>,
    /// An argument, in order: TYPE:VALUE (u32:7, f32:1.5), a buffer that is filled and not shown
    /// (buf:TYPE:COUNT=WITH, where WITH is zeros, ones, iota, random:SEED or FILE.npy), or one that is
    /// shown afterwards (out:TYPE:COUNT, which nothing has written, or with = as above). Types are
    /// f32 f64 f16 bf16, s8 to s64 and u8 to u64. emit prints tensor:N+... for a kernel that takes
    /// buffer N, counted from 0, as a tensor too
    #[arg(long = "arg", value_name = "ARG", allow_hyphen_values = true)]
    args: Vec<String>,
    /// Dynamic shared memory of a CTA
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = crate::args::whole::<u32>(0..))]
    shared: u32,
    /// Decides how warps and CTAs are interleaved
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = crate::args::whole::<u64>(0..))]
    seed: u64,
    /// CTAs in flight together, at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = crate::args::whole::<u32>(1..))]
    in_flight: u32,
    /// Instructions of warps after which to give up
    #[arg(long, value_name = "N", default_value_t = 10_000_000_000, value_parser = crate::args::whole::<u64>(0..))]
    limit: u64,
    /// Check bounds and alignment only: no races, no uninitialised reads
    #[arg(long)]
    no_checks: bool,
    /// Where the cycles of warps go on the GPU that --on names: by reason, and by line
    #[arg(long, requires = "on")]
    stalls: bool,
    /// GPU whose figures --stalls counts with, planned for and not run on: a name such as a100, or a TOML file
    #[arg(long, value_name = "MACHINE", requires = "stalls")]
    on: Option<String>,
    /// Registers of a thread, as ptxas -v tells them: how many CTAs are on an SM together depends on
    /// it
    #[arg(long, value_name = "N", default_value_t = 32, requires = "stalls", value_parser = crate::args::whole::<u32>(0..))]
    registers: u32,
    /// Show buffers whole
    #[arg(long, help_heading = "Output")]
    all: bool,
    /// Everything as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// An argument that stands in memory.
struct Buffer {
    name: String,
    address: u64,
    dtype: DType,
    count: usize,
    shown: bool,
}

fn usage<T>(what: String) -> Result<T, Failure> {
    Err(Failure::Usage(what))
}

fn failed(e: PtxError, file: &std::path::Path) -> Failure {
    let text = format!("{}: {e}", file.display());
    match e {
        // Another kernel, grid or argument would do.
        PtxError::NoKernel { .. } | PtxError::Launch { .. } => Failure::Usage(text),
        _ => Failure::of(text),
    }
}

fn three(text: &str) -> Result<[u32; 3], Failure> {
    let mut v = [1; 3];
    let parts: Vec<&str> = text.split(',').collect();
    for (k, p) in parts.iter().enumerate() {
        match (v.get_mut(k), p.trim().parse()) {
            (Some(slot), Ok(n)) => *slot = n,
            _ => return usage(format!("'{text}' is not X, X,Y or X,Y,Z")),
        }
    }
    Ok(v)
}

fn dtype(name: &str) -> Option<DType> {
    Some(match name {
        "f32" => DType::F32,
        "f64" => DType::F64,
        "f16" => DType::F16,
        "bf16" => DType::BF16,
        "s8" => DType::I8,
        "u8" => DType::U8,
        "s16" => DType::I16,
        "u16" => DType::U16,
        "s32" => DType::I32,
        "u32" => DType::U32,
        "s64" => DType::I64,
        "u64" => DType::U64,
        _ => return None,
    })
}

fn integer(t: DType) -> bool {
    !matches!(t, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
}

/// The bytes of one number.
fn scalar(t: DType, text: &str) -> Option<Vec<u8>> {
    let mut one = Tensor::zeros(t, &[1]).ok()?;
    if integer(t) {
        let negative = text.starts_with('-');
        let digits = text.trim_start_matches('-');
        let v = match digits.strip_prefix("0x") {
            Some(h) => i128::from(u64::from_str_radix(h, 16).ok()?),
            None => digits.parse().ok()?,
        };
        one.set_i64(0, if negative { -v } else { v } as i64);
    } else {
        one.set_f64(0, text.parse().ok()?);
    }
    Some(one.into_bytes())
}

fn filled(arg: &str, t: DType, count: usize, how: &str) -> Result<Option<Tensor>, Failure> {
    let of = |f: &mut dyn FnMut(usize) -> f64| -> Result<Option<Tensor>, Failure> {
        let mut out = Tensor::zeros(t, &[count]).map_err(|e| Failure::Usage(e.to_string()))?;
        for k in 0..count {
            out.set_f64(k, f(k));
        }
        Ok(Some(out))
    };
    if let Some(seed) = how.strip_prefix("random:") {
        let Ok(seed) = seed.parse::<u64>() else {
            return usage(format!("'{arg}': random:SEED needs a number"));
        };
        let mut s = seed;
        return of(&mut |_| {
            // Integers from -8 to 8, floats in -1..1.
            s = s.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (s ^ (s >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let unit = (z >> 40) as f64 / (1u64 << 23) as f64 - 1.0;
            if integer(t) {
                (unit * 8.0).round()
            } else {
                unit
            }
        });
    }
    match how {
        "zeros" => of(&mut |_| 0.0),
        "ones" => of(&mut |_| 1.0),
        "iota" => of(&mut |k| k as f64),
        path if path.ends_with(".npy") => {
            let file = data::read_npy(path)?;
            if file.dtype() != t || file.len() != count {
                return usage(format!(
                    "'{arg}': {path} holds {} elements of {}",
                    file.len(),
                    file.dtype()
                ));
            }
            Ok(Some(file))
        }
        _ => usage(format!(
            "'{arg}': a buffer is filled with zeros, ones, iota, random:SEED or FILE.npy"
        )),
    }
}

/// The bytes of a tensor map: `tensor:N+BYTES:TYPE/DIMS/STRIDES/BOX/STEPS/SWIZZLE` of buffer number N.
fn tensor(arg: &str, buffers: &[Buffer]) -> Result<Vec<u8>, Failure> {
    fn list<T: std::str::FromStr>(text: &str) -> Option<Vec<T>> {
        let all = text.split(',').filter(|n| !n.is_empty());
        all.map(|n| n.parse().ok()).collect()
    }
    let of = || {
        let (from, sizes) = arg.strip_prefix("tensor:")?.split_once(':')?;
        let (number, offset) = from.split_once('+')?;
        let sizes: Vec<&str> = sizes.split('/').collect();
        let &[kind, dims, strides, boxes, steps, swizzle] = sizes.as_slice() else {
            return None;
        };
        let buffer = buffers.get(number.parse::<usize>().ok()?)?;
        let address = buffer.address.checked_add(offset.parse().ok()?)?;
        let (dims, strides): (Vec<u64>, Vec<u64>) = (list(dims)?, list(strides)?);
        let (boxes, steps): (Vec<u32>, Vec<u32>) = (list(boxes)?, list(steps)?);
        let kind = (kind.parse().ok()?, address);
        let swizzle = swizzle.parse().ok()?;
        Some(TensorMap::tiled(
            kind,
            (&dims, &strides),
            (&boxes, &steps),
            swizzle,
        ))
    };
    let Some(map) = of() else {
        return usage(format!(
            "'{arg}' is no tensor: tensor:N+BYTES:TYPE/DIMS/STRIDES/BOX/STEPS/SWIZZLE, N a buffer before it"
        ));
    };
    let bytes = map.and_then(|m| tensor_map::encode(&m));
    let bytes = bytes.map_err(|e| Failure::Usage(format!("'{arg}': {e}")))?;
    Ok(bytes.into())
}

/// Puts an argument where the kernel can use it.
fn argument(
    arg: &str,
    machine: &mut Machine,
    buffers: &mut Vec<Buffer>,
) -> Result<Vec<u8>, Failure> {
    let parts: Vec<&str> = arg.splitn(3, ':').collect();
    let shown = match parts[0] {
        "buf" => false,
        "out" => true,
        "tensor" => return tensor(arg, buffers),
        ty => {
            let value = arg.split_once(':').map_or("", |p| p.1);
            let bytes = dtype(ty).and_then(|t| scalar(t, value));
            return match bytes {
                Some(b) => Ok(b),
                None => usage(format!(
                    "'{arg}' is no argument: TYPE:VALUE, buf:TYPE:COUNT=HOW, out:TYPE:COUNT or tensor:..."
                )),
            };
        }
    };
    let [_, ty, rest] = parts[..] else {
        return usage(format!("'{arg}' needs a type and a number of elements"));
    };
    let (count, how) = match rest.split_once('=') {
        Some((c, h)) => (c, Some(h)),
        None => (rest, None),
    };
    let (Some(t), Ok(count)) = (dtype(ty), count.parse::<u64>()) else {
        return usage(format!("'{arg}' needs a type and a number of elements"));
    };
    let size = u64::from(t.bits()) / 8;
    if count > MOST {
        return usage(format!("'{arg}': {MOST} elements are the most"));
    }
    let memory = |e: PtxError| Failure::Usage(format!("'{arg}': {e}"));
    let address = machine
        .memory
        .allocate(count * size, MemoryKind::Device)
        .map_err(memory)?;
    if let Some(how) = how
        && let Some(tensor) = filled(arg, t, count as usize, how)?
    {
        machine
            .memory
            .write(address, tensor.bytes())
            .map_err(memory)?;
    }
    buffers.push(Buffer {
        name: arg.split('=').next().unwrap_or(arg).to_string(),
        address,
        dtype: t,
        count: count as usize,
        shown,
    });
    Ok(address.to_le_bytes().into())
}

fn number(t: DType, tensor: &Tensor, k: usize) -> String {
    match t {
        DType::U64 => (tensor.get_i64(k) as u64).to_string(),
        t if integer(t) => tensor.get_i64(k).to_string(),
        DType::F64 => digits(tensor.get_f64(k), tensor.get_f64(k)),
        _ => digits(tensor.get_f64(k) as f32, tensor.get_f64(k)),
    }
}

/// The fewest digits that tell `v` from its type's other values; with a power of ten where its `size` is large or small.
fn digits<T: std::fmt::Display + std::fmt::LowerExp>(v: T, size: f64) -> String {
    match size == 0.0 || !size.is_finite() || (1e-5..1e9).contains(&size.abs()) {
        true => v.to_string(),
        false => format!("{v:e}"),
    }
}

fn values(b: &Buffer, machine: &Machine) -> Result<Tensor, Failure> {
    let size = b.dtype.bits() as usize / 8;
    let bytes = machine
        .memory
        .read(b.address, b.count * size)
        .map_err(|e| Failure::of(e.to_string()))?;
    Ok(Tensor::from_bytes(b.dtype, &[b.count], bytes).map_err(shopfloor::Error::from)?)
}

fn show(
    b: &Buffer,
    machine: &Machine,
    (all, columns): (bool, usize),
    out: &mut String,
) -> Result<(), Failure> {
    let tensor = values(b, machine)?;
    let n = if all { b.count } else { b.count.min(SHOWN) };
    let cells: Vec<String> = (0..n).map(|k| number(b.dtype, &tensor, k)).collect();
    let width = cells.iter().map(String::len).max().unwrap_or(0) + 1;
    let index = b.count.to_string().len() + 1;
    let columns = (columns.saturating_sub(1 + index) / width.max(1)).clamp(1, 16);
    let _ = writeln!(out, "{}", b.name);
    for (row, chunk) in cells.chunks(columns).enumerate() {
        let _ = write!(out, "{:>index$}", row * columns);
        for c in chunk {
            let _ = write!(out, "{c:>width$}");
        }
        out.push('\n');
    }
    if n < b.count {
        let _ = writeln!(out, "... {} more; --all shows them", b.count - n);
    }
    out.push('\n');
    Ok(())
}

fn report(r: &Report) -> Value {
    json!({
        "kind": r.kind.name(), "line": r.line, "other_line": r.other_line, "kernel": r.kernel,
        "cta": r.cta, "warp": r.warp, "lane": r.lane, "message": r.message, "count": r.count,
    })
}

fn counts(c: &ptx_emulator::Counts) -> Value {
    json!({
        "issued": c.issued, "lanes": c.lanes, "global_requests": c.global_requests,
        "sectors": c.sectors, "lines": c.lines, "global_bytes": c.global_bytes,
        "shared_requests": c.shared_requests, "wavefronts": c.wavefronts,
        "conflicts": c.conflicts, "barriers": c.barriers, "waits": c.waits,
    })
}

/// A launch's cycles on a GPU.
struct Timed {
    gpu: String,
    clock_hz: f64,
    timing: Timing,
    stalls: Stalls,
}

fn by_reason(list: &[(Reason, u64)]) -> Value {
    let all = list.iter().map(|(r, n)| (r.name().to_string(), json!(n)));
    Value::Object(all.collect())
}

fn stalls_json(t: &Timed) -> Value {
    let s = &t.stalls;
    let lines: Vec<Value> = s
        .lines
        .iter()
        .map(|l| {
            json!({
                "line": l.line, "issued": l.issued, "lost": by_reason(&l.lost),
                "waits_for": l.waits_for,
            })
        })
        .collect();
    let warps: Vec<Value> = s
        .each
        .iter()
        .map(|w| {
            json!({
                "cta": w.cta, "warp": w.warp, "sm": w.sm, "scheduler": w.scheduler,
                "from": w.from, "to": w.to, "cycles": by_reason(&w.cycles),
            })
        })
        .collect();
    let [shared, l1, l2, device] = s.bytes;
    json!({
        "machine": t.gpu, "cycles": s.cycles, "seconds": s.cycles as f64 / t.clock_hz,
        "ctas_per_sm": t.timing.ctas_per_sm, "warps": s.warps, "warp_cycles": s.warp_cycles,
        "issue": s.issue, "reasons": by_reason(&s.reasons),
        "bytes": {"shared": shared, "L1": l1, "L2": l2, "device": device},
        "by_line": lines, "by_warp": warps,
    })
}

fn as_json(
    o: &Outcome,
    timed: Option<&Timed>,
    machine: &Machine,
    buffers: &[Buffer],
) -> Result<Value, Failure> {
    let mut shown = serde_json::Map::new();
    for (k, b) in buffers.iter().enumerate().filter(|(_, b)| b.shown) {
        let t = values(b, machine)?;
        let list: Vec<Value> = (0..b.count)
            .map(|i| match b.dtype {
                DType::U64 => json!(t.get_i64(i) as u64),
                d if integer(d) => json!(t.get_i64(i)),
                _ => match t.get_f64(i) {
                    v if v.is_finite() => json!(v),
                    // JSON has no such numbers.
                    v => json!(v.to_string()),
                },
            })
            .collect();
        shown.insert(format!("{k}:{}", b.name), Value::Array(list));
    }
    let classes: serde_json::Map<String, Value> = o
        .counters
        .classes
        .iter()
        .map(|(c, n)| (c.name().to_string(), json!(n)))
        .collect();
    let lines: Vec<Value> = o
        .counters
        .by_line
        .iter()
        .map(|(l, c)| json!({"line": l, "counts": counts(c)}))
        .collect();
    let mut all = json!({
        "reports": o.reports.iter().map(report).collect::<Vec<Value>>(),
        "buffers": shown,
        "total": counts(&o.counters.total),
        "classes": classes,
        "by_line": lines,
        "threads": o.threads,
    });
    if let Some(t) = timed {
        all["stalls"] = stalls_json(t);
    }
    Ok(all)
}

/// Runs the launch, on the clock of the GPU `on` where one is named.
fn launched(
    a: &Args,
    machine: &Machine,
    module: &ptx_emulator::Module,
    launch: &Launch,
) -> Result<(Outcome, Option<Timed>), Failure> {
    let wrong = |e| failed(e, &a.file);
    let Some(on) = &a.on else {
        return Ok((machine.run(module, launch).map_err(wrong)?, None));
    };
    let gpu = shopfloor::machines::find(on)?;
    let fixed = module.static_shared(&launch.kernel).map_err(wrong)?;
    let block = calc::Block {
        threads: launch.block.iter().map(|v| u64::from(*v)).product(),
        registers: a.registers.into(),
        shared: u64::from(fixed) + u64::from(launch.shared),
    };
    let timing = stalls::timing(&gpu, block)?;
    let (outcome, stalls) = machine.time(module, launch, &timing).map_err(wrong)?;
    let timed = Timed {
        gpu: gpu.name,
        clock_hz: gpu.workers.clock_hz.value,
        timing,
        stalls,
    };
    Ok((outcome, Some(timed)))
}

pub fn run(a: Args) -> Done {
    let source = shopfloor::read_text(&a.file, shopfloor_tools::files::MADE)?;
    let mut machine = Machine::new();
    let module = machine.load(&source).map_err(|e| failed(e, &a.file))?;
    let kernel = match (&a.kernel, &module.kernels()[..]) {
        (Some(k), _) => k.clone(),
        (None, [one]) => one.to_string(),
        (None, all) => {
            return usage(format!(
                "{} has {} kernels; choose one with --kernel: {}",
                a.file.display(),
                all.len(),
                all.join(", ")
            ));
        }
    };
    let mut buffers = Vec::new();
    let mut args = Vec::new();
    for arg in &a.args {
        args.push(argument(arg, &mut machine, &mut buffers)?);
    }
    let block = match &a.block {
        Some(given) => three(given)?,
        None => {
            let info = module.info(&kernel).map_err(|e| failed(e, &a.file))?;
            info.required_threads.unwrap_or([32, 1, 1])
        }
    };
    let launch = Launch {
        grid: three(&a.grid)?,
        block,
        shared: a.shared,
        args,
        seed: a.seed,
        resident: a.in_flight as usize,
        checks: if a.no_checks {
            Checks::none()
        } else {
            Checks::default()
        },
        step_limit: a.limit,
        ..Launch::new(kernel)
    };
    let waiting = Progress::spinner("emulating");
    let (outcome, timed) = launched(&a, &machine, &module, &launch)?;
    drop(waiting);
    if a.json {
        output::json(&as_json(&outcome, timed.as_ref(), &machine, &buffers)?)?;
    } else {
        let mut out = String::new();
        let width = output::style().width;
        for b in buffers.iter().filter(|b| b.shown) {
            show(b, &machine, (a.all, width), &mut out)?;
        }
        out += &counters_table(&outcome.counters, &source, width);
        if let Some(t) = &timed {
            let s = if t.timing.ctas_per_sm == 1 { "" } else { "s" };
            let _ = writeln!(
                out,
                "\non {} at {:.2} GHz, {} CTA{s} on an SM at most: {:.2} us",
                t.gpu,
                t.clock_hz / 1e9,
                t.timing.ctas_per_sm,
                t.stalls.cycles as f64 / t.clock_hz * 1e6
            );
            out += &stalls_table(&t.stalls, &source, width);
        }
        output::print(&out)?;
    }
    match outcome.reports.len() {
        0 => Ok(()),
        n => {
            let s = if n == 1 { "" } else { "s" };
            let mut all = format!("{n} finding{s} in {}", a.file.display());
            for r in &outcome.reports {
                let _ = write!(all, "\n{r}");
            }
            Err(Failure::Found(all))
        }
    }
}
