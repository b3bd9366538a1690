//! Loads and stores of elements. What is touched under a condition is a guarded instruction, not one that
//! is jumped over: an assembler, and an SM, then have other loads under way meanwhile.
use super::output::{Arg, listed};
use super::places::size;
use super::{Name, Out, Printer, moved};
use crate::simt::ir::{Reg, Ty};
use layout::DType;
use std::fmt;

/// What an element is numbered in: an operand, or shared memory in elements of so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Space {
    Operand(u16),
    Shared(u32),
    /// The same of the CTA of the cluster whose number the value says.
    Part(u32, Reg),
}

/// Where an instruction is obeyed: everywhere, or where a truth value holds; written in front of it.
#[derive(Clone, Copy)]
struct On(Option<Name>);

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {
            Some(p) => write!(f, "@{p} "),
            None => Ok(()),
        }
    }
}

/// Where an element is.
pub(super) struct Place {
    space: &'static str,
    /// Register of the address, and bytes behind it.
    base: Name,
    offset: i64,
    /// Where it is touched.
    on: On,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.offset {
            0 => self.base.fmt(f),
            n => write!(f, "{}+{n}", self.base),
        }
    }
}

impl Place {
    /// Between brackets.
    pub(super) fn arg(&self) -> Arg<'static> {
        Arg::At(self.base, self.offset)
    }

    /// The place `bytes` behind this one.
    pub(super) fn after(&self, bytes: u32) -> Place {
        Place {
            offset: self.offset + i64::from(bytes),
            ..*self
        }
    }
}

