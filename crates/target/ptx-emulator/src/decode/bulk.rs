//! Bulk copies.

use super::{Builder, mods::Mods};
use crate::counters::Class;
use crate::error::{PtxError, text, unsupported};
use crate::parse::ast::*;
use crate::program::*;
use crate::sm90::{Sm90, TensorCopy};

/// How a copy to shared memory says that it is there.
pub(super) const COUNTED: &str = "mbarrier::complete_tx::bytes";

fn side(part: &str) -> Option<&'static str> {
    let all = ["shared::cluster", "shared::cta", "global"];
    all.into_iter().find(|s| *s == part)
}

impl Builder<'_> {
    /// `cp.async.bulk` and what belongs to it.
    pub(crate) fn bulk(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        m.take("bulk");
        if m.take("commit_group") {
            self.count(o, &[0])?;
            self.sm90(Sm90::BulkCommit, Class::Async);
            return Ok(());
        }
        if m.take("wait_group") {
            let read = m.take("read");
            self.count(o, &[1])?;
            let Operand::Imm(Imm::Int(n)) = o[0] else {
                return text(m.line(), "cp.async.bulk.wait_group takes a number");
            };
            self.sm90(Sm90::BulkWait(n.min(1 << 20) as u32, read), Class::Async);
            return Ok(());
        }
        if m.take("prefetch") {
            return self.bulk_prefetch(m, o);
        }
        // In the order of the text: where to, where from.
        if m.take("tensor") {
            return self.tensor(m, o);
        }
        let (to, from) = (m.first(side), m.first(side));
        match (to, from) {
            (Some("shared::cluster" | "shared::cta"), Some("global")) => {
                if !m.take(COUNTED) {
                    return text(m.line(), format!("'{}' lacks .{COUNTED}", m.all()));
                }
                let (many, o) = self.extras(m, o, 4)?;
                let to = self.shared_addr(&o[0])?;
                let (from, _) = self.addr(&o[1])?;
                let size = self.src(&o[2], Ty::U32)?;
                let barrier = self.shared_addr(&o[3])?;
                let ranks = match many {
                    true => self.src(&o[4], Ty::U16)?,
                    false => SINK,
                };
                let op = Sm90::BulkLoad(to, from, size, barrier, ranks);
                self.sm90(op, Class::Async);
            }
            (Some("shared::cluster"), Some("shared::cta")) if m.take(COUNTED) => {
                self.count(o, &[4])?;
                let (to, from) = (self.shared_addr(&o[0])?, self.shared_addr(&o[1])?);
                let size = self.src(&o[2], Ty::U32)?;
                let barrier = self.shared_addr(&o[3])?;
                self.sm90(Sm90::BulkPut(to, from, size, barrier), Class::Async);
            }
            (Some("global"), Some("shared::cta")) if m.take("bulk_group") => {
                let (_, o) = self.extras(m, o, 3)?;
                let (to, _) = self.addr(&o[0])?;
                let from = self.shared_addr(&o[1])?;
                let size = self.src(&o[2], Ty::U32)?;
                self.sm90(Sm90::BulkStore(to, from, size), Class::Async);
            }
            _ => return unsupported(m.line(), format!("'{}'", m.all())),
        }
        Ok(())
    }

    /// Takes `.multicast::cluster` and `.L2::cache_hint`, each with an operand behind the `n` others; the
    /// hint changes no result.
    fn extras<'o>(
        &mut self,
        m: &mut Mods<'_>,
        o: &'o [Operand],
        n: usize,
    ) -> Result<(bool, &'o [Operand]), PtxError> {
        let many = m.take("multicast::cluster");
        let hint = m.take("L2::cache_hint");
        let want = n + usize::from(many);
        self.count(o, &[want + usize::from(hint)])?;
        if hint {
            self.src(&o[want], Ty::B64)?;
        }
        Ok((many, &o[..want]))
    }

    fn bulk_prefetch(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        if m.take("tensor") {
            m.first(rank);
            self.count(o, &[1])?;
            self.tensor_place(&o[0], None)?;
        } else {
            self.count(o, &[2])?;
            self.addr(&o[0])?;
            self.src(&o[1], Ty::U32)?;
        }
        m.take("L2");
        m.take("global");
        m.take("tile");
        self.emit(Op::Nop, Class::Async);
        Ok(())
    }

    /// `cp.async.bulk.tensor`.
    fn tensor(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let Some(dims) = m.first(rank) else {
            return text(m.line(), format!("'{}' lacks a dimension", m.all()));
        };
        let (to, from) = (m.first(side), m.first(side));
        m.take("tile");
        match (to, from) {
            (Some("shared::cluster" | "shared::cta"), Some("global")) if m.take(COUNTED) => {
                let (many, o) = self.extras(m, o, 3)?;
                let shared = self.shared_addr(&o[0])?;
                let (map, coordinates) = self.tensor_place(&o[1], Some(dims))?;
                let barrier = self.shared_addr(&o[2])?;
                let ranks = match many {
                    true => self.src(&o[3], Ty::U16)?,
                    false => SINK,
                };
                let copy = TensorCopy {
                    map,
                    coordinates,
                    shared,
                    barrier,
                    ranks,
                };
                self.sm90(Sm90::TensorLoad(copy), Class::Async);
            }
            (Some("global"), Some("shared::cta")) if m.take("bulk_group") => {
                let (_, o) = self.extras(m, o, 2)?;
                let (map, coordinates) = self.tensor_place(&o[0], Some(dims))?;
                let shared = self.shared_addr(&o[1])?;
                let copy = TensorCopy {
                    map,
                    coordinates,
                    shared,
                    barrier: shared,
                    ranks: SINK,
                };
                self.sm90(Sm90::TensorStore(copy), Class::Async);
            }
            _ => return unsupported(m.line(), format!("'{}'", m.all())),
        }
        Ok(())
    }

    /// The address of a map, and coordinates of which there are `dims`.
    fn tensor_place(
        &mut self,
        o: &Operand,
        dims: Option<usize>,
    ) -> Result<(Addr, Vec<R>), PtxError> {
        let Operand::Tensor(base, offset, at) = o else {
            return text(
                self.line,
                "a tensor map and coordinates in brackets are wanted",
            );
        };
        if dims.is_some_and(|n| n != at.len()) {
            return text(
                self.line,
                format!("{} coordinates are not what this takes", at.len()),
            );
        }
        let (map, _) = self.addr(&Operand::Mem(Some(base.clone()), *offset))?;
        let at = at.iter().map(|x| self.src(x, Ty::S32));
        Ok((map, at.collect::<Result<Vec<R>, PtxError>>()?))
    }
}

/// The number of dimensions.
fn rank(part: &str) -> Option<usize> {
    match part {
        "1d" => Some(1),
        "2d" => Some(2),
        "3d" => Some(3),
        "4d" => Some(4),
        "5d" => Some(5),
        _ => None,
    }
}
