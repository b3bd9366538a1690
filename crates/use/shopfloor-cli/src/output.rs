//! What goes to the terminal, and how commands end.

use crate::progress::Progress;
use serde::Serialize;
use shopfloor_tools::json as text;
use shopfloor_tools::report::{Style, units};
use shopfloor_tools::supervisor::supervise::Decision;
use std::io::{ErrorKind, IsTerminal, Write};

/// Why a command ends without success.
#[derive(Debug)]
pub enum Failure {
    /// The library says so.
    Library(shopfloor::Error),
    /// Operators that are not covered were already listed.
    Unsupported(String),
    /// Outputs differ from the reference.
    Differ(String),
    /// A stated goal was missed.
    Missed(String),
    /// There was something to test, and nothing of it was.
    Untested(String),
    /// Something is wrong with the kernel that was run.
    Found(String),
    /// The command line is wrong: an option, a value, or a name that there is not.
    Usage(String),
    /// Standard output cannot be written.
    Write(std::io::Error),
    /// The reader of standard output has gone: no fault.
    Closed,
}

impl From<shopfloor::Error> for Failure {
    fn from(e: shopfloor::Error) -> Failure {
        Failure::Library(e)
    }
}

impl From<shopfloor_tools::data::DataError> for Failure {
    fn from(e: shopfloor_tools::data::DataError) -> Failure {
        Failure::Library(shopfloor::Error::other(e))
    }
}

impl From<shopfloor_tools::predict::PredictError> for Failure {
    fn from(e: shopfloor_tools::predict::PredictError) -> Failure {
        Failure::Library(shopfloor::Error::other(e))
    }
}

impl Failure {
    /// Something that the command read is not what it should be, or is not there.
    pub fn of(why: String) -> Failure {
        Failure::Library(shopfloor::Error::Other(why.into()))
    }

    /// The exit code: 2 where another command line would help, 1 where that one fails while it runs. What cannot be
    /// parsed ends with 2 as well, by clap.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Library(e) if e.is_unsupported() => 3,
            Failure::Library(e) if e.is_unknown_name() => 2,
            Failure::Library(shopfloor::Error::Usage(_)) | Failure::Usage(_) => 2,
            Failure::Unsupported(_) => 3,
            Failure::Differ(_) => 4,
            Failure::Missed(_) => 5,
            Failure::Untested(_) => 6,
            Failure::Library(_) | Failure::Found(_) | Failure::Write(_) => 1,
            Failure::Closed => 0,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Library(e) => e.fmt(f),
            Failure::Unsupported(s)
            | Failure::Differ(s)
            | Failure::Missed(s)
            | Failure::Untested(s)
            | Failure::Found(s)
            | Failure::Usage(s) => f.write_str(s),
            Failure::Write(e) => write!(
                f,
                "standard output cannot be written: {e}; check where it goes"
            ),
            Failure::Closed => Ok(()),
        }
    }
}

/// What a command gives.
pub type Done = Result<(), Failure>;

fn color(terminal: bool) -> bool {
    terminal
        && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// How tables are printed: colours on a terminal only, 100 columns unless `COLUMNS` says more or less, down to 40.
pub fn style() -> Style {
    let width = std::env::var("COLUMNS")
        .ok()
        .and_then(|c| c.parse::<usize>().ok())
        .map(|w| w.clamp(40, 1000));
    Style {
        width: width.unwrap_or(100),
        color: color(std::io::stdout().is_terminal()),
    }
}

/// Writes to standard output.
pub fn print(text: &str) -> Done {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| match e.kind() {
            ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Write(e),
        })
}

/// Writes what people read: a line that is longer than the terminal goes on in the next. Tables keep to the width by
/// themselves.
pub fn page(text: &str) -> Done {
    let width = style().width;
    let mut out = String::new();
    for line in text.lines() {
        // Colours take no columns; what has them was made to fit.
        let lines = match line.contains('\x1b') {
            true => vec![line.to_string()],
            false => units::broken(line, width),
        };
        for l in lines {
            out += &l;
            out.push('\n');
        }
    }
    print(&out)
}

/// Writes `value` as JSON.
pub fn json(value: &impl Serialize) -> Done {
    let compact = text::compact(value).map_err(|e| Failure::Write(std::io::Error::other(e)))?;
    print(&(text::indented(&compact) + "\n"))
}

/// Says something on standard error that is no result.
pub fn note(text: &str) {
    // Nobody is left to tell when standard error is gone.
    let _ = writeln!(std::io::stderr(), "note: {text}");
}

/// Says on standard error why a command failed.
pub fn complain(f: &Failure) {
    let label = if color(std::io::stderr().is_terminal()) {
        "\x1b[1;31merror\x1b[0m"
    } else {
        "error"
    };
    let _ = writeln!(std::io::stderr(), "{label}: {f}");
}

/// Does `work` under a bar; the work tells it the share done, 0 to 1.
pub fn measuring<T>(work: impl FnOnce(&(dyn Fn(f64) + Sync)) -> T) -> T {
    let progress = Progress::bar("measuring");
    work(&|share| progress.done(share))
}

/// Writes a report, as JSON or as `text` makes of it.
pub fn report<T: Serialize>(
    as_json: bool,
    report: &T,
    text: impl FnOnce(&T, Style) -> String,
) -> Done {
    match as_json {
        true => json(report),
        false => page(&text(report, style())),
    }
}

/// A decision as people read it, in lines of at most `width` columns.
pub fn decision(d: &Decision, width: usize) -> String {
    let w = &d.why;
    let text = format!("{} {}: {} ({})", w.pass, w.subject, w.choice, w.reason);
    let (mut out, mut at) = (format!("{:>8.2} s ", d.at), 11);
    for word in text.split_whitespace() {
        let n = word.chars().count();
        if at + 1 + n > width && at > 12 {
            out += "\n            ";
            at = 12;
        } else {
            out.push(' ');
            at += 1;
        }
        out += word;
        at += n;
    }
    out + "\n"
}
