//! Folds: the short ways of known monoids, and the general one.
use super::super::fold::Ints;
use super::super::vm::{self, CH};
use super::super::{Arg, CFold, Flat, Lift, Op, Simple};
use super::{Compiler, round};
use expr::{Binary, Expr, ExprBuilder, Inst, Monoid};
use kernel::Rescale;
use layout::DType;

impl Compiler<'_> {
    pub(super) fn fold(
        &mut self,
        m: &Monoid,
        state: &[u16],
        args: &[u16],
        over: &[u16],
        rescale: Option<&Rescale>,
        out: &mut Vec<Op>,
    ) -> Result<(), String> {
        let state: Vec<usize> = state.iter().map(|&t| t as usize).collect();
        let args: Vec<usize> = args.iter().map(|&t| t as usize).collect();
        let over: Vec<usize> = over.iter().map(|&a| a as usize).collect();
        // What is still zero stays zero: nothing to rescale where the fold is done in one piece.
        let rescale = rescale.filter(|r| {
            self.depth > 0
                || !r
                    .tiles
                    .iter()
                    .all(|&t| super::nest::zeroed(out, t as usize).is_some())
        });
        let mut old = Vec::new();
        let state_axes: Vec<u16> = state
            .first()
            .map(|&t| self.out.tiles[t].axes.iter().map(|&a| a as u16).collect())
            .unwrap_or_default();
        if rescale.is_some() {
            for &t in &state {
                let d = self.out.tiles[t].dtype;
                let axes: Vec<u16> = self.out.tiles[t].axes.iter().map(|&a| a as u16).collect();
                let id = self.tile(d, &axes, true)?;
                let copy = self.map(id, &Expr::identity(d), vec![t])?;
                out.push(Op::Map(Box::new(copy)));
                old.push(id);
            }
        }
        let f = self.plain_fold(m, &state, args, over)?;
        out.push(Op::Fold(Box::new(f)));
        let Some(r) = rescale else { return Ok(()) };
        let types = r.factor.output_types().map_err(|x| x.to_string())?;
        let d = *types.first().ok_or("a rescaling factor has no result")?;
        let factor = self.tile(d, &state_axes, true)?;
        old.extend(&state);
        let fm = self.map(factor, &r.factor, old)?;
        out.push(Op::Map(Box::new(fm)));
        for &t in &r.tiles {
            let t = t as usize;
            let own = self.out.tiles[t].dtype;
            let mut e = ExprBuilder::new();
            let x = e.input(0, own);
            let y = e.input(1, d);
            let y = if own == d { y } else { e.cast(y, own) };
            let z = e.mul(x, y);
            let e = e.finish(&[z]);
            let map = self.map(t, &e, vec![t, factor])?;
            out.push(Op::Map(Box::new(map)));
        }
        Ok(())
    }

    pub(super) fn plain_fold(
        &mut self,
        m: &Monoid,
        state: &[usize],
        args: Vec<usize>,
        over: Vec<usize>,
    ) -> Result<CFold, String> {
        let dtypes: Vec<DType> = state.iter().map(|&t| self.out.tiles[t].dtype).collect();
        let n = dtypes.len();
        if n == 0 || m.state_len() != n || 2 * n > vm::MAX_ARGS {
            return Err(format!(
                "reduction '{}' has {} state scalars for {n} tiles",
                m.name,
                m.state_len()
            ));
        }
        let lift_types = m.lift.output_types().map_err(|x| x.to_string())?;
        let combine_types = m.combine.output_types().map_err(|x| x.to_string())?;
        if lift_types != dtypes || combine_types != dtypes {
            return Err(format!(
                "reduction '{}' has states of {lift_types:?} for tiles of {dtypes:?}",
                m.name
            ));
        }
        self.types(&m.lift, &args)?;
        let kept: Vec<usize> = self.out.tiles[state[0]].axes.clone();
        let widest = args.iter().max_by_key(|&&t| self.out.tiles[t].axes.len());
        let axes = widest
            .map(|&t| self.out.tiles[t].axes.clone())
            .unwrap_or_default();
        let lane = self.lane(&axes).or_else(|| self.lane(&kept));
        let horizontal = lane.is_some_and(|l| over.contains(&l)) || lane.is_none();
        let has = |t: usize| lane.is_some_and(|l| self.out.tiles[t].axes.contains(&l));
        let lanes: Vec<bool> = args.iter().map(|&t| has(t)).collect();
        let index_lane = if horizontal { 1 } else { 0 };
        let lift = vm::compile_in(&m.lift, &lanes, index_lane, self.kernels, self.params)?;
        let combine = vm::compile_in(&m.combine, &vec![true; 2 * n], 0, self.kernels, self.params)?;
        if combine.outputs() != n {
            return Err(format!(
                "reduction '{}' combines into {} scalars, not {n}",
                m.name,
                combine.outputs()
            ));
        }
        let simple = self.simple(m, &dtypes, &args, &lanes, &over, horizontal, lift.identity);
        let arg_types: Vec<DType> = args.iter().map(|&t| self.out.tiles[t].dtype).collect();
        let arg = Arg::of(m, &dtypes, &arg_types);
        let ints = Ints::of(m, &dtypes);
        let combine_at = round(lift.bytes);
        let rows = combine_at + round(combine.bytes);
        self.area = self.area.max(rows + 2 * n * CH * 8);
        let mut flat = None;
        if n == 1 && horizontal && lift.index == 0 && !args.is_empty() {
            let program = vm::compile(
                &m.lift,
                &vec![true; args.len()],
                None,
                self.kernels,
                self.params,
            )?;
            let at = rows + 2 * n * CH * 8;
            let f = Flat {
                at,
                rows: at + round(program.bytes),
                program,
            };
            self.area = self.area.max(f.rows + args.len() * CH * 8);
            flat = Some(f);
        }
        let without = |v: &[usize]| {
            v.iter()
                .copied()
                .filter(|&a| Some(a) != lane)
                .collect::<Vec<_>>()
        };
        let rank = over.iter().map(|&a| (a, self.out.axes[a])).collect();
        Ok(CFold {
            state: state.to_vec(),
            kept: without(&kept),
            reduced: without(&over),
            args,
            lane,
            horizontal,
            lift,
            combine,
            simple,
            arg,
            ints,
            combine_at,
            flat,
            rows,
            dtypes,
            rank,
        })
    }

    /// The greatest or smallest of elements of type `d`, by the micro-kernels of f32.
    pub(super) fn extreme(&self, m: &Monoid, d: DType) -> Option<Simple> {
        let e = &m.combine;
        let Inst::Binary(op, x, y) = *e.insts.get(*e.outputs.first()? as usize)? else {
            return None;
        };
        let input = |e: &Expr, r: u32| matches!(e.insts.get(r as usize), Some(Inst::Input { dtype, .. }) if *dtype == d);
        if x == y || !input(e, x) || !input(e, y) || !input(&m.lift, *m.lift.outputs.first()?) {
            return None;
        }
        let k = self.kernels;
        let (combine, reduce) = match op {
            Binary::Max => (k.max, k.row_max),
            Binary::Min => (k.min, k.row_min),
            _ => return None,
        };
        Some(Simple {
            combine,
            reduce: Some(reduce),
            columns: None,
            lift: Lift::Identity,
        })
    }

    #[allow(clippy::too_many_arguments, reason = "all there is to know of a fold")]
    fn simple(
        &self,
        m: &Monoid,
        dtypes: &[DType],
        args: &[usize],
        lanes: &[bool],
        over: &[usize],
        horizontal: bool,
        identity: bool,
    ) -> Option<Simple> {
        if dtypes != [DType::F32] {
            return None;
        }
        let op = m.operation()?;
        let inst = |e: &Expr, r: u32| e.insts.get(r as usize).cloned();
        let slot = |e: &Expr, r| match inst(e, r) {
            Some(Inst::Input {
                slot,
                dtype: DType::F32,
            }) => Some(slot),
            _ => None,
        };
        let k = self.kernels;
        let (combine, reduce): (_, Option<crate::ukr::ReduceFn>) = match op {
            Binary::Add => (k.add, Some(k.row_sum)),
            Binary::Max => (k.max, Some(k.row_max)),
            Binary::Min => (k.min, Some(k.row_min)),
            Binary::Mul => (k.mul, Some(k.row_prod)),
            _ => return None,
        };
        let l = &m.lift;
        let first_lane =
            lanes.first() == Some(&true) && self.out.tiles[args[0]].dtype == DType::F32;
        let mut lift = Lift::Program;
        if identity && first_lane {
            lift = Lift::Identity;
        } else if op == Binary::Add && first_lane {
            let squared = match inst(l, *l.outputs.first()?) {
                Some(Inst::Binary(Binary::Mul, p, q)) if p == q => Some(p),
                Some(Inst::Binary(Binary::Pow, p, q)) if matches!(inst(l, q), Some(Inst::Float { bits, .. }) if f64::from_bits(bits) == 2.0) => {
                    Some(p)
                }
                _ => None,
            };
            if let Some(p) = squared {
                lift = match inst(l, p) {
                    Some(Inst::Input { slot: 0, .. }) => Lift::Square,
                    Some(Inst::Binary(Binary::Sub, u, v))
                        if slot(l, u) == Some(0)
                            && slot(l, v) == Some(1)
                            && lanes.get(1) == Some(&!horizontal)
                            && !over
                                .iter()
                                .any(|a| self.out.tiles[args[1]].axes.contains(a)) =>
                    {
                        Lift::Deviation
                    }
                    _ => Lift::Program,
                };
            }
        }
        let columns: Option<unsafe fn(&crate::ukr::Columns)> = match (op, lift) {
            (Binary::Add, Lift::Identity) => Some(k.col_sum),
            (Binary::Add, Lift::Square | Lift::Deviation) => Some(k.col_squares),
            (Binary::Max, Lift::Identity) => Some(k.col_max),
            (Binary::Min, Lift::Identity) => Some(k.col_min),
            _ => None,
        };
        Some(Simple {
            combine,
            reduce,
            columns,
            lift,
        })
    }
}
