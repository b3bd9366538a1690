//! The interpreter of kernels and tile programs, statement by statement on plain arrays.
//!
//! Checked on the way: every access stays in its buffer; every tile that is read was defined for
//! exactly the coordinates that are current (a tile left over from another loop step, or from
//! another task, is an error); no two tasks touch one element when one of them writes it.
mod access;
mod memory;
mod stmt;

pub use memory::Memory;

use crate::RefError;
use crate::error::{R, Why};
use access::{Address, Found, Lookup};
use expr::Scalar;
use kernel::{AxisTile, Kernel, Node, OperandId, Stmt, TileProgram};

/// Largest number of elements of one tile: beyond it a schedule is a mistake.
const MAX_TILE: i64 = 1 << 30;

/// A tile's elements with the coordinates that they stand for.
pub(crate) struct Value {
    /// First coordinate and number of positions per axis of the tile.
    spans: Vec<(i64, i64)>,
    /// Row-major elements.
    data: Vec<Scalar>,
}

/// Who touched an element.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Nobody,
    /// One task.
    Task(u32),
    /// This one and others.
    Several(u32),
}

/// A task under way.
pub(crate) struct Machine<'a> {
    kernel: &'a Kernel,
    lookup: Lookup<'a>,
    memory: &'a mut Memory,
    addresses: Vec<Address>,
    extents: Vec<i64>,
    /// Current span per axis.
    spans: Vec<(i64, i64)>,
    tiles: Vec<Option<Value>>,
    writers: Vec<Vec<By>>,
    /// Readers per element, only of buffers that are written as well.
    readers: Vec<Vec<By>>,
    task: u32,
}

/// Evaluates `kernel` on whole axes, ordered ones position by position: one task, no schedule.
pub fn run_kernel(
    kernel: &Kernel,
    symbols: &dyn Fn(&str) -> Option<i64>,
    memory: &mut Memory,
) -> Result<(), RefError> {
    run_body(kernel, &[], &kernel.nodes(), symbols, memory, 0)
}

/// Evaluates `program` task by task. `seed` 0 takes tasks in row-major order, any other a
/// permutation of its own: results must not depend on it.
pub fn run_tiles(
    program: &TileProgram,
    symbols: &dyn Fn(&str) -> Option<i64>,
    memory: &mut Memory,
    seed: u64,
) -> Result<(), RefError> {
    let grid = &program.schedule().grid;
    run_body(
        program.kernel(),
        grid,
        program.body(),
        symbols,
        memory,
        seed,
    )
}

/// Evaluates `body` for every point of `grid`: what [`run_tiles`] does, for bodies that no verifier
/// has seen.
pub fn run_body(
    kernel: &Kernel,
    grid: &[AxisTile],
    body: &[Node],
    symbols: &dyn Fn(&str) -> Option<i64>,
    memory: &mut Memory,
    seed: u64,
) -> Result<(), RefError> {
    let wrong = |place: &str, w: Why| RefError::Kernel {
        kernel: kernel.name.clone(),
        place: place.into(),
        why: w.0,
    };
    let roles = memory.check(kernel)?;
    let extents = kernel
        .axes
        .iter()
        .map(|a| access::number(&a.extent, symbols))
        .collect::<R<Vec<_>>>()
        .map_err(|w| wrong("axes", w))?;
    let mut addresses = Vec::new();
    for o in &kernel.operands {
        let a = Address::new(&o.access, symbols);
        let a = a.map_err(|w| wrong(&format!("operand '{}'", o.name), w))?;
        let known =
            a.axes().all(|x| x < extents.len()) && a.by().all(|b| usize::from(b) < addresses.len());
        if !known {
            let w = Why("its access names an axis or operand that does not exist".into());
            return Err(wrong(&format!("operand '{}'", o.name), w));
        }
        addresses.push(a);
    }
    let marks = |wanted: &dyn Fn(&[bool; 2]) -> bool| -> Vec<Vec<By>> {
        (0..memory.len())
            .map(|b| {
                let t = memory.elements(b);
                vec![By::Nobody; if wanted(&roles[b]) { t } else { 0 }]
            })
            .collect()
    };
    let (writers, readers) = (marks(&|r| r[1]), marks(&|r| r[0] && r[1]));
    let counts = pieces(grid, &extents).map_err(|w| wrong("grid", w))?;
    let total = counts
        .iter()
        .try_fold(1u32, |a, n| a.checked_mul(u32::try_from(*n).ok()?))
        .ok_or_else(|| wrong("grid", "it has too many tasks".into()))?;
    let mut m = Machine {
        kernel,
        lookup: symbols,
        memory,
        addresses,
        spans: extents.iter().map(|n| (0, *n)).collect(),
        extents,
        tiles: Vec::new(),
        writers,
        readers,
        task: 0,
    };
    for task in order(total, seed) {
        m.task = task;
        let mut rest = i64::from(task);
        for (cut, n) in grid.iter().zip(&counts).rev() {
            m.cut(cut, rest % n);
            rest /= n;
        }
        // Nothing of another task's tiles can be seen.
        m.tiles = kernel.tiles.iter().map(|_| None).collect();
        m.nodes(body)?;
    }
    Ok(())
}

