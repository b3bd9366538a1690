//! What a library launches for one call: kernels with schedules of the `vendor` Target, and their cost.

use crate::Constants;
use crate::constants::{ProductTable, RowTable};
use crate::kernels::{self, B, COLS, Function, K, M, N, ProductForm, ROWS, Reads, S};
use crate::vendor::vendor_with;
use kernel::{
    AxisTile, Factors, Family, Fragment, GpuMapping, Kernel, Mapping, Place, Schedule, Stmt,
    Swizzle, Target, TargetKind, TileProgram, work,
};
use layout::DType;
use machine::{
    Efficiencies, Machine, ProductCosts, TiledProduct, UnitClass, Work, calc, predict_seconds,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Mutex;

/// `batch` products of `m` x `k` by `k` x `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names are those of the sizes.
pub struct Product {
    pub batch: u64,
    pub m: u64,
    pub n: u64,
    pub k: u64,
    /// The left factor lies k x m.
    pub ta: bool,
    /// The right factor lies n x k.
    pub tb: bool,
    pub bias: bool,
    pub input: DType,
    pub acc: DType,
    pub output: DType,
    /// Whether matrix units may be used.
    pub units: bool,
    /// Elements of the left factor where windows over them overlap (a convolution); 0: it is dense.
    pub windows: u64,
    /// Whether the windows are of the kind that fewer multiplications do (3 x 3 in single steps).
    pub fewer: bool,
}

/// One call of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Products.
    Product(Product),
    /// An element-wise function over `rows` x `cols`.
    Elementwise {
        /// The function.
        f: Function,
        /// How a second input is read, if there is one.
        second: Option<Reads>,
        /// Rows.
        rows: u64,
        /// Columns.
        cols: u64,
        /// Type of elements.
        dtype: DType,
    },
    /// Softmax along rows.
    Softmax {
        /// Rows.
        rows: u64,
        /// Columns.
        cols: u64,
        /// Type of elements.
        dtype: DType,
    },
    /// Rows of packed weights, each read once, out of `footprint` bytes that are read in turn.
    Reading {
        /// Rows.
        rows: u64,
        /// Bytes of a row.
        bytes: u64,
        /// Bytes between two readings of one.
        footprint: u64,
        /// Bytes that an SM has on the way at a time, where kernels have fewer than their SM can.
        flight: Option<u64>,
    },
    /// Layer norm along rows.
    LayerNorm {
        /// Rows.
        rows: u64,
        /// Columns.
        cols: u64,
        /// Type of elements.
        dtype: DType,
    },
}

/// Schedules and their programs by form: sizes are symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    Product(ProductForm, (u32, u32), Option<Fragment2>),
    Elementwise(Function, Option<Reads>, DType),
    /// With the threads of a row, and whether it stays in registers.
    Softmax(DType, u32, bool),
    LayerNorm(DType, u32),
    /// With the bytes that an SM has on the way at a time, where that is a limit.
    Reading(Option<u64>),
}

type Fragment2 = (u32, u32, u32);

struct Program {
    program: TileProgram,
    /// CTAs that one SM holds.
    ctas: u64,
}

/// Work that was read off before, by machine: it depends on no constant that is fitted.
#[derive(Debug, Default)]
pub struct Walked(Mutex<HashMap<String, HashMap<Key, Work>>>);

/// A form with its sizes and what passes between two calls.
type Key = (Form, [u64; 6], u64);

/// Costs of calls on one machine: the machine, its vendor's Target, and what was made before.
pub struct Library<'a> {
    machine: Machine,
    target: Target,
    constants: &'a Constants,
    programs: RefCell<HashMap<Form, Option<Rc<Program>>>>,
    known: RefCell<HashMap<Op, Option<f64>>>,
    walked: &'a Walked,
    works: RefCell<HashMap<Key, Work>>,
    /// What its works are kept under.
    name: String,
}

impl Drop for Library<'_> {
    fn drop(&mut self) {
        if let Ok(mut all) = self.walked.0.lock() {
            all.insert(self.name.clone(), self.works.take());
        }
    }
}

