//! Bulk copies.

use super::{Builder, mods::Mods};
use crate::counters::Class;
use crate::error::{PtxError, text, unsupported};
use crate::parse::ast::*;
use crate::program::*;
use crate::sm90::Sm90;

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
            m.take("L2");
            m.take("global");
            self.count(o, &[2])?;
            self.addr(&o[0])?;
            self.src(&o[1], Ty::U32)?;
            self.emit(Op::Nop, Class::Async);
            return Ok(());
        }
        // In the order of the text: where to, where from.
        let (to, from) = (m.first(side), m.first(side));
        match (to, from) {
            (Some("shared::cluster" | "shared::cta"), Some("global")) => {
                if !m.take(COUNTED) {
                    return text(m.line(), format!("'{}' lacks .{COUNTED}", m.all()));
                }
                let many = m.take("multicast::cluster");
                self.count(o, if many { &[5] } else { &[4] })?;
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
                self.count(o, &[3])?;
                let (to, _) = self.addr(&o[0])?;
                let from = self.shared_addr(&o[1])?;
                let size = self.src(&o[2], Ty::U32)?;
                self.sm90(Sm90::BulkStore(to, from, size), Class::Async);
            }
            _ => return unsupported(m.line(), format!("'{}'", m.all())),
        }
        Ok(())
    }
}
