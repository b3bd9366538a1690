//! Programs of threads as text for people: a line per instruction, bodies indented.
use super::ir::{Inst, LeftFactor, Lines, Op, Program, Reg, Ty, Var, Warpgroup};
use expr::{Binary, Compare, Unary};
use std::fmt::{self, Display, Formatter, Write};

/// Values between commas.
struct List<'a, T>(&'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        for (i, x) in self.0.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{x}")?;
        }
        Ok(())
    }
}

fn values(list: &[Reg]) -> String {
    let names: Vec<String> = list.iter().map(|r| format!("%{r}")).collect();
    List(&names).to_string()
}

fn variables(list: &[Var]) -> String {
    let names: Vec<String> = list.iter().map(|v| format!("${v}")).collect();
    List(&names).to_string()
}

fn guarded(guard: Option<Reg>) -> String {
    guard.map_or_else(String::new, |g| format!(" where %{g}"))
}

/// Who copies.
fn together(among: u32) -> String {
    match among {
        1 => String::new(),
        n => format!(" by {n} CTAs together"),
    }
}

impl Display for Ty {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(match self {
            Ty::Bool => "bool",
            Ty::I32 => "i32",
            Ty::U32 => "u32",
            Ty::I64 => "i64",
            Ty::F32 => "f32",
            Ty::F64 => "f64",
        })
    }
}

fn lower(f: impl fmt::Debug) -> String {
    format!("{f:?}").to_lowercase()
}

impl Program {
    fn operand(&self, o: u16) -> &str {
        &self.operands[o as usize].name
    }

    fn array(&self, a: u32) -> &str {
        &self.shared[a as usize].name
    }

    fn lines(&self, l: &Lines) -> String {
        let deep = match (l.beyond, l.across) {
            (0, false) => String::new(),
            (n, false) => format!(", {n} apart along the depth"),
            (n, true) => format!(" across the depth, {n} apart along the columns"),
        };
        format!(
            "{}[%{}] lines of {}, blocks {} apart{deep}",
            self.array(l.array),
            l.index,
            l.line,
            l.pitch
        )
    }

    fn warpgroup(&self, w: &Warpgroup) -> String {
        match w {
            Warpgroup::ProxyFence => "fence of writes for warpgroups".into(),
            Warpgroup::Fence => "fence of sums".into(),
            Warpgroup::Commit => "commit products".into(),
            Warpgroup::Wait(left) => format!("wait for products but {left}"),
            Warpgroup::Multiply {
                fragment,
                sums,
                fresh,
                a,
                b,
            } => format!(
                "{} {} m{}n{}k{} {} {} . {}",
                variables(sums),
                if *fresh { "=" } else { "+=" },
                fragment.m,
                fragment.n,
                fragment.k,
                fragment.factor_name(),
                match a {
                    LeftFactor::Lines(a) => self.lines(a),
                    LeftFactor::Words(a) => values(a),
                },
                self.lines(b)
            ),
        }
    }

    fn op(&self, op: &Op, ty: Ty) -> String {
        match *op {
            Op::Const(bits) if ty.is_float() => format!("{:?}", f64::from_bits(bits)),
            Op::Const(bits) => (bits as i64).to_string(),
            Op::Thread => "thread".into(),
            Op::Task => "task".into(),
            Op::Dim(d) => format!("dim {}", self.dims[d as usize]),
            Op::Get(v) => format!("${v}"),
            Op::Unary(f, x) => {
                let f: Unary = f;
                format!("{} %{x}", lower(f))
            }
            Op::Power(x) => format!("power %{x}"),
            Op::Binary(f, x, y) => {
                let f: Binary = f;
                format!("{} %{x}, %{y}", lower(f))
            }
            Op::Compare(f, x, y) => {
                let f: Compare = f;
                format!("{} %{x}, %{y}", lower(f))
            }
            Op::Select(c, x, y) => format!("select %{c}, %{x}, %{y}"),
            Op::MulAdd(x, y, z) => format!("muladd %{x}, %{y}, %{z}"),
            Op::Convert(x) => format!("convert %{x}"),
            Op::Bits(x) => format!("bits %{x}"),
            Op::Narrow(d, x) => format!("narrow {d} %{x}"),
            Op::Load {
                operand,
                index,
                guard,
            } => format!("load {}[%{index}]{}", self.operand(operand), guarded(guard)),
            Op::LoadShared { array, index } => format!("shared {}[%{index}]", self.array(array)),
            Op::AnyLane(x) => format!("%{x} in any lane"),
            Op::Shuffle(x, mask) => format!("shuffle %{x} by {mask}"),
            Op::Pack(d, x, y) => format!("pack {d} %{x}, %{y}"),
            Op::PackNear(x, y) => format!("pack near bf16 %{x}, %{y}"),
            Op::Half(x, second) => format!("f16 {} of %{x}", u32::from(second)),
            Op::Halves(f, x, y) => format!("{} f16x2 %{x}, %{y}", f.name()),
        }
    }