impl<'a> Library<'a> {
    /// The library of `machine` with what `part` of the callers walked before; `None` for a CPU.
    pub fn new(
        machine: &Machine,
        constants: &'a Constants,
        walked: &'a Walked,
        part: usize,
    ) -> Option<Library<'a>> {
        let target = vendor_with(machine, constants)?;
        let mut machine = machine.clone();
        for l in machine.levels.iter_mut().filter(|l| l.name == "L2") {
            let held = l.capacity() * constants.get("l2_held");
            l.usable = Some(machine::Sourced::assumed(held));
        }
        let name = format!("{part} {} {}", constants.get("l2_held"), machine.name);
        let works = walked.0.lock().ok()?.remove(&name).unwrap_or_default();
        Some(Library {
            walked,
            works: works.into(),
            name,
            machine,
            target,
            constants,
            programs: RefCell::default(),
            known: RefCell::default(),
        })
    }

    /// The vendor's Target.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Predicted seconds on the device of one call, launches apart; `None` where no program was found.
    pub fn seconds(&self, op: Op) -> Option<f64> {
        if let Some(&s) = self.known.borrow().get(&op) {
            return s;
        }
        let s = self.fresh(op);
        self.known.borrow_mut().insert(op, s);
        s
    }

    fn fresh(&self, op: Op) -> Option<f64> {
        match op {
            Op::Product(p) => self.product(p),
            Op::Elementwise {
                f,
                second,
                rows,
                cols,
                dtype,
            } => {
                // Contiguous elements are one row to the library, unless rows share an input.
                let (r, c) = match second {
                    Some(Reads::Row) => (rows, cols),
                    _ => (1, rows.checked_mul(cols)?),
                };
                let form = Form::Elementwise(f, second, dtype);
                self.cost(form, Family::Map, 1.0, &[("r", r), ("c", c)])
            }
            Op::Softmax { rows, cols, dtype } => {
                // A warp has two short rows, one longer row, or a CTA goes through it several times.
                let t = &self.constants.tables.rows;
                let form = match cols {
                    _ if cols <= t.two => Form::Softmax(dtype, 16, true),
                    _ if cols <= t.one => Form::Softmax(dtype, 32, true),
                    _ => Form::Softmax(dtype, row_threads(cols, &self.machine, t), false),
                };
                self.cost(form, Family::Row, 1.0, &[("r", rows), ("c", cols)])
            }
            Op::Reading {
                rows,
                bytes,
                footprint,
                flight,
            } => self.cost_far(
                Form::Reading(flight),
                Family::Row,
                1.0,
                &[("r", rows), ("c", bytes)],
                footprint as f64,
            ),
            Op::LayerNorm { rows, cols, dtype } => {
                let form = Form::LayerNorm(dtype, self.constants.tables.rows.threads_norm);
                self.cost(form, Family::Row, 1.0, &[("r", rows), ("c", cols)])
            }
        }
    }

    /// The fastest of the library's tiles and parts, by prediction.
    fn product(&self, p: Product) -> Option<f64> {
        let gpu = self.target.gpu.as_ref()?;
        let ProductTable { few, addends, .. } = self.constants.tables.products;
        let fragment = gpu
            .fragments
            .iter()
            .find(|f| {
                let whole = f.factors == Factors::Whole;
                whole && p.units && f.input == p.input && f.acc == p.acc
            })
            .map(|f| (f.m, f.n, f.k));
        let mut best: Option<f64> = None;
        // Its batched f32 products have fewer kernels.
        let batched = match p.batch > 1 && fragment.is_none() && p.input == DType::F32 {
            true => crate::vendor::batched_tiles(&self.machine, self.constants),
            false => None,
        };
        for &tile in batched.as_ref().unwrap_or(&gpu.tiles) {
            let form = |parts| ProductForm {
                input: p.input,
                acc: p.acc,
                output: p.output,
                ta: p.ta,
                tb: p.tb,
                bias: p.bias,
                windows: p.windows > 0,
                parts,
            };
            let reach = self.reach(&p, tile, fragment);
            let run = |parts: u64| -> Option<f64> {
                let sizes = [
                    ("b", p.batch),
                    ("s", parts),
                    ("m", p.m),
                    ("n", p.n),
                    ("k", p.k.div_ceil(parts)),
                    ("e", p.windows),
                ];
                let form = Form::Product(form(parts > 1), tile, fragment);
                let t = self.cost(form, Family::Contract, reach, &sizes)?;
                if parts == 1 {
                    return Some(t);
                }
                // A second kernel adds the parts up.
                let cells = p.batch.checked_mul(p.m)?.checked_mul(p.n)?;
                let sum = Op::Elementwise {
                    f: Function::Add,
                    second: Some(Reads::All),
                    rows: cells.checked_mul(parts)?.div_ceil(3),
                    cols: 1,
                    dtype: p.acc,
                };
                Some(t + self.seconds(sum)? + self.machine.costs.step_s.value)
            };
            let mut consider = |t: Option<f64>| {
                if let Some(t) = t
                    && best.is_none_or(|b| t < b)
                {
                    best = Some(t);
                }
            };
            consider(run(1));
            let pieces = |n: u64, t: u32| n.div_ceil(u64::from(t));
            let tasks = p
                .batch
                .saturating_mul(pieces(p.m, tile.0))
                .saturating_mul(pieces(p.n, tile.1));
            let few = few.saturating_mul(self.machine.worker_count() as u64);
            if p.batch == 1 && tasks < few {
                for &parts in &gpu.splits {
                    if p.k / u64::from(parts) >= addends {
                        consider(run(parts.into()));
                    }
                }
            }
        }
        best
    }

    /// What the tiles of products cost.
    fn products(&self) -> Option<&ProductCosts> {
        self.target.efficiencies.products.as_ref()
    }

    /// Share of the units' rate that is left to a product under tiles.
    fn reach(&self, p: &Product, tile: (u32, u32), fragment: Option<Fragment2>) -> f64 {
        let row = p.k as f64 * f64::from(p.input.bits()) / 8.0;
        let tiled = TiledProduct {
            rows: tile.0.into(),
            columns: tile.1.into(),
            threads: product_threads(tile, &self.constants.tables.products),
            matrix: fragment.is_some(),
            along: (!p.ta && p.tb).then_some(row),
            windows: p.windows > 0,
            fewer: p.fewer,
        };
        self.products().map_or(1.0, |c| c.share(&tiled))
    }

    /// Predicted seconds of a form at sizes; `reach` is what the schedule takes off the units' share.
    fn cost(&self, form: Form, family: Family, reach: f64, sizes: &[(&str, u64)]) -> Option<f64> {
        self.cost_far(form, family, reach, sizes, 0.0)
    }

    /// [`Library::cost`] where at least `between` bytes pass between two calls.
    fn cost_far(
        &self,
        form: Form,
        family: Family,
        reach: f64,
        sizes: &[(&str, u64)],
        between: f64,
    ) -> Option<f64> {
        let program = self.program(form)?;
        let mut at = [1; 6];
        at.iter_mut().zip(sizes).for_each(|(a, s)| *a = s.1);
        let key = (form, at, between as u64);
        let before = self.works.borrow().get(&key).cloned();
        let mut w = match before {
            Some(w) => w,
            None => {
                let w = self.walk(&program, sizes, between)?;
                self.works.borrow_mut().insert(key, w.clone());
                w
            }
        };
        w.ctas_per_worker = program.ctas;
        w.steps = 0;
        let workers = self.machine.worker_count();
        let slots = (workers as u64).saturating_mul(program.ctas).max(1);
        let rounds = w.tasks.div_ceil(slots);
        let eff = self.target.efficiencies.family(match family {
            Family::Contract => "contract",
            Family::Map => "map",
            _ => "row",
        });
        let scaled: Efficiencies;
        let (eff, start) = match family {
            Family::Contract => {
                let share = |unit, class| eff.unit(unit, class) * reach;
                let (fma, tensor) = (
                    share("fma", UnitClass::Fma),
                    share("tensor", UnitClass::Tensor),
                );
                scaled = eff
                    .clone()
                    .with_unit("fma", fma)
                    .with_unit("tensor", tensor);
                let round = self.products().map_or(0.0, |c| c.round_s);
                (&scaled, rounds as f64 * round)
            }
            // Streams go on from one CTA to the next: there are no rounds.
            Family::Map => {
                w.waves = 1;
                (eff, 0.0)
            }
            _ => {
                w.waves = 1;
                (eff, 0.0)
            }
        };
        let busy = predict_seconds(&self.machine, eff, &w, workers) + start;
        // Latencies of one round of CTAs that the next round's do not hide.
        let first = self.machine.memory().latency_s.value;
        Some(match form {
            // Half hidden: some CTAs of an SM wait while others load.
            Form::Softmax(_, threads, false) => {
                let loads = (rounds * self.constants.tables.rows.passes) as f64
                    * row_loads(at[1], threads) as f64;
                busy.hypot(loads * first * self.constants.get("row_latency"))
            }
            Form::LayerNorm(..) => {
                busy.max(rounds as f64 * self.constants.get("layernorm_us") * 1e-6)
            }
            // What SMs have on the way at a time, there and back.
            Form::Reading(Some(flight)) => {
                let bytes = at[0] as f64 * at[1] as f64;
                busy.max(bytes / (flight as f64 * workers as f64) * first)
            }
            _ => busy,
        })
    }

    /// Work of a program at sizes.
    fn walk(&self, program: &Program, sizes: &[(&str, u64)], between: f64) -> Option<Work> {
        let lookup = |s: &str| {
            let found = sizes.iter().find(|x| x.0 == s)?;
            i64::try_from(found.1).ok()
        };
        // The same call was made before: what fits into a cache is found there.
        let operands = &program.program.kernel().operands;
        let bytes = operands.iter().map(|o| {
            let n = o.elements.eval(&lookup).unwrap_or(0).max(0) as f64;
            n * f64::from(o.dtype.bits()) / 8.0
        });
        let footprint: f64 = bytes.sum::<f64>().max(between);
        let far = |_: usize| footprint;
        let (w, _) = work::statements(&program.program, &self.machine, &lookup, &far)?;
        Some(w)
    }

    fn program(&self, form: Form) -> Option<Rc<Program>> {
        if let Some(p) = self.programs.borrow().get(&form) {
            return p.clone();
        }
        let (kernel, schedule) = build(form, &self.constants.tables.products);
        let made = TileProgram::new(kernel, schedule).ok().map(|program| {
            let ctas = self.held(&program);
            Rc::new(Program { program, ctas })
        });
        self.programs.borrow_mut().insert(form, made.clone());
        made
    }

    /// CTAs of a program that one SM holds.
    fn held(&self, p: &TileProgram) -> u64 {
        let Mapping::Gpu(g) = &p.schedule().mapping else {
            return 1;
        };
        let block = calc::Block {
            threads: g.threads.into(),
            registers: g.registers.into(),
            shared: p.shared_bytes(TargetKind::Ptx),
        };
        match calc::occupancy(&self.machine.limits, block) {
            Some(o) => o.ctas.max(1),
            // Limits that nobody gave: half of 2048 threads.
            None => (1024 / u64::from(g.threads).max(1)).clamp(1, 16),
        }
    }
}

