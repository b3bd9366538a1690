//! Where printed instructions go: into a text, or, where they are only counted, into lines as those who count read them.
use crate::ptx::lines::{LineReader, Lines, Operand, RegisterName};
use std::fmt::{self, Display, Write};

/// A register's name: what kind it is of, and its number among those.
#[derive(Clone, Copy)]
pub(super) struct Name {
    pub kind: &'static str,
    pub number: u32,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // A text has a name in every word.
        let mut text = [0u8; 24];
        let mut at = text.len();
        let mut left = self.number;
        loop {
            at -= 1;
            text[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        let kind = self.kind.as_bytes();
        text[at - kind.len()..at].copy_from_slice(kind);
        at -= kind.len() + 1;
        text[at] = b'%';
        f.write_str(std::str::from_utf8(&text[at..]).map_err(|_| fmt::Error)?)
    }
}

/// The second operand of an instruction.
#[derive(Clone, Copy)]
pub(super) enum Second {
    Register(Name),
    Number(i64),
}

impl Display for Second {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Second::Register(name) => name.fmt(f),
            Second::Number(n) => n.fmt(f),
        }
    }
}

/// An operand of an instruction.
#[derive(Clone, Copy)]
pub(super) enum Arg<'a> {
    Register(Name),
    Number(i64),
    /// An address in a register, and bytes behind it.
    At(Name, i64),
    /// Registers in braces.
    List(&'a [Name]),
    /// A float by its bits.
    Single(f32),
    Double(f64),
    /// Something else without a register.
    Word(&'a str),
}

impl From<Name> for Arg<'_> {
    fn from(name: Name) -> Self {
        Arg::Register(name)
    }
}

impl From<Second> for Arg<'_> {
    fn from(second: Second) -> Self {
        match second {
            Second::Register(name) => Arg::Register(name),
            Second::Number(n) => Arg::Number(n),
        }
    }
}

impl Display for Arg<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Arg::Register(name) => name.fmt(f),
            Arg::Number(n) => n.fmt(f),
            Arg::At(base, 0) => write!(f, "[{base}]"),
            Arg::At(base, n) => write!(f, "[{base}+{n}]"),
            Arg::List(names) => write!(f, "{{{}}}", listed(names)),
            Arg::Single(v) => write!(f, "0f{:08X}", v.to_bits()),
            Arg::Double(v) => write!(f, "0d{:016X}", v.to_bits()),
            Arg::Word(word) => f.write_str(word),
        }
    }
}

/// Names with commas between them.
pub(super) fn listed(names: &[Name]) -> String {
    let names: Vec<String> = names.iter().map(Name::to_string).collect();
    names.join(", ")
}

/// Bytes of text for each value of a program, about.
const BYTES_OF_VALUE: usize = 40;

/// What is printed.
pub(super) enum Output {
    /// For an assembler.
    Text(String),
    /// To be counted; what has no quick way into lines is printed here first.
    Lines(Box<LineReader>, String),
}

impl Output {
    /// A text of about so many values.
    pub fn text(values: usize) -> Output {
        Output::Text(String::with_capacity(values * BYTES_OF_VALUE))
    }

    /// Lines of about so many values.
    pub fn lines(values: usize) -> Output {
        let reader = LineReader::new(values * BYTES_OF_VALUE);
        Output::Lines(Box::new(reader), String::new())
    }

    /// How many lines there are, where these are counted.
    pub fn place(&self) -> usize {
        match self {
            Output::Text(_) => 0,
            Output::Lines(reader, _) => reader.lines.lines.len(),
        }
    }

    /// The text; nothing of lines.
    pub fn into_text(self) -> String {
        match self {
            Output::Text(text) => text,
            Output::Lines(..) => String::new(),
        }
    }

    /// The lines; of a text they are read.
    pub fn into_lines(self) -> Lines {
        match self {
            Output::Text(text) => Lines::of(&text),
            Output::Lines(reader, _) => reader.lines,
        }
    }

    /// Adds a line, or several, as they stand in a text.
    pub fn line(&mut self, line: impl Display) {
        match self {
            Output::Text(text) => {
                let _ = writeln!(text, "\t{line}");
            }
            Output::Lines(reader, printed) => {
                printed.clear();
                let _ = write!(printed, "{line}");
                printed.lines().for_each(|l| reader.line(l));
            }
        }
    }

    /// Adds a label.
    pub fn label(&mut self, name: impl Display) {
        match self {
            Output::Text(text) => {
                let _ = writeln!(text, "{name}:");
            }
            Output::Lines(..) => self.line(format_args!("{name}:")),
        }
    }

    /// Adds an instruction whose name is put together of `op`, obeyed where `guard` holds.
    pub fn instruction(&mut self, guard: Option<Name>, op: &[&str], args: &[Arg]) {
        match self {
            Output::Text(text) => {
                text.push('\t');
                if let Some(g) = guard {
                    let _ = write!(text, "@{g} ");
                }
                op.iter().for_each(|p| text.push_str(p));
                for (n, arg) in args.iter().enumerate() {
                    text.push_str(if n == 0 { " " } else { ", " });
                    let _ = write!(text, "{arg}");
                }
                text.push_str(";\n");
            }
            Output::Lines(reader, _) => {
                let mut begun = reader.begin(guard.map(register), op);
                for arg in args {
                    let (kind, names) = match arg {
                        Arg::Register(name) | Arg::At(name, _) => (
                            Operand::Registers { braces: false },
                            std::slice::from_ref(name),
                        ),
                        Arg::List(names) => (Operand::Registers { braces: true }, *names),
                        Arg::Number(n) => (Operand::Number(*n), &[][..]),
                        Arg::Single(_) | Arg::Double(_) | Arg::Word(_) => (Operand::Other, &[][..]),
                    };
                    reader.operand(&mut begun, kind);
                    names.iter().for_each(|n| reader.register(register(*n)));
                }
                reader.end(begun);
            }
        }
    }
}

fn register(name: Name) -> RegisterName<'static> {
    RegisterName {
        kind: name.kind,
        number: name.number,
    }
}
