//! Inside an SM: warps and what limits them, lanes onto sectors and banks.
use super::Subject;
use super::code::{Code, ptx_role, registers_taken};
use super::emulated::Counted;
use super::narration::{Build, NumberFormat};
use super::{lanes, wgsl_lanes};
use layout::{Arrange, Inserted};
use machine::calc::{self, Block, Occupancy};
use report::units;
use report::walk::{LaneRequest, Picture, Scene};
use std::cmp::Ordering;

/// Requests that are drawn.
const REQUESTS: usize = 4;

const OCCUPANCY: &str = "calculator `occupancy`";

/// What a CTA asks for, and how much of it an SM holds.
fn occupancy(
    s: &Subject,
    (block, registers_are, from): (Block, &str, &str),
    (held, warps, lanes): (&Occupancy, u64, u64),
    b: &mut Build,
) {
    b.number(
        "threads",
        "threads of a CTA",
        (block.threads as f64, NumberFormat::Of("thread")),
        "",
        "the schedule",
    );
    b.number(
        "warps",
        "warps of a CTA",
        (warps as f64, NumberFormat::Of("warp")),
        format!("ceil({} / {lanes})", block.threads),
        "threads and lanes",
    );
    b.number(
        "registers",
        registers_are,
        (block.registers as f64, NumberFormat::Whole),
        "",
        from,
    );
    b.number(
        "shared",
        "shared memory of a CTA",
        (block.shared as f64, NumberFormat::Bytes),
        "tiles x stages, and what threads exchange",
        "the emitted text",
    );
    b.number(
        "ctas",
        "CTAs that an SM holds",
        (held.ctas as f64, NumberFormat::Of("CTA")),
        "the least of all limits",
        OCCUPANCY,
    );
    b.number(
        "held",
        "warps that an SM holds",
        (held.warps as f64, NumberFormat::Of("warp")),
        format!("{} x {warps}", held.ctas),
        OCCUPANCY,
    );
    b.number(
        "slots",
        "warps that it could hold",
        (held.max_warps as f64, NumberFormat::Whole),
        "",
        format!("limits of {}", s.machine.name),
    );
    b.number(
        "occupancy",
        "occupancy",
        (held.share, NumberFormat::Percent),
        format!("{} warps held / {} slots", held.warps, held.max_warps),
        OCCUPANCY,
    );
}

/// CTAs that an SM holds by each of its limits.
fn ctas_by_limit(s: &Subject, held: &Occupancy, b: &mut Build) -> Vec<(String, u64)> {
    let file = s.machine.limits.registers_per_sm.map_or(0, |r| r.value);
    let mut all = vec![(calc::limiter_name("warps").to_string(), held.limits.warps)];
    if let Some(n) = held.limits.registers {
        all.push(("registers".into(), n));
        b.number(
            "by_registers",
            "CTAs by registers",
            (n as f64, NumberFormat::Whole),
            format!(
                "{file} / {} a CTA, by quarters of the register file",
                held.registers_per_cta
            ),
            OCCUPANCY,
        );
    }
    if let Some(n) = held.limits.shared {
        all.push(("shared memory".into(), n));
        b.number(
            "by_shared",
            "CTAs by shared memory",
            (n as f64, NumberFormat::Whole),
            format!(
                "{} / {} a CTA, the driver's part in it",
                units::bytes(held.shared_per_sm as f64),
                units::bytes(held.shared_per_cta as f64)
            ),
            OCCUPANCY,
        );
    }
    all.push((calc::limiter_name("blocks").into(), held.limits.ctas));
    if let Some(n) = held.limits.barriers {
        all.push(("barriers".into(), n));
    }
    all
}

/// What an SM would hold with the registers that the assembler took.
fn registers_of_machine_code(s: &Subject, listing: &str, block: Block, b: &mut Build) {
    let Some(n) = registers_taken(listing) else {
        return;
    };
    let real = calc::occupancy(
        &s.machine.limits,
        Block {
            registers: n,
            ..block
        },
    );
    let ctas = real.map_or(0, |o| o.ctas);
    b.number(
        "taken",
        "registers that ptxas took",
        (n as f64, NumberFormat::Whole),
        "",
        "ptxas, as nvdisasm shows it",
    );
    b.number(
        "taken_ctas",
        "CTAs with those",
        (ctas as f64, NumberFormat::Of("CTA")),
        "the least of all limits",
        OCCUPANCY,
    );
    b.beat("limits", "The assembler took {taken} registers for a thread, with which an SM would hold {taken_ctas}.", match n.cmp(&block.registers) {
        Ordering::Less => "In the end they needed a little less room.",
        Ordering::Equal => "They needed just the room that was expected.",
        Ordering::Greater => "In the end they needed a little more room.",
    });
}