/// Threads that PyTorch gives a row of `cols` elements in vectors of four: the power of two from half the
/// vectors on, and a most.
fn row_threads(cols: u64, m: &Machine, t: &RowTable) -> u32 {
    if m.limits.warp.is_some_and(|w| w.value > 32) {
        return t.threads_wide;
    }
    let half = (cols / 8).clamp(32, t.threads.into()) as u32;
    half.next_power_of_two()
}

/// Loads that wait for each other when `threads` go through `cols` elements: vectors of four as long as
/// all have one, single ones for the rest.
fn row_loads(cols: u64, threads: u32) -> u64 {
    let threads = u64::from(threads);
    cols / (4 * threads) + (cols % (4 * threads)).div_ceil(threads)
}

/// Threads of a product's CTA.
fn product_threads(tile: (u32, u32), t: &ProductTable) -> u32 {
    (tile.0 * tile.1 / t.cells).clamp(t.threads.0, t.threads.1)
}

/// Kernel and schedule of a form.
fn build(form: Form, t: &ProductTable) -> (Kernel, Schedule) {
    match form {
        Form::Product(f, tile, fragment) => product(f, tile, fragment, t),
        Form::Elementwise(f, second, dtype) => {
            let k = kernels::elementwise(f, second, dtype);
            let threads = 128;
            // Four elements of 4 bytes to a thread.
            let cut = i64::from(threads) * 4;
            let grid = [(ROWS, 1), (COLS, cut)];
            let s = schedule(&k, &grid, &[], threads, 32, |_| Place::Register);
            (k, s)
        }
        Form::Softmax(dtype, threads, whole) => {
            let k = kernels::softmax(dtype, whole);
            let (rows, cta) = match whole {
                true => (128 / i64::from(threads), 128),
                false => (1, threads),
            };
            let s = schedule(&k, &[(ROWS, rows)], &[], cta, 32, |t| {
                row_place(&k, t, whole)
            });
            (k, s)
        }
        Form::Reading(_) => {
            let k = kernels::reading();
            let s = schedule(&k, &[(ROWS, 4)], &[], 128, 32, |t| row_place(&k, t, false));
            (k, s)
        }
        Form::LayerNorm(dtype, threads) => {
            let k = kernels::layernorm(dtype);
            let s = schedule(&k, &[(ROWS, 1)], &[], threads, 32, |t| {
                row_place(&k, t, false)
            });
            (k, s)
        }
    }
}