    /// A copy, a pipeline or one of its sides.
    fn sided(&self, i: &Inst) -> String {
        match i {
            Inst::Copy {
                array,
                to,
                operand,
                index,
                elements,
                guard,
            } => format!(
                "copy {}[%{to}] = {}[%{index}] of {elements}{}",
                self.array(*array),
                self.operand(*operand),
                guarded(*guard)
            ),
            Inst::Bulk {
                array,
                to,
                operand,
                index,
                elements,
                among,
            } => format!(
                "copy at once {}[%{to}] = {}[%{index}] of {elements}{}",
                self.array(*array),
                self.operand(*operand),
                together(*among)
            ),
            Inst::Box {
                array,
                to,
                operand,
                tensor,
                at,
            } => format!(
                "copy box {}[%{to}] = {} as tensor {tensor} from {}{}",
                self.array(*array),
                self.operand(*operand),
                values(at),
                together(self.tensors.get(*tensor as usize).map_or(1, |t| t.among))
            ),
            Inst::Pipeline { pipeline: p, .. } => format!(
                "pipeline{} of %{} pieces in {} stages, {} behind, {} warps copy{}, {} and {} registers, barriers {}",
                match p.walk {
                    Some(task) => format!(" for every task %{task}"),
                    None => String::new(),
                },
                p.pieces,
                p.stages,
                p.behind,
                p.copiers,
                together(p.among),
                p.registers[0],
                p.registers[1],
                self.array(p.barriers)
            ),
            Inst::Side { piece, stage, .. } => format!("side of piece %{piece} in stage %{stage}"),
            Inst::LoadPart {
                dst,
                array,
                rank,
                index,
                guard,
            } => format!(
                "{} = shared {}[%{index}..] of CTA %{rank}{}",
                values(dst),
                self.array(*array),
                guarded(*guard)
            ),
            Inst::Freed => "all stages are free".into(),
            _ => String::new(),
        }
    }

    fn inst(&self, i: &Inst, deep: usize, f: &mut Formatter) -> fmt::Result {
        let line = match i {
            Inst::Let(r, op) => {
                let ty = self.regs[*r as usize];
                format!("%{r}: {ty} = {}", self.op(op, ty))
            }
            Inst::Set(v, r) => format!("${v} = %{r}"),
            Inst::LoadRun {
                dst,
                operand,
                index,
                guard,
            } => format!(
                "{} = load {}[%{index}..]{}",
                values(dst),
                self.operand(*operand),
                guarded(*guard)
            ),
            Inst::LoadSharedRun { dst, array, index } => {
                format!(
                    "{} = shared {}[%{index}..]",
                    values(dst),
                    self.array(*array)
                )
            }
            Inst::Store {
                operand,
                index,
                values: v,
                guard,
            } => format!(
                "store {}[%{index}..] = {}{}",
                self.operand(*operand),
                values(v),
                guarded(*guard)
            ),
            Inst::StoreShared {
                array,
                index,
                values: v,
            } => format!("share {}[%{index}..] = {}", self.array(*array), values(v)),
            Inst::For {
                i, from, to, step, ..
            } => format!("for %{i} from %{from} to %{to} by %{step}"),
            Inst::If { cond, .. } => format!("if %{cond}"),
            Inst::Commit => "commit".into(),
            Inst::Wait(left) => format!("wait {left}"),
            Inst::LoadMatrix {
                dst,
                array,
                index,
                transposed,
            } => format!(
                "{} = blocks {}[%{index}]{}",
                values(dst),
                self.array(*array),
                if *transposed { " transposed" } else { "" }
            ),
            Inst::Multiply {
                fragment,
                sums,
                a,
                b,
            } => format!(
                "{} += m{}n{}k{} {} {} . {}",
                variables(sums),
                fragment.m,
                fragment.n,
                fragment.k,
                fragment.factor_name(),
                values(a),
                values(b)
            ),
            Inst::Warpgroup(w) => self.warpgroup(w),
            Inst::Copy { .. }
            | Inst::Pipeline { .. }
            | Inst::Side { .. }
            | Inst::Bulk { .. }
            | Inst::Box { .. }
            | Inst::LoadPart { .. }
            | Inst::Freed => self.sided(i),
            Inst::Barrier => "barrier".into(),
            Inst::ClusterArrive => "arrive in the cluster".into(),
            Inst::ClusterWait => "wait for the cluster".into(),
            Inst::DependencyWait => "wait for earlier kernels".into(),
            Inst::LaunchDependents => "the next kernel may start".into(),
            Inst::Fault { cond, code } => {
                format!("fault '{}' if %{cond}", self.faults[*code as usize])
            }
        };
        writeln!(f, "{:1$}{line}", "", 2 * deep)?;
        i.body().iter().try_for_each(|x| self.inst(x, deep + 1, f))
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(
            f,
            "program {}: {} tasks of {} threads",
            self.name, self.tasks, self.threads
        )?;
        if self.walkers > 0 {
            write!(f, ", which {} CTAs walk", self.walkers)?;
        }
        if self.cluster > 1 {
            write!(f, ", clusters of {}", self.cluster)?;
        }
        match self.registers {
            Some(n) => writeln!(f, ", {n} registers")?,
            None => f.write_char('\n')?,
        }
        for o in &self.operands {
            let how = match (o.written, o.constant) {
                (true, _) => "written",
                (false, true) => "constant",
                (false, false) => "read",
            };
            writeln!(f, "  operand {}: {}, {how}", o.name, o.dtype)?;
        }
        for a in &self.shared {
            writeln!(f, "  shared {}: {} of {}", a.name, a.elements, a.dtype)?;
        }
        for (v, ty) in self.vars.iter().enumerate() {
            writeln!(f, "  variable ${v}: {ty}")?;
        }
        self.body.iter().try_for_each(|i| self.inst(i, 0, f))
    }
}