pub(super) fn warps(s: &Subject, code: &Code) -> Option<Scene> {
    let g = s.gpu()?;
    let limits = &s.machine.limits;
    let (registers, shared, registers_are, from) = match code {
        Code::Ptx { ptx, .. } => (
            ptx.registers_estimate,
            ptx.shared_bytes.into(),
            "registers of a thread, as an assembler is expected to take",
            "the emitted text",
        ),
        _ => (
            g.registers,
            0,
            "registers of a thread at most",
            "the schedule",
        ),
    };
    let block = Block {
        threads: g.threads.into(),
        registers: registers.into(),
        shared,
    };
    let held = calc::occupancy(limits, block)?;
    let lanes = limits.warp.map_or(32, |w| w.value.max(1));
    let warps = block.threads.div_ceil(lanes);
    let mut b = Build::new("warps", "Warps and occupancy");
    let asked = (block, registers_are, from);
    occupancy(s, asked, (&held, warps, lanes), &mut b);
    let limiters: Vec<String> = held
        .limiters
        .iter()
        .map(|l| calc::limiter_name(l).into())
        .collect();
    b.name(
        "limiter",
        "what limits it",
        limiters.join(" and "),
        OCCUPANCY,
    );
    let all = ctas_by_limit(s, &held, &mut b);
    b.beat("cta", "A CTA has {threads}: {warps}, each of which goes through the code with all its lanes in step.", "A team of {warps}; in each, everybody makes the same movement at once.");
    if g.copiers > 0 {
        let copying = format!("{} warps", g.copiers);
        b.name("copying", "warps that only copy", copying, "the schedule");
        b.beat("cta", "{copying} of them only copy. They run ahead of the others by as many pieces as there are stages; a stage is handed over, and given back, at barriers of its own.", "{copying} only bring material, and never further ahead than there is shelf space.");
    }
    if g.walkers > 0 {
        let walking = format!("{} CTAs", g.walkers);
        b.name("walking", "CTAs that walk tasks", walking, "the schedule");
        b.beat("cta", "A launch has {walking} at most. Each goes from task to task: its warps that copy bring pieces of the next one while the others store the results of the last.", "{walking} stay for the whole job: who brings material fetches for the next piece of work while the last one is put away.");
    }
    if g.cluster > 1 {
        let cluster = format!("{} CTAs", g.cluster);
        b.name("cluster", "a cluster", cluster, "the schedule");
        let how = s.program.as_ref().map(kernel::TileProgram::schedule);
        if how.is_some_and(kernel::Schedule::gives_parts) {
            b.beat("cta", "Neighbours work as a cluster of {cluster}: each sums a part, and keeps it in its shared memory, where all of them read it when they have met.", "Neighbours share a job: each of {cluster} works on a part, and then they put the parts together.");
        } else if how.is_some_and(kernel::Schedule::adds_parts) {
            b.beat("cta", "Neighbours work as a cluster of {cluster}: each adds its share of what all of them keep, part by part.", "Neighbours put together what {cluster} made: each a share of it.");
        } else {
            b.beat("cta", "Neighbours work as a cluster of {cluster}: what all of them need each brings a share of, and sends it to all.", "Neighbours fetch for each other: of what all of {cluster} need each brings a share for everybody.");
        }
    }
    b.beat("limits", "Each thread is taken to need {registers} registers and each CTA {shared} of shared memory. An SM hands both out until one is used up; here it is {limiter}.", "Benches and shelf space are handed out until one runs out: {limiter}.");
    b.beat("slots", "So it holds {ctas}, {held} of {slots} possible: {occupancy} occupancy. More would hide more waiting; fewer leave more registers to each.", "{held} are on the floor where {slots} would fit.");
    if let Code::Ptx {
        sass: Ok(listing), ..
    } = code
    {
        registers_of_machine_code(s, listing, block, &mut b);
    }
    Some(b.done(Picture::Warps {
        slots: held.max_warps,
        ctas: held.ctas,
        warps,
        limits: all,
        limiters,
    }))
}

