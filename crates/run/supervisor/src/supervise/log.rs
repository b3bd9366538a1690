//! The supervisor's log: observations and actions line by line, and their replay.
use super::{Action, Decision, Observation, Options, Supervisor};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};

/// Longest line that is read: a window of a large engine is far below it.
const LINE: usize = 64 << 20;

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Reading or writing failed.
    #[error("the log cannot be read or written: {0}; check the path and the disk")]
    Io(#[from] std::io::Error),
    /// A line is not what was expected.
    #[error("line {line} of the log cannot be read: {why}; record it anew with --log")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

/// One line: what the supervisor was told, and what it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When, in the caller's seconds.
    pub at: f64,
    /// What it was told.
    pub told: Observation,
    /// What it said.
    pub did: Vec<Action>,
}

/// Writes records: the options first, then a line each.
#[derive(Debug)]
pub struct Log<W: Write> {
    to: W,
}

impl<W: Write> Log<W> {
    /// Begins a log.
    ///
    /// # Errors
    /// Writing failed.
    pub fn new(mut to: W, options: &Options) -> Result<Log<W>, LogError> {
        serde_json::to_writer(&mut to, options).map_err(std::io::Error::from)?;
        to.write_all(b"\n")?;
        Ok(Log { to })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// Writing failed.
    pub fn write(&mut self, record: &Record) -> Result<(), LogError> {
        serde_json::to_writer(&mut self.to, record).map_err(std::io::Error::from)?;
        self.to.write_all(b"\n")?;
        Ok(())
    }

    /// What it was written to.
    pub fn into_inner(self) -> W {
        self.to
    }
}

/// A log gone through again.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// The decisions of this time.
    pub decisions: Vec<Decision>,
    /// Records read.
    pub records: usize,
    /// The first line whose actions were not those of the log, from 1.
    pub differs_at: Option<usize>,
}

/// Tells a new supervisor what the log says another was told.
///
/// # Errors
/// The log cannot be read; a line cut off at its end, as by a crash, is left out.
pub fn replay(log: impl BufRead) -> Result<Replayed, LogError> {
    let mut lines = Lines { from: log, line: 0 };
    let bad = |line, e: serde_json::Error| LogError::Line {
        line,
        why: e.to_string(),
    };
    let first = lines.next()?.ok_or(LogError::Line {
        line: 1,
        why: "it is empty".into(),
    })?;
    let options: Options = serde_json::from_str(first.0.trim()).map_err(|e| bad(1, e))?;
    let mut supervisor = Supervisor::new(options);
    let mut out = Replayed {
        decisions: Vec::new(),
        records: 0,
        differs_at: None,
    };
    while let Some((text, whole)) = lines.next()? {
        if text.trim().is_empty() {
            continue;
        }
        let record: Record = match serde_json::from_str(text.trim()) {
            Ok(r) => r,
            Err(_) if !whole => break,
            Err(e) => return Err(bad(lines.line, e)),
        };
        out.records += 1;
        let did = supervisor.step(record.at, record.told);
        if did != record.did && out.differs_at.is_none() {
            out.differs_at = Some(lines.line);
        }
        out.decisions
            .extend(did.into_iter().filter_map(|a| match a {
                Action::Note(d) => Some(d),
                _ => None,
            }));
    }
    Ok(out)
}

struct Lines<R> {
    from: R,
    line: usize,
}

impl<R: BufRead> Lines<R> {
    /// The next line, and whether it ends with one; `None` at the end.
    fn next(&mut self) -> Result<Option<(String, bool)>, LogError> {
        let mut bytes = Vec::new();
        loop {
            let chunk = self.from.fill_buf()?;
            let end = chunk.iter().position(|b| *b == b'\n');
            let take = end.map_or(chunk.len(), |e| e + 1);
            bytes.extend_from_slice(&chunk[..take]);
            self.from.consume(take);
            if bytes.len() > LINE {
                return Err(LogError::Line {
                    line: self.line + 1,
                    why: format!("it is longer than {LINE} bytes"),
                });
            }
            if end.is_some() || take == 0 {
                break;
            }
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        self.line += 1;
        let whole = bytes.last() == Some(&b'\n');
        let text = String::from_utf8(bytes).map_err(|e| LogError::Line {
            line: self.line,
            why: e.to_string(),
        })?;
        Ok(Some((text, whole)))
    }
}