/// Where a row kernel has its tiles: what it loads stays in memory when it goes through it again, maps
/// of whole rows are made where they are read.
fn row_place(k: &Kernel, t: u16, whole: bool) -> Place {
    let loaded = |s: &Stmt| matches!(s, Stmt::Load { dst, .. } if *dst == t);
    if k.body.iter().any(loaded) && !whole {
        return Place::InPlace;
    }
    let readers = k.body.iter().filter(|s| s.reads().contains(&t)).count();
    if whole && readers > 1 {
        return Place::Register;
    }
    if kernel::recomputable(k, t)
        && k.tiles[t as usize].axes.contains(&COLS)
        && !k.body.iter().any(loaded)
    {
        return Place::Recompute;
    }
    Place::Register
}

fn schedule(
    k: &Kernel,
    grid: &[(u16, i64)],
    loops: &[(u16, i64)],
    threads: u32,
    registers: u32,
    place: impl Fn(u16) -> Place,
) -> Schedule {
    let cut = |list: &[(u16, i64)]| -> Vec<AxisTile> {
        let one = |&(axis, tile): &(u16, i64)| AxisTile { axis, tile };
        list.iter().map(one).collect()
    };
    Schedule {
        grid: cut(grid),
        loops: cut(loops),
        places: (0..k.tiles.len() as u16).map(place).collect(),
        chunk: 1,
        raster: 1,
        mapping: Mapping::Gpu(GpuMapping {
            threads,
            warps: [(threads / 32).max(1), 1],
            copiers: 0,
            walkers: 0,
            cluster: 1,
            combined: kernel::Combined::ByLast,
            store_bytes: 0,
            rows: vec![],
            columns: vec![],
            fragment: None,
            load_bytes: 16,
            unroll: 1,
            registers,
            spread: vec![],
            code: None,
            constants: vec![],
            triggers: false,
        }),
    }
}

