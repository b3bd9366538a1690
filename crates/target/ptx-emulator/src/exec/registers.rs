//! `setmaxnreg`: registers that warps give to others.

use super::{Ctx, Flow};
use crate::checks::Kind;
use crate::machine::warp::GroupState;

impl Ctx<'_> {
    pub(crate) fn set_registers(&mut self, up: bool, n: u32) -> Flow {
        let have = self.w.registers;
        if have == 0 {
            self.report(Kind::Undefined, 0, None, || {
                "the registers at entry are not known: .maxntid with .minnctapersm, or .maxnreg, must say"
                    .into()
            });
            return Flow::Next;
        }
        if (up && n < have) || (!up && n > have) {
            let way = if up { "inc" } else { "dec" };
            self.report(Kind::Undefined, 0, None, || {
                format!("setmaxnreg.{way} to {n}, and the warp has {have} registers a thread")
            });
            return Flow::Next;
        }
        if !up {
            self.cta.free_registers += (have - n) * 32;
            self.cta.look = true;
        } else if (n - have) * 32 > self.cta.free_registers {
            let cur = self.w.current;
            self.w.fragments[cur].doing = GroupState::Registers;
            return Flow::Blocked;
        } else {
            self.cta.free_registers -= (n - have) * 32;
        }
        self.w.registers = n;
        self.effect();
        Flow::Next
    }
}