/// Number of pieces per cut axis.
fn pieces(cuts: &[AxisTile], extents: &[i64]) -> R<Vec<i64>> {
    cuts.iter()
        .map(|c| match extents.get(usize::from(c.axis)) {
            Some(n) if c.tile > 0 => Ok((*n).max(0).div_euclid(c.tile) + (n % c.tile != 0) as i64),
            _ => Err(format!("axis {} cannot be cut into pieces of {}", c.axis, c.tile).into()),
        })
        .collect()
}

/// Tasks in the order of `seed`.
fn order(n: u32, seed: u64) -> Vec<u32> {
    let mut tasks: Vec<u32> = (0..n).collect();
    let mut state = seed;
    if seed != 0 {
        for i in (1..tasks.len()).rev() {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            tasks.swap(i, ((z ^ (z >> 31)) % (i as u64 + 1)) as usize);
        }
    }
    tasks
}

impl Machine<'_> {
    /// Makes piece `i` of a cut axis current.
    fn cut(&mut self, c: &AxisTile, i: i64) {
        let axis = usize::from(c.axis);
        let start = i * c.tile;
        self.spans[axis] = (start, c.tile.min(self.extents[axis] - start));
    }

    fn wrong(&self, place: String, w: Why) -> RefError {
        RefError::Kernel {
            kernel: self.kernel.name.clone(),
            place,
            why: w.0,
        }
    }

    fn nodes(&mut self, body: &[Node]) -> Result<(), RefError> {
        for node in body {
            match node {
                Node::Loop { axis, seen, body } => {
                    let wrong = |m: &Self, w| m.wrong("a loop".into(), w);
                    pieces(std::slice::from_ref(axis), &self.extents)
                        .map_err(|w| wrong(self, w))?;
                    let extent = self.extents[usize::from(axis.axis)];
                    let span = |a: kernel::AxisId| {
                        let (first, n) = self.spans[usize::from(a)];
                        (first, first + n - 1)
                    };
                    let range = seen.range(extent, self.lookup, &span).ok_or_else(|| {
                        wrong(self, "the positions that are seen have no value".into())
                    })?;
                    let (first, n) = seen.pieces(axis.tile, range);
                    let whole = self.spans[usize::from(axis.axis)];
                    for i in first..first + n {
                        self.cut(axis, i);
                        self.nodes(body)?;
                    }
                    self.spans[usize::from(axis.axis)] = whole;
                }
                Node::Stmt(s) => self.stmt(s)?,
            }
        }
        Ok(())
    }

    fn stmt(&mut self, s: &Stmt) -> Result<(), RefError> {
        match s {
            Stmt::Load { dst, operand } => self.load(*dst, *operand),
            Stmt::Store { operand, src } => self.store(*operand, *src),
            _ => {
                let place = stmt::describe(self.kernel, s);
                self.compute(s).map_err(|w| self.wrong(place, w))
            }
        }
    }

    /// Buffer and element of `operand` at the coordinates `at`; `None` outside its bounds.
    fn find(&mut self, operand: OperandId, at: &[i64]) -> Result<Option<(usize, usize)>, RefError> {
        let o = usize::from(operand);
        // An indexing operand may be gathered itself; operands refer to earlier ones only.
        let by: Vec<OperandId> = self.addresses[o].by().collect();
        let mut indices = Vec::with_capacity(by.len());
        let bounded = self.addresses[o].find(at, &mut |_| Ok(0));
        if !matches!(bounded, Ok(Found::Outside)) {
            for b in by {
                indices.push((b, self.read(b, at)?.as_i64()));
            }
        }
        let mut given = indices.into_iter();
        let found = self.addresses[o].find(at, &mut |_| {
            given
                .next()
                .map(|i| i.1)
                .ok_or_else(|| "an index is missing".into())
        });
        let name = &self.kernel.operands[o].name;
        match found {
            Err(w) => {
                let place = format!("operand '{name}' at {}", access::place(self.kernel, at));
                Err(self.wrong(place, w))
            }
            Ok(Found::Outside) => Ok(None),
            Ok(Found::Element(e)) => {
                let b = self.memory.buffer(operand);
                let n = self.memory.elements(b);
                match usize::try_from(e) {
                    Ok(e) if e < n => Ok(Some((b, e))),
                    _ => Err(RefError::OutOfBuffer {
                        kernel: self.kernel.name.clone(),
                        operand: name.clone(),
                        coordinates: access::place(self.kernel, at),
                        element: e,
                        elements: n,
                    }),
                }
            }
        }
    }

    fn race(&self, operand: OperandId, element: usize, other: By) -> RefError {
        RefError::Race {
            kernel: self.kernel.name.clone(),
            operand: self.kernel.operands[usize::from(operand)].name.clone(),
            element,
            first: match other {
                By::Task(t) | By::Several(t) => t as usize,
                By::Nobody => self.task as usize,
            },
            second: self.task as usize,
        }
    }

    /// The element of `operand` at `at`.
    fn read(&mut self, operand: OperandId, at: &[i64]) -> Result<Scalar, RefError> {
        let outside = self.addresses[usize::from(operand)].outside;
        let d = self.kernel.operands[usize::from(operand)].dtype;
        let Some((b, e)) = self.find(operand, at)? else {
            return Ok(Scalar::Float(outside).of(d));
        };
        if let Some(w) = self.writers[b].get(e).copied()
            && w != By::Nobody
            && w != By::Task(self.task)
        {
            return Err(self.race(operand, e, w));
        }
        if let Some(r) = self.readers[b].get_mut(e) {
            *r = match *r {
                By::Nobody => By::Task(self.task),
                By::Task(t) if t == self.task => By::Task(t),
                By::Task(t) | By::Several(t) => By::Several(t),
            };
        }
        Ok(self
            .memory
            .at(b)
            .map_or(Scalar::Int(0), |t| crate::graph::scalars::get(t, e)))
    }

    /// Current coordinates with those along `axes` replaced by a position of a tile.
    fn locate(&self, at: &mut [i64], axes: &[kernel::AxisId], position: &[usize]) {
        for (a, p) in axes.iter().zip(position) {
            at[usize::from(*a)] = self.spans[usize::from(*a)].0 + *p as i64;
        }
    }

    /// The access may depend on no axis that the tile lacks, unless that has one position.
    fn covers(&self, operand: OperandId, axes: &[kernel::AxisId]) -> R<()> {
        let o = &self.addresses[usize::from(operand)];
        let lost = o
            .axes()
            .find(|a| self.extents[*a] > 1 && !axes.iter().any(|x| usize::from(*x) == *a));
        match lost {
            Some(a) => Err(format!(
                "operand '{}' depends on axis '{}', which the tile lacks",
                self.kernel.operands[usize::from(operand)].name,
                self.kernel.axes[a].name
            )
            .into()),
            None => Ok(()),
        }
    }

    fn load(&mut self, dst: kernel::TileId, operand: OperandId) -> Result<(), RefError> {
        let stmt = Stmt::Load { dst, operand };
        let place = stmt::describe(self.kernel, &stmt);
        let prepared = self.transfer(operand, dst);
        let (axes, shape) = prepared.map_err(|w| self.wrong(place, w))?;
        let n: usize = shape.iter().product();
        let mut data = Vec::with_capacity(n);
        let mut position = vec![0usize; shape.len()];
        let mut at: Vec<i64> = self.spans.iter().map(|s| s.0).collect();
        for _ in 0..n {
            self.locate(&mut at, &axes, &position);
            data.push(self.read(operand, &at)?);
            crate::graph::scalars::next(&mut position, &shape);
        }
        self.define(dst, data);
        Ok(())
    }

    fn store(&mut self, operand: OperandId, src: kernel::TileId) -> Result<(), RefError> {
        let stmt = Stmt::Store { operand, src };
        let place = stmt::describe(self.kernel, &stmt);
        let prepared = self
            .transfer(operand, src)
            .and_then(|(a, s)| Ok((a, s, self.value(src)?.data.clone())));
        let (axes, shape, data) = prepared.map_err(|w| self.wrong(place, w))?;
        let mut position = vec![0usize; shape.len()];
        let mut at: Vec<i64> = self.spans.iter().map(|s| s.0).collect();
        for v in data {
            self.locate(&mut at, &axes, &position);
            if let Some((b, e)) = self.find(operand, &at)? {
                for marks in [&self.writers[b], &self.readers[b]] {
                    let w = marks.get(e).copied().unwrap_or(By::Nobody);
                    if w != By::Nobody && w != By::Task(self.task) {
                        return Err(self.race(operand, e, w));
                    }
                }
                if let Some(w) = self.writers[b].get_mut(e) {
                    *w = By::Task(self.task);
                }
                if let Some(t) = self.memory.at(b) {
                    crate::graph::scalars::set(t, e, v);
                }
            }
            crate::graph::scalars::next(&mut position, &shape);
        }
        Ok(())
    }

    /// Axes and shape of a transfer between `operand` and `tile`, which must fit each other.
    fn transfer(
        &self,
        operand: OperandId,
        tile: kernel::TileId,
    ) -> R<(Vec<kernel::AxisId>, Vec<usize>)> {
        let t = self.tile(tile)?;
        let o = self
            .kernel
            .operands
            .get(usize::from(operand))
            .ok_or("the operand does not exist")?;
        if o.dtype != t.dtype {
            return Err(format!(
                "tile '{}' holds {}, operand '{}' {}",
                t.name, t.dtype, o.name, o.dtype
            )
            .into());
        }
        self.covers(operand, &t.axes)?;
        for b in self.addresses[usize::from(operand)].by() {
            self.covers(b, &t.axes)?;
        }
        Ok((t.axes.clone(), self.shape(&t.axes)?))
    }
}