fn product(
    f: ProductForm,
    tile: (u32, u32),
    fragment: Option<Fragment2>,
    t: &ProductTable,
) -> (Kernel, Schedule) {
    let k = kernels::product(f);
    let threads = product_threads(tile, t);
    let depth = match fragment {
        Some(_) => t.depth_matrix,
        None => t.depth,
    };
    let factor = |t: u16| {
        let read = |s: &Stmt| matches!(s, Stmt::Contract { a, b, .. } if *a == t || *b == t);
        k.body.iter().any(read)
    };
    let place = |t: u16| match factor(t) {
        true => Place::Shared {
            swizzle: Swizzle::default(),
            stages: if fragment.is_some() { 2 } else { 1 },
        },
        false => Place::Register,
    };
    let each = tile.0 * tile.1 / threads;
    let grid = [(B, 1), (S, 1), (M, tile.0.into()), (N, tile.1.into())];
    let mut s = schedule(
        &k,
        &grid,
        &[(K, depth)],
        threads,
        (each + 56).min(255),
        place,
    );
    if let Mapping::Gpu(g) = &mut s.mapping {
        let warps = threads / 32;
        let along = match tile.0 >= tile.1 {
            true => 1 << warps.ilog2().div_ceil(2),
            false => 1 << (warps.ilog2() / 2),
        };
        g.warps = [along, warps / along];
        g.rows = vec![M];
        g.columns = vec![N];
        g.fragment = fragment.map(|(m, n, k)| Fragment {
            m,
            n,
            k,
            input: f.input,
            acc: f.acc,
            factors: Factors::Whole,
            right: None,
        });
    }
    (k, s)
}
