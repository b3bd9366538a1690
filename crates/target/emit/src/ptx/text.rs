//! A writer of PTX text with typed virtual registers.
use super::source::Source;
use layout::Dim;
use std::fmt;

/// Register types; each has its own name space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Predicate.
    P,
    /// 16 bits.
    H,
    /// 32 bits.
    R,
    /// 64 bits.
    D,
    /// f32.
    F,
}

/// A virtual register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reg {
    pub kind: Kind,
    number: u32,
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let c = match self.kind {
            Kind::P => "p",
            Kind::H => "h",
            Kind::R => "r",
            Kind::D => "d",
            Kind::F => "f",
        };
        write!(f, "%{c}{}", self.number)
    }
}

/// The text of one body under construction: `head` runs once at the top (parameters), `body`
/// follows.
#[derive(Default)]
pub(crate) struct Text {
    /// Where parameters and the task come from.
    pub source: Source,
    head: String,
    body: String,
    used: [u32; 5],
    labels: u32,
    /// Labels that are jumped back to, with the passes of their loops.
    loops: Vec<(String, Dim)>,
}

impl Text {
    /// A fresh register.
    pub fn reg(&mut self, kind: Kind) -> Reg {
        let n = &mut self.used[kind as usize];
        let number = *n;
        *n += 1;
        Reg { kind, number }
    }

    /// A fresh label.
    pub fn label(&mut self, stem: &str) -> String {
        self.labels += 1;
        format!("$L{}_{stem}", self.labels)
    }

    /// Appends an instruction.
    pub fn op(&mut self, line: impl AsRef<str>) {
        self.body.push('\t');
        self.body.push_str(line.as_ref());
        self.body.push_str(";\n");
    }

    /// All threads of the task meet.
    pub fn barrier(&mut self) {
        let line = self.source.barrier();
        self.op(line);
    }

    /// Appends an instruction to the head.
    pub fn head_op(&mut self, line: impl AsRef<str>) {
        self.head.push('\t');
        self.head.push_str(line.as_ref());
        self.head.push_str(";\n");
    }

    /// Places a label here.
    pub fn place(&mut self, label: &str) {
        self.body.push_str(label);
        self.body.push_str(":\n");
    }

    /// Places a label here that a loop of `passes` begins with.
    pub fn place_loop(&mut self, label: &str, passes: Dim) {
        self.place(label);
        self.loops.push((label.to_string(), passes));
    }

    /// Instructions with declarations of their own, which are seen in nothing else.
    pub fn scope(&mut self, lines: &str) {
        self.body.push_str("\t{\n");
        self.body.push_str(lines);
        self.body.push_str("\t}\n");
    }

    /// A number that no other scope has.
    pub fn scope_number(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    /// A line that says what follows.
    pub fn note(&mut self, text: &str) {
        let text: String = text
            .chars()
            .map(|c| {
                if c.is_ascii_graphic() || c == ' ' {
                    c
                } else {
                    '?'
                }
            })
            .collect();
        self.body.push_str("\t// ");
        self.body.push_str(&text);
        self.body.push('\n');
    }

    /// An instruction that defines a fresh register of `kind`: `line` gives its text.
    pub fn def(&mut self, kind: Kind, line: impl FnOnce(Reg) -> String) -> Reg {
        let d = self.reg(kind);
        self.op(line(d));
        d
    }

    /// [`Text::def`] of a 32-bit register from an operation name and its operands.
    pub fn r(&mut self, op: &str, args: fmt::Arguments) -> Reg {
        self.def(Kind::R, |d| format!("{op} {d}, {args}"))
    }

    /// The same for 64 bits.
    pub fn d(&mut self, op: &str, args: fmt::Arguments) -> Reg {
        self.def(Kind::D, |d| format!("{op} {d}, {args}"))
    }

    /// The same for f32.
    pub fn f(&mut self, op: &str, args: fmt::Arguments) -> Reg {
        self.def(Kind::F, |d| format!("{op} {d}, {args}"))
    }

    /// The same for predicates.
    pub fn p(&mut self, op: &str, args: fmt::Arguments) -> Reg {
        self.def(Kind::P, |d| format!("{op} {d}, {args}"))
    }

    /// Both conditions; `None` always holds.
    pub fn both(&mut self, a: Option<Reg>, b: Option<Reg>) -> Option<Reg> {
        match (a, b) {
            (Some(a), Some(b)) if a != b => Some(self.p("and.pred", format_args!("{a}, {b}"))),
            (a, b) => a.or(b),
        }
    }

    /// Declarations, head and body, and the loops in it: their first labels and passes.
    pub fn finish(self) -> (String, Vec<(String, Dim)>) {
        let mut out = String::new();
        for (kind, ty, c) in [
            (Kind::P, "pred", "p"),
            (Kind::H, "b16", "h"),
            (Kind::R, "b32", "r"),
            (Kind::D, "b64", "d"),
            (Kind::F, "f32", "f"),
        ] {
            let n = self.used[kind as usize];
            if n > 0 {
                out.push_str(&format!("\t.reg .{ty} %{c}<{n}>;\n"));
            }
        }
        (out + &self.head + &self.body, self.loops)
    }
}

/// Prefix that makes an instruction depend on `p`.
pub(crate) fn when(p: Option<Reg>) -> String {
    p.map_or_else(String::new, |p| format!("@{p} "))
}