/// A request of a warp as it is drawn: `lines` are those of the text, `issued` is how often its line ran.
fn request(r: &ptx_emulator::Request, lines: &[String], issued: u64) -> LaneRequest {
    let text = lines.get((r.line as usize).saturating_sub(1));
    let text = text.map_or("", |t| t.trim()).to_string();
    let first = r.lanes.iter().flatten().min().copied().unwrap_or(0) / 128 * 128;
    let base = if r.shared { 0 } else { first };
    let active = r.lanes.iter().flatten().count() as u64;
    let wanted: std::collections::BTreeSet<u64> = r.lanes.iter().flatten().copied().inserted();
    let (moved, ideal) = match r.shared {
        true => r.passes(),
        false => (
            r.sectors().0,
            (wanted.len() as u64 * u64::from(r.bytes)).div_ceil(32),
        ),
    };
    let role = match ptx_role(&text) {
        "store" => "store",
        "fetch" => "fetch",
        "stage" if r.shared => "stage",
        _ => "load",
    };
    let (way, stride) = lanes::way(&r.lanes, u64::from(r.bytes));
    LaneRequest {
        space: if r.shared { "shared" } else { "global" },
        role,
        lit: role,
        unit: if r.shared { 4 } else { 32 },
        way,
        stride,
        partial: None,
        line: r.line,
        text,
        cta: r.cta,
        warp: r.warp,
        bytes: r.bytes,
        lanes: r.lanes.iter().map(|a| a.map(|a| a - base)).collect(),
        moved,
        ideal: ideal.min(active.max(1) * 4),
        issued,
    }
}

/// One request of each kind: the one that is issued most, the first of those.
fn requests(s: &Subject, counted: &Counted) -> Vec<LaneRequest> {
    let lines = s.program.as_ref().and_then(|p| {
        let arch = crate::targets::arch_of(s.machine)?;
        emit::ptx::emit(p, arch).ok()
    });
    let lines: Vec<String> =
        lines.map_or_else(Vec::new, |p| p.text.lines().map(Into::into).collect());
    let issued = |line: u32| {
        let all = &counted.outcome.counters.by_line;
        all.iter().find(|l| l.0 == line).map_or(0, |l| l.1.issued)
    };
    let mut all: Vec<LaneRequest> = counted
        .outcome
        .requests
        .iter()
        .map(|r| request(r, &lines, issued(r.line)))
        .collect();
    let mut requests: Vec<LaneRequest> = Vec::new();
    all.arrange_by_key(|r| (std::cmp::Reverse(r.issued), r.line));
    for kind in [
        ("global", "load"),
        ("shared", "stage"),
        ("shared", "fetch"),
        ("global", "store"),
    ] {
        let found = all.iter().find(|r| (r.space, r.role) == kind);
        requests.extend(found.cloned());
    }
    requests.truncate(REQUESTS);
    requests
}

/// What one CTA moved.
fn totals(counted: &Counted, b: &mut Build) {
    let total = counted.outcome.counters.total;
    let here = match counted.whole {
        true => "the emulator, over one CTA on zeros",
        false => "the emulator, over the first instructions of one CTA on zeros",
    };
    b.number(
        "issued",
        "instructions of its warps",
        (total.issued as f64, NumberFormat::Count),
        "",
        here,
    );
    b.number(
        "sectors",
        "sectors of 32 bytes",
        (total.sectors as f64, NumberFormat::Count),
        "",
        here,
    );
    b.number(
        "wanted",
        "bytes that lanes ask for",
        (total.global_bytes as f64, NumberFormat::Bytes),
        "",
        here,
    );
    b.number(
        "moved",
        "bytes of those sectors",
        (total.sectors as f64 * 32.0, NumberFormat::Bytes),
        format!("{} x 32", total.sectors),
        here,
    );
    let used = if total.sectors > 0 {
        total.global_bytes as f64 / (total.sectors as f64 * 32.0)
    } else {
        1.0
    };
    b.number(
        "used",
        "bytes asked for over bytes moved",
        (used, NumberFormat::Percent),
        format!("{} / ({} x 32)", total.global_bytes, total.sectors),
        here,
    );
    b.number(
        "passes",
        "passes over the banks",
        (total.wavefronts as f64, NumberFormat::Count),
        "",
        here,
    );
    b.number(
        "conflicts",
        "passes that bank conflicts add",
        (total.conflicts as f64, NumberFormat::Whole),
        "passes - the fewest that the widths allow",
        here,
    );
}