impl Printer<'_> {
    /// Element `index` of an operand, touched where `guard` holds.
    pub(super) fn global(&mut self, operand: u16, index: Reg, guard: Option<Reg>) -> Place {
        let d = self.p.operands[operand as usize].dtype;
        let (index, beyond) = self.split(index);
        let base = self.address(Space::Operand(operand), index, |s, t, index| {
            if d.bits() == 4 {
                let half = s.temp("tr");
                s.line(format_args!("shr.s32 {half}, {index}, 1;"));
                s.line(format_args!("cvt.s64.s32 {t}, {half};"));
            } else {
                let by = Arg::Number(size(d).into());
                s.ins(&["mul.wide.s32"], &[t.into(), index.into(), by]);
            }
            let pointer = Name {
                kind: "l_",
                number: operand.into(),
            };
            s.ins(&["add.s64"], &[t, t, pointer].map(Arg::Register));
        });
        let offset = match d.bits() {
            4 => beyond / 2,
            _ => beyond * i64::from(size(d)),
        };
        Place {
            space: "global",
            base,
            offset,
            on: On(guard.map(|g| self.r(g))),
        }
    }

    /// Element `index` of a shared array.
    pub(super) fn shared_at(&mut self, array: u32, index: Reg) -> Place {
        let d = self.p.shared[array as usize].dtype;
        let (index, beyond) = self.split(index);
        let halves = d.bits() == 4;
        // Halves of bytes have addresses of their own.
        let space = Space::Shared(if halves { 0 } else { size(d) });
        let base = self.address(space, index, |s, t, index| {
            let base = s.temp("tr");
            s.ins(&["mov.u32"], &[base.into(), Arg::Word("shared_bytes")]);
            if halves {
                s.ins(&["shr.s32"], &[t.into(), index.into(), Arg::Number(1)]);
                s.ins(&["add.s32"], &[t.into(), t.into(), base.into()]);
                return;
            }
            let by = Arg::Number(size(d).into());
            s.ins(&["mad.lo.s32"], &[t.into(), index.into(), by, base.into()]);
        });
        Place {
            space: "shared",
            base,
            offset: i64::from(self.shared[array as usize])
                + match halves {
                    true => beyond / 2,
                    false => beyond * i64::from(size(d)),
                },
            on: On(None),
        }
    }

    /// Element `index` of the shared array of a CTA of the cluster, touched where `guard` holds.
    pub(super) fn part_at(
        &mut self,
        array: u32,
        rank: Reg,
        (index, guard): (Reg, Option<Reg>),
    ) -> Place {
        let own = self.shared_at(array, index);
        let each = size(self.p.shared[array as usize].dtype);
        let (index, _) = self.split(index);
        let base = self.address(Space::Part(each, rank), index, |s, t, _| {
            let rank = s.r(rank);
            s.line(format_args!(
                "mapa.shared::cluster.u32 {t}, {}, {rank};",
                own.base
            ));
        });
        Place {
            space: "shared::cluster",
            base,
            on: On(guard.map(|g| self.r(g))),
            ..own
        }
    }

    /// The place so many bytes further on as a register says.
    pub(super) fn further(&mut self, place: Place, by: Name) -> Place {
        let base = match place.space {
            "global" => {
                let (wide, base) = (self.temp("tl"), self.temp("tl"));
                self.line(format_args!("cvt.u64.u32 {wide}, {by};"));
                self.line(format_args!("add.s64 {base}, {}, {wide};", place.base));
                base
            }
            _ => {
                let base = self.temp("tr");
                self.line(format_args!("add.s32 {base}, {}, {by};", place.base));
                base
            }
        };
        Place { base, ..place }
    }

    /// The address of element `index` of a shared array, in units of 16 bytes and without what is left of them.
    pub(super) fn shared_units(&mut self, array: u32, index: Reg) -> (Name, i64) {
        let at = self.shared_at(array, index);
        let units = self.temp("tr");
        self.line(format_args!("shr.u32 {units}, {}, 4;", at.base));
        (units, at.offset / 16)
    }

    /// An element's number as another and what is known to be beyond it, where nothing else is made of it.
    fn split(&self, index: Reg) -> (Reg, i64) {
        self.beyond[index as usize].unwrap_or((index, 0))
    }

    /// The register with an element's address, which `make` writes where it is not there yet.
    fn address(
        &mut self,
        space: Space,
        index: Reg,
        make: impl FnOnce(&mut Self, Name, Name),
    ) -> Name {
        if let Some(found) = self.addresses.get(&(space, index)) {
            return *found;
        }
        let t = match space {
            Space::Operand(_) => self.temp("tl"),
            Space::Shared(_) | Space::Part(..) => self.temp("tr"),
        };
        let from = self.r(index);
        make(self, t, from);
        self.addresses.insert((space, index), t);
        self.entered.push((space, index));
        t
    }

    /// Loads bits of `kind` into register `to`, which is 0 where nothing is touched.
    fn load(&mut self, from: &Place, kind: &str, to: Name) {
        let Place { space, on, .. } = from;
        if on.0.is_some() {
            let (kind, none) = match kind {
                "f32" => ("f32", "0f00000000"),
                "f64" => ("f64", "0d0000000000000000"),
                "b64" => ("b64", "0"),
                "b16" => ("b16", "0"),
                _ => ("b32", "0"),
            };
            self.ins(&["mov.", kind], &[to.into(), Arg::Word(none)]);
        }
        let args = [to.into(), from.arg()];
        self.out
            .instruction(on.0, &["ld.", space, ".", kind], &args);
    }

    /// Reads one element of type `d` into register `to`; `index` picks a nibble.
    pub(super) fn read(&mut self, from: &Place, d: DType, to: Name, index: Option<Reg>) -> Out<()> {
        match d {
            DType::F32 => self.load(from, "f32", to),
            DType::F64 => self.load(from, "f64", to),
            DType::I32 | DType::U32 => self.load(from, "b32", to),
            DType::I64 | DType::U64 => self.load(from, "b64", to),
            DType::I8 => self.load(from, "s8", to),
            DType::U8 => self.load(from, "u8", to),
            DType::I16 => self.load(from, "s16", to),
            DType::U16 => self.load(from, "u16", to),
            DType::F16 => {
                let h = self.temp("th");
                self.load(from, "b16", h);
                self.line(format_args!("cvt.f32.f16 {to}, {h};"));
            }
            DType::BF16 => {
                let t = self.temp("tr");
                self.load(from, "u16", t);
                self.line(format_args!("shl.b32 {t}, {t}, 16;"));
                self.line(format_args!("mov.b32 {to}, {t};"));
            }
            DType::Bool => {
                let t = self.temp("tr");
                self.load(from, "u8", t);
                self.line(format_args!("setp.ne.u32 {to}, {t}, 0;"));
            }
            DType::I4 | DType::U4 => {
                let index = self.r(index.ok_or("a nibble without a place")?);
                let (t, s) = (self.temp("tr"), self.temp("tr"));
                self.load(from, "u8", t);
                self.line(format_args!("and.b32 {s}, {index}, 1;"));
                self.line(format_args!("shl.b32 {s}, {s}, 2;"));
                let kind = if d == DType::I4 { "s32" } else { "u32" };
                self.line(format_args!("bfe.{kind} {to}, {t}, {s}, 4;"));
            }
            d => return Err(format!("{d} has no PTX form")),
        }
        Ok(())
    }

    /// Writes an element of type `d`; `index` picks a nibble.
    pub(super) fn write(
        &mut self,
        to: &Place,
        d: DType,
        from: Name,
        index: Option<Reg>,
    ) -> Out<()> {
        let Place {
            space, base, on, ..
        } = to;
        match d {
            DType::F32 => {
                let args = [to.arg(), from.into()];
                self.out.instruction(on.0, &["st.", space, ".f32"], &args);
            }
            DType::F64 => self.line(format_args!("{on}st.{space}.f64 [{to}], {from};")),
            DType::I32 | DType::U32 => {
                self.line(format_args!("{on}st.{space}.b32 [{to}], {from};"))
            }
            DType::I64 | DType::U64 => {
                self.line(format_args!("{on}st.{space}.b64 [{to}], {from};"))
            }
            DType::I8 | DType::U8 => self.line(format_args!("{on}st.{space}.u8 [{to}], {from};")),
            DType::I16 | DType::U16 => {
                self.line(format_args!("{on}st.{space}.u16 [{to}], {from};"))
            }
            DType::F16 => {
                let h = self.temp("th");
                self.line(format_args!("cvt.rn.f16.f32 {h}, {from};"));
                self.line(format_args!("{on}st.{space}.b16 [{to}], {h};"));
            }
            DType::BF16 => {
                let t = self.brain(from);
                self.line(format_args!("shr.u32 {t}, {t}, 16;"));
                self.line(format_args!("{on}st.{space}.u16 [{to}], {t};"));
            }
            DType::Bool => {
                let t = self.temp("tr");
                self.line(format_args!("selp.u32 {t}, 1, 0, {from};"));
                self.line(format_args!("{on}st.{space}.u8 [{to}], {t};"));
            }
            DType::I4 | DType::U4 => {
                // Two threads may share the byte: its word is changed as a whole.
                let index = self.r(index.ok_or("a nibble without a place")?);
                let (word, low) = (self.temp("tl"), self.temp("tl"));
                let (s, v, m) = (self.temp("tr"), self.temp("tr"), self.temp("tr"));
                self.line(format_args!("and.b64 {word}, {base}, -4;"));
                self.line(format_args!("and.b64 {low}, {base}, 3;"));
                self.line(format_args!("cvt.u32.u64 {s}, {low};"));
                self.line(format_args!("shl.b32 {s}, {s}, 3;"));
                self.line(format_args!("and.b32 {v}, {index}, 1;"));
                self.line(format_args!("mad.lo.u32 {s}, {v}, 4, {s};"));
                self.line(format_args!("mov.u32 {m}, 15;"));
                self.line(format_args!("shl.b32 {m}, {m}, {s};"));
                self.line(format_args!("not.b32 {m}, {m};"));
                self.line(format_args!("and.b32 {v}, {from}, 15;"));
                self.line(format_args!("shl.b32 {v}, {v}, {s};"));
                self.line(format_args!("{on}red.global.and.b32 [{word}], {m};"));
                self.line(format_args!("{on}red.global.or.b32 [{word}], {v};"));
            }
            d => return Err(format!("{d} has no PTX form")),
        }
        Ok(())
    }

    /// Reads `dst.len()` neighbours at once, as words.
    pub(super) fn read_run(&mut self, from: &Place, d: DType, dst: &[Reg]) -> Out<()> {
        let Place { space, on, .. } = from;
        let bits = d.bits() * dst.len() as u32;
        let one_load = match d.bits() {
            4 => [8, 16, 32, 64, 128].contains(&bits),
            n => [16, 32, 64, 128].contains(&bits) && (bits > 16 || n < 16),
        };
        if !one_load {
            for (i, &r) in dst.iter().enumerate() {
                let to = self.r(r);
                self.read(&from.after(i as u32 * size(d)), d, to, None)?;
            }
            return Ok(());
        }
        if d.bits() == 64 {
            let list: Vec<String> = dst.iter().map(|&r| self.r(r).to_string()).collect();
            let kind = moved(self.ty(dst[0]));
            for &r in dst.iter().filter(|_| on.0.is_some()) {
                let (to, t) = (self.r(r), self.ty(r));
                self.zero(to, t);
            }
            self.line(format_args!(
                "{on}ld.{space}.v{}.{kind} {{{}}}, [{from}];",
                dst.len(),
                list.join(", ")
            ));
            return Ok(());
        }
        let words = (bits / 32).max(1);
        let names: Vec<Name> = (0..words).map(|_| self.temp("tr")).collect();
        for &n in names.iter().filter(|_| on.0.is_some()) {
            self.ins(&["mov.b32"], &[n.into(), Arg::Number(0)]);
        }
        match (words, bits) {
            (_, 8) => self.line(format_args!("{on}ld.{space}.u8 {}, [{from}];", names[0])),
            (_, 16) => self.line(format_args!("{on}ld.{space}.u16 {}, [{from}];", names[0])),
            (1, _) => self.line(format_args!("{on}ld.{space}.b32 {}, [{from}];", names[0])),
            (n, _) => {
                let width = if n == 2 { ".v2.b32" } else { ".v4.b32" };
                let args = [Arg::List(&names), from.arg()];
                self.out.instruction(on.0, &["ld.", space, width], &args);
            }
        }
        let per = 32 / d.bits();
        for (i, &r) in dst.iter().enumerate() {
            let (word, part) = (names[i / per as usize], i as u32 % per);
            let to = self.r(r);
            let shift = part * d.bits();
            match d {
                DType::F32 | DType::I32 | DType::U32 => {
                    self.ins(&["mov.b32"], &[to.into(), word.into()]);
                }
                DType::BF16 => {
                    let t = self.temp("tr");
                    let op = if part == 0 { "shl.b32" } else { "and.b32" };
                    let by = if part == 0 { "16" } else { "-65536" };
                    self.line(format_args!("{op} {t}, {word}, {by};"));
                    self.line(format_args!("mov.b32 {to}, {t};"));
                }
                DType::F16 => {
                    let (t, h) = (self.temp("tr"), self.temp("th"));
                    self.line(format_args!("shr.u32 {t}, {word}, {shift};"));
                    self.line(format_args!("cvt.u16.u32 {h}, {t};"));
                    self.line(format_args!("cvt.f32.f16 {to}, {h};"));
                }
                DType::Bool => {
                    let t = self.temp("tr");
                    self.line(format_args!("bfe.u32 {t}, {word}, {shift}, 8;"));
                    self.line(format_args!("setp.ne.u32 {to}, {t}, 0;"));
                }
                // Of the first and the last bits one instruction makes a number, of others two.
                d if !d.is_signed_int() && shift == 0 => {
                    let mask = (1u32 << d.bits()) - 1;
                    self.line(format_args!("and.b32 {to}, {word}, {mask};"));
                }
                d if !d.is_signed_int() && shift + d.bits() == bits.min(32) => {
                    self.line(format_args!("shr.u32 {to}, {word}, {shift};"));
                }
                d => {
                    let kind = if d.is_signed_int() { "s32" } else { "u32" };
                    self.line(format_args!(
                        "bfe.{kind} {to}, {word}, {shift}, {};",
                        d.bits()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Writes neighbouring elements of type `d`, at once where that can be.
    pub(super) fn write_run(
        &mut self,
        to: &Place,
        d: DType,
        values: &[Reg],
        index: Option<Reg>,
    ) -> Out<()> {
        if self.vector(d, values) {
            self.write_vector(to, values);
            return Ok(());
        }
        if matches!(d, DType::F16 | DType::BF16) && self.nan && matches!(values.len(), 2 | 4 | 8) {
            self.write_packed(to, d, values);
            return Ok(());
        }
        for (n, &r) in values.iter().enumerate() {
            let from = self.r(r);
            self.write(&to.after(n as u32 * size(d)), d, from, index)?;
        }
        Ok(())
    }

    /// Whether `values` are stored as one vector.
    fn vector(&self, d: DType, values: &[Reg]) -> bool {
        // Words of two floats are as wide as other elements that are stored so.
        let words = matches!(d, DType::F16 | DType::BF16) && self.ty(values[0]) == Ty::U32;
        (d.bits() == 32 || words) && matches!(values.len(), 2 | 4)
    }

    /// Writes pairs of 16-bit floats as words.
    fn write_packed(&mut self, to: &Place, d: DType, values: &[Reg]) {
        let mut words = vec![];
        for pair in values.chunks_exact(2) {
            let (t, x, y) = (self.temp("tr"), self.r(pair[0]), self.r(pair[1]));
            self.pack(t, d, x, y);
            words.push(t);
        }
        let Place { space, on, .. } = to;
        let list = listed(&words);
        match words.len() {
            1 => self.line(format_args!("{on}st.{space}.b32 [{to}], {list};")),
            n => self.line(format_args!("{on}st.{space}.v{n}.b32 [{to}], {{{list}}};")),
        }
    }

    fn write_vector(&mut self, to: &Place, values: &[Reg]) {
        let Place { space, on, .. } = to;
        let kind = moved(self.ty(values[0]));
        let names: Vec<Name> = values.iter().map(|&r| self.r(r)).collect();
        let width = if values.len() == 2 { ".v2." } else { ".v4." };
        let args = [to.arg(), Arg::List(&names)];
        self.out
            .instruction(on.0, &["st.", space, width, kind], &args);
    }
}
