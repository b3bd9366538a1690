//! Modifiers of an opcode, each of which must be taken by somebody.

use crate::error::{PtxError, text, unsupported};
use crate::parse::ast::{RawInst, Ty};
use crate::program::{Mode, Rnd, Scope, Sem};

pub(crate) struct Mods<'a> {
    inst: &'a RawInst,
    used: Vec<bool>,
}

impl<'a> Mods<'a> {
    pub(crate) fn new(inst: &'a RawInst) -> Mods<'a> {
        let mut used = vec![false; inst.opcode.len()];
        used[0] = true;
        Mods { inst, used }
    }

    pub(crate) fn line(&self) -> u32 {
        self.inst.line
    }

    /// The opcode without modifiers.
    pub(crate) fn op(&self) -> &'a str {
        &self.inst.opcode[0]
    }

    /// The whole opcode, for messages.
    pub(crate) fn all(&self) -> String {
        self.inst.opcode.join(".")
    }

    /// Takes the modifier `name` where it stands.
    pub(crate) fn take(&mut self, name: &str) -> bool {
        for (k, part) in self.inst.opcode.iter().enumerate().skip(1) {
            if !self.used[k] && part == name {
                self.used[k] = true;
                return true;
            }
        }
        false
    }

    /// Takes the first of `names` that stands there.
    pub(crate) fn one_of(&mut self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|n| self.take(n))
    }

    /// Takes the next modifier that `f` understands.
    pub(crate) fn first<T>(&mut self, f: impl Fn(&str) -> Option<T>) -> Option<T> {
        for (k, part) in self.inst.opcode.iter().enumerate().skip(1) {
            if !self.used[k]
                && let Some(v) = f(part)
            {
                self.used[k] = true;
                return Some(v);
            }
        }
        None
    }

    /// Takes the type of the instruction: the first that was not taken yet.
    pub(crate) fn ty(&mut self) -> Result<Ty, PtxError> {
        match self.first(Ty::parse) {
            Some(t) => Ok(t),
            None => text(self.line(), format!("'{}' lacks a type", self.all())),
        }
    }

    /// The type without taking it.
    pub(crate) fn see_ty(&self) -> Option<Ty> {
        self.inst.opcode[1..].iter().find_map(|p| Ty::parse(p))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.inst.opcode[1..].iter().any(|p| p == name)
    }

    /// Rounding, `.ftz`, `.sat`, `.relu` of arithmetic.
    pub(crate) fn mode(&mut self) -> Mode {
        Mode {
            rnd: match self.one_of(&["rn", "rz", "rm", "rp", "rna"]) {
                Some("rz") => Rnd::Zero,
                Some("rm") => Rnd::Down,
                Some("rp") => Rnd::Up,
                Some("rna") => Rnd::Away,
                _ => Rnd::Near,
            },
            ftz: self.take("ftz"),
            sat: self.take("sat") || self.take("satfinite"),
            relu: self.take("relu"),
            ..Mode::default()
        }
    }

    pub(crate) fn scope(&mut self) -> Result<Option<Scope>, PtxError> {
        Ok(match self.one_of(&["cta", "gpu", "sys", "cluster"]) {
            Some("cta") => Some(Scope::Cta),
            Some("gpu") => Some(Scope::Gpu),
            Some("sys") => Some(Scope::Sys),
            // All of the device stands for a cluster: a scope that is too narrow for CTAs of others is not found.
            Some(_) => Some(Scope::Gpu),
            None => None,
        })
    }

    pub(crate) fn sem(&mut self) -> Option<Sem> {
        Some(
            match self.one_of(&["weak", "relaxed", "acquire", "release", "acq_rel"])? {
                "weak" => Sem::Weak,
                "relaxed" => Sem::Relaxed,
                "acquire" => Sem::Acquire,
                "release" => Sem::Release,
                _ => Sem::AcqRel,
            },
        )
    }

    /// Takes what only steers caches.
    pub(crate) fn caching(&mut self) {
        const HINTS: [&str; 18] = [
            "ca",
            "cg",
            "cs",
            "lu",
            "cv",
            "wb",
            "wt",
            "nc",
            "L1::evict_normal",
            "L1::evict_unchanged",
            "L1::evict_first",
            "L1::evict_last",
            "L1::no_allocate",
            "L2::64B",
            "L2::128B",
            "L2::256B",
            "L2::evict_last",
            "L2::evict_first",
        ];
        while self.one_of(&HINTS).is_some() {}
    }

    pub(crate) fn all_used(&self) -> Result<(), PtxError> {
        match self.used.iter().position(|u| !u) {
            None => Ok(()),
            Some(k) => {
                let part = &self.inst.opcode[k];
                if part.contains("cluster") || part.contains("multicast") {
                    return unsupported(self.line(), format!("clusters of CTAs (.{part})"));
                }
                unsupported(self.line(), format!("'.{part}' of '{}'", self.all()))
            }
        }
    }
}
