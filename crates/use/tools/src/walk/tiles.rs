//! Tiles within tiles: the whole product down to one instruction.
use super::Subject;
use super::emulated::Counted;
use super::narration::{Build, NumberFormat};
use kernel::{AxisId, CpuMapping, Fragment, GpuMapping, Mapping, Stmt, TileProgram};
use ptx_emulator::Class;
use report::walk::{Picture, Scene, TileBox};

/// Rows, columns and terms of the step's product, and how deep a loop goes at a time.
fn product(s: &Subject) -> Option<([i64; 3], [i64; 3])> {
    let program = s.program.as_ref()?;
    let (k, schedule) = (program.kernel(), program.schedule());
    let (rows, columns): (Vec<AxisId>, Vec<AxisId>) = match &schedule.mapping {
        Mapping::Gpu(g) => (g.rows.clone(), g.columns.clone()),
        Mapping::Cpu(c) => (c.rows.clone(), c.lanes.into_iter().collect()),
    };
    let over = k.body.iter().find_map(|st| match st {
        Stmt::Contract { over, .. } => Some(over.clone()),
        _ => None,
    })?;
    let extent = |a: &AxisId| s.top(&k.axes[*a as usize].extent).max(1);
    let tile = |a: &AxisId| schedule.tile(*a).map_or(extent(a), |t| t.min(extent(a)));
    let all = |list: &[AxisId], f: &dyn Fn(&AxisId) -> i64| list.iter().map(f).product::<i64>();
    let of = |f: &dyn Fn(&AxisId) -> i64| [all(&rows, f), all(&columns, f), all(&over, f)];
    Some((of(&extent), of(&tile)))
}

fn named(name: &str, v: [i64; 3]) -> TileBox {
    TileBox {
        name: name.into(),
        m: v[0],
        n: v[1],
        k: v[2],
    }
}

fn by(v: [i64; 3]) -> String {
    format!("{}x{}x{}", v[0], v[1], v[2])
}

/// The tiles of warps and tensor cores within a CTA's; the instruction.
fn matrix_tiles(
    g: &GpuMapping,
    f: Fragment,
    tile: [i64; 3],
    tiles: &mut Vec<TileBox>,
    b: &mut Build,
) -> String {
    let warp = [
        tile[0] / i64::from(g.warps[0].max(1)),
        tile[1] / i64::from(g.warps[1].max(1)),
        tile[2],
    ]
    .map(|v| v.max(1));
    tiles.push(named("a warp", warp));
    b.name(
        "warp",
        "tile of a warp",
        by(warp),
        "the CTA's tile over the schedule's warps",
    );
    let one = [f.m, f.n, f.k].map(i64::from);
    tiles.push(named("an instruction", one));
    b.name("instruction", "instruction", f.name(), SCHEDULE);
    // Warps of a warpgroup have a share of its rows each.
    let one = [one[0] / i64::from(f.warps()), one[1], one[2]];
    let each = (warp[0] as f64 / one[0] as f64).ceil()
        * (warp[1] as f64 / one[1] as f64).ceil()
        * (warp[2] as f64 / one[2] as f64).ceil();
    b.number(
        "each",
        "instructions of a warp in a round",
        (each, NumberFormat::Whole),
        format!(
            "ceil({}/{}) x ceil({}/{}) x ceil({}/{})",
            warp[0], one[0], warp[1], one[1], warp[2], one[2]
        ),
        "tiles",
    );
    b.beat(
        "warp",
        "Its warps divide it: {warp} each, with all sums in registers.",
        "One team member's share, all of it in the hand.",
    );
    b.beat("instruction", "A tensor core multiplies {instruction} in one instruction; a warp issues {each} of them for each piece of the loop.", "The press: one stroke, a whole sheet.");
    f.name()
}