/// A request in words.
fn say(r: &LaneRequest, b: &mut Build) {
    let keys: [&'static str; 3] = match (r.space, r.role) {
        ("global", "load") => ["load_lanes", "load_moved", "load_ideal"],
        ("shared", "stage") => ["stage_lanes", "stage_moved", "stage_ideal"],
        ("shared", "fetch") => ["fetch_lanes", "fetch_moved", "fetch_ideal"],
        _ => ["store_lanes", "store_moved", "store_ideal"],
    };
    let active = r.lanes.iter().flatten().count();
    let word = |role: &str| match role {
        "stage" | "store" => "write",
        _ => "read",
    };
    let unit = if r.space == "global" {
        "sector"
    } else {
        "pass"
    };
    let from = format!(
        "the emulator: line {} of the PTX, warp {} of CTA {}",
        r.line, r.warp, r.cta[0]
    );
    b.number(
        keys[0],
        &format!("{}, {}: lanes that take part", r.space, word(r.role)),
        (active as f64, NumberFormat::Of("lane")),
        "",
        from.clone(),
    );
    b.number(
        keys[1],
        &format!("{}, {}: what this takes", r.space, word(r.role)),
        (r.moved as f64, NumberFormat::Of(unit)),
        "",
        from.clone(),
    );
    b.number(
        keys[2],
        &format!("{}, {}: the least for as many bytes", r.space, word(r.role)),
        (r.ideal as f64, NumberFormat::Of(unit)),
        format!("{active} lanes x {} bytes", r.bytes),
        from,
    );
    let k = |i: usize| format!("{{{}}}", keys[i]);
    let text = match (r.space, r.role) {
        ("global", "load") => format!(
            "A request to global memory: {} of a warp touch {} of 32 bytes; {} would hold all that they ask for.",
            k(0),
            k(1),
            k(2)
        ),
        ("global", _) => format!(
            "Results go back: {} write to {} of 32 bytes; {} would hold them.",
            k(0),
            k(1),
            k(2)
        ),
        (_, "stage") => format!(
            "Into shared memory: {} take {} over the 32 banks; {} would be the least for that width.",
            k(0),
            k(1),
            k(2)
        ),
        _ => format!(
            "Out of shared memory: the addresses of {} take {} over the 32 banks; {} would be the least.",
            k(0),
            k(1),
            k(2)
        ),
    };
    let analogy = match (r.space, r.role) {
        ("global", "load") => {
            "Neighbours ask for what lies on one pallet: few pallets are moved for many hands."
        }
        ("global", _) => "What was made leaves on full pallets.",
        (_, "stage") => "32 doors lead to the bench's shelf; whoever wants the same door waits.",
        _ => "Out through 32 doors at once.",
    };
    b.beat(r.lit, text, analogy);
}

pub(super) fn lanes(s: &Subject, counted: &Result<Counted, String>) -> Option<Scene> {
    s.gpu()?;
    if crate::targets::arch_of(s.machine).is_none() {
        return wgsl_lanes::scene(s);
    }
    let mut b = Build::new("lanes", "Lanes onto sectors and banks");
    let counted = match counted {
        Ok(c) => c,
        Err(why) => {
            b.name("why", "why not", why, "the emulator");
            b.beat("", "Nothing is drawn here: {why}.", "");
            return Some(b.done(Picture::Lanes { requests: vec![] }));
        }
    };
    let requests = requests(s, counted);
    totals(counted, &mut b);
    b.beat(
        "",
        "The emulator ran one CTA of this very text: {issued} instructions of warps.",
        "One team's whole shift, watched step by step.",
    );
    for r in &requests {
        say(r, &mut b);
    }
    b.beat("", "Over the CTA {sectors} sectors moved {moved} for {wanted} asked for ({used}), and bank conflicts added {conflicts} passes.", "The shift's count: hardly anything moved that nobody asked for, or it shows here.");
    Some(b.done(Picture::Lanes { requests }))
}
