//! Tiles within tiles: the whole product down to one instruction.
use super::Subject;
use super::emulated::Counted;
use super::narration::{Build, NumberFormat};
use kernel::{AxisId, Mapping, Stmt};
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

pub(super) fn scene(s: &Subject, counted: &Result<Counted, String>) -> Option<Scene> {
    let (whole, tile) = product(s)?;
    let program = s.program.as_ref()?;
    let named = |name: &str, v: [i64; 3]| TileBox {
        name: name.into(),
        m: v[0],
        n: v[1],
        k: v[2],
    };
    let by = |v: [i64; 3]| format!("{}x{}x{}", v[0], v[1], v[2]);
    let mut tiles = vec![named("the whole product", whole)];
    let here = "the tile program's axes";
    let schedule = "the schedule";
    let instruction;
    let mut b;
    match &program.schedule().mapping {
        Mapping::Gpu(g) => {
            b = Build::new(
                "tiles",
                if g.fragment.is_some() {
                    "Tensor tiles"
                } else {
                    "Tiles in registers"
                },
            );
            b.name("whole", "the whole product", by(whole), here);
            b.name("cta", "tile of a CTA", by(tile), schedule);
            tiles.push(named("a CTA", tile));
            b.beat(
                "whole",
                "The product is {whole}: rows of the result, columns, and terms of each sum.",
                "The whole order.",
            );
            b.beat(
                "cta",
                "A CTA makes a tile of it, {cta} at a time.",
                "One team's share.",
            );
            let warp = [
                tile[0] / i64::from(g.warps[0].max(1)),
                tile[1] / i64::from(g.warps[1].max(1)),
                tile[2],
            ]
            .map(|v| v.max(1));
            if let Some(f) = g.fragment {
                tiles.push(named("a warp", warp));
                b.name(
                    "warp",
                    "tile of a warp",
                    by(warp),
                    "the CTA's tile over the schedule's warps",
                );
                let one = [f.m, f.n, f.k].map(i64::from);
                tiles.push(named("an instruction", one));
                instruction = format!("mma.m{}n{}k{} {} -> {}", f.m, f.n, f.k, f.input, f.acc);
                b.name("instruction", "instruction", &instruction, schedule);
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
            } else {
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
                instruction = "fma".into();
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
            if let Ok(c) = counted {
                let n = c.issued(Class::Matrix);
                let (n, what) = match n {
                    0 => (c.issued(Class::Float), "f32 instructions"),
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
        }
        Mapping::Cpu(c) => {
            b = Build::new("tiles", "Tiles in registers");
            b.name("whole", "the whole product", by(whole), here);
            b.name("cta", "tile of a task", by(tile), schedule);
            tiles.push(named("a task", tile));
            b.beat(
                "whole",
                "The product is {whole}: rows of the result, columns, and terms of each sum.",
                "The whole order.",
            );
            b.beat(
                "cta",
                "A task makes a tile of it: {cta}.",
                "One worker's share.",
            );
            instruction = match c.micro {
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
            };
        }
    }
    Some(b.done(Picture::Tiles { tiles, instruction }))
}