/// The tile of a thread within a CTA's, and why no tensor core makes it.
fn thread_tiles(
    (s, program): (&Subject, &TileProgram),
    g: &GpuMapping,
    (whole, tile): ([i64; 3], [i64; 3]),
    tiles: &mut Vec<TileBox>,
    b: &mut Build,
) {
    let thread = {
        let spread = |axes: &[AxisId], n: i64| {
            axes.iter()
                .fold(n, |n, a| n / i64::from(g.spread(*a).count.max(1)))
        };
        [
            spread(&g.rows, tile[0]),
            spread(&g.columns, tile[1]),
            tile[2],
        ]
        .map(|v| v.max(1))
    };
    tiles.push(named("a thread", thread));
    b.name(
        "thread",
        "tile of a thread",
        by(thread),
        "the CTA's tile over the schedule's spread of threads",
    );
    b.beat("thread", "Each thread has {thread} of it, with its sums in registers, and multiplies and adds one pair at a time.", "Everybody works by hand: no press fits this piece.");
    let p = machine::calc::tensor_fit(
        s.machine,
        &machine::calc::Product {
            m: whole[0].max(0) as u64,
            n: whole[1].max(0) as u64,
            k: whole[2].max(0) as u64,
            dtype: program
                .kernel()
                .operands
                .first()
                .map_or(machine::NumType::F32, |o| o.dtype.into()),
        },
    );
    if let Some(r) = p.reasons.first() {
        b.name(
            "reason",
            "reason",
            r.trim_end_matches('.'),
            "calculator `tensorcore`",
        );
        b.beat("", "Why no tensor cores: {reason}.", "");
    }
}

/// What the emulator counted over one CTA.
fn instructions(counted: &Counted, b: &mut Build) {
    let n = counted.issued(Class::Matrix);
    let (n, what) = match n {
        0 => (counted.issued(Class::Float), "f32 instructions"),
        n => (n, "matrix instructions"),
    };
    b.number(
        "counted",
        what,
        (n as f64, NumberFormat::Count),
        "",
        "the emulator, over one CTA",
    );
    b.name("counted_what", "class", what, "the emulator");
    b.beat(
        "",
        "Counted over one CTA: {counted} {counted_what} of its warps.",
        "",
    );
}

/// The tile of a call of the micro-kernel within a task's; what is done at a time.
fn micro_kernel_tiles(
    c: &CpuMapping,
    tile: [i64; 3],
    tiles: &mut Vec<TileBox>,
    b: &mut Build,
) -> String {
    match c.micro {
        Some(m) => {
            let one = [i64::from(m.mr), i64::from(m.nr), tile[2]];
            tiles.push(named("a micro-kernel call", one));
            b.name(
                "micro",
                "tile of a micro-kernel call",
                by(one),
                "the schedule's micro-kernel",
            );
            b.beat("instruction", "A call of the micro-kernel makes {micro} of it with all sums in vector registers; one instruction multiplies and adds a whole vector.", "What fits in the hands at once.");
            format!("micro-kernel {}x{}", m.mr, m.nr)
        }
        None => "vectors along the lane axis".into(),
    }
}

/// The whole product and the tile of a worker's piece of it.
fn outer_tiles(
    (whole, tile): ([i64; 3], [i64; 3]),
    (title, piece): (&str, &str),
    said: (&'static str, &'static str),
    tiles: &mut Vec<TileBox>,
) -> Build {
    let mut b = Build::new("tiles", title);
    b.name(
        "whole",
        "the whole product",
        by(whole),
        "the tile program's axes",
    );
    b.name("cta", &format!("tile of {piece}"), by(tile), SCHEDULE);
    tiles.push(named("the whole product", whole));
    tiles.push(named(piece, tile));
    b.beat(
        "whole",
        "The product is {whole}: rows of the result, columns, and terms of each sum.",
        "The whole order.",
    );
    b.beat("cta", said.0, said.1);
    b
}

const SCHEDULE: &str = "the schedule";

pub(super) fn scene(s: &Subject, counted: &Result<Counted, String>) -> Option<Scene> {
    let (whole, tile) = product(s)?;
    let program = s.program.as_ref()?;
    let mut tiles = vec![];
    let (instruction, b) = match &program.schedule().mapping {
        Mapping::Gpu(g) => {
            let title = match g.fragment {
                Some(_) => "Tensor tiles",
                None => "Tiles in registers",
            };
            let said = (
                "A CTA makes a tile of it, {cta} at a time.",
                "One team's share.",
            );
            let mut b = outer_tiles((whole, tile), (title, "a CTA"), said, &mut tiles);
            let instruction = match g.fragment {
                Some(f) => matrix_tiles(g, f, tile, &mut tiles, &mut b),
                None => {
                    thread_tiles((s, program), g, (whole, tile), &mut tiles, &mut b);
                    "fma".into()
                }
            };
            if let Ok(c) = counted {
                instructions(c, &mut b);
            }
            (instruction, b)
        }
        Mapping::Cpu(c) => {
            let said = ("A task makes a tile of it: {cta}.", "One worker's share.");
            let words = ("Tiles in registers", "a task");
            let mut b = outer_tiles((whole, tile), words, said, &mut tiles);
            (micro_kernel_tiles(c, tile, &mut tiles, &mut b), b)
        }
    };
    Some(b.done(Picture::Tiles { tiles, instruction }))
}
