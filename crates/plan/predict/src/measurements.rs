//! Measurements files: kernels, whole models and decoding, each row with its place in the file.

use crate::PredictError;
pub use crate::columns::{DECODE, KERNELS, MODELS};
use crate::csv::{self, Record};
use std::path::Path;

/// What a row measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// One call of a library.
    Kernel {
        /// What was called: `linear`, `softmax`, ...
        op: String,
        /// Sizes by name, in the order of the file.
        params: Vec<(String, String)>,
    },
    /// A whole model.
    Model {
        /// The framework with its version.
        framework: String,
        /// The model's name.
        model: String,
        /// `inference`, `train`, `train_fwd_bwd`.
        mode: String,
        /// Samples of one run; `None` where the source does not say.
        batch: Option<u64>,
        /// What one sample is: `seq=512`, `3x224x224`.
        input: String,
    },
    /// Tokens of a language model.
    Decode {
        /// GPUs together.
        gpus: u64,
        /// The framework.
        framework: String,
        /// The model's name.
        model: String,
        /// How its weights are stored.
        quant: String,
        /// `tg128`, `pp512`, `tg`.
        test: String,
    },
}

/// One row of a measurements file.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Line of the file, from 1.
    pub line: usize,
    /// Who measured.
    pub source: String,
    /// The processor, as the source calls it.
    pub gpu: String,
    /// What.
    pub subject: Subject,
    /// The type of numbers as the source calls it.
    pub dtype: String,
    /// Measured time: of a kernel or a run of a model, or of one token; seconds, above 0.
    pub seconds: f64,
    /// What the source says beside it.
    pub note: String,
}

impl Row {
    /// What groups of rows are listed by: the operator, a model's mode, a test's kind.
    pub fn op(&self) -> &str {
        match &self.subject {
            Subject::Kernel { op, .. } => op,
            Subject::Model { mode, .. } => mode,
            Subject::Decode { test, .. } => test.trim_end_matches(|c: char| c.is_ascii_digit()),
        }
    }
}

/// The rows of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    /// Name of the file.
    pub file: String,
    /// Its rows, in its order.
    pub rows: Vec<Row>,
}

/// Fields of one record by column.
struct Fields<'a> {
    file: &'a str,
    columns: &'a [&'a str],
    record: &'a Record,
}

impl Fields<'_> {
    fn bad(&self, column: &str, what: String) -> PredictError {
        PredictError::Field {
            file: self.file.into(),
            line: self.record.line,
            column: column.into(),
            what,
        }
    }
    fn get(&self, column: &str) -> &str {
        let at = self.columns.iter().position(|c| *c == column);
        at.and_then(|a| self.record.fields.get(a))
            .map_or("", |s| s.trim())
    }
    fn word(&self, column: &str) -> Result<String, PredictError> {
        match self.get(column) {
            "" => Err(self.bad(column, "it is empty".into())),
            w => Ok(w.to_string()),
        }
    }
    /// A measured figure, above 0 and of a size that can be measured.
    fn figure(&self, column: &str) -> Result<f64, PredictError> {
        let text = self.get(column);
        match text.parse::<f64>() {
            Ok(v) if (1e-9..=1e15).contains(&v) => Ok(v),
            Ok(v) if v.is_finite() && v > 0.0 => Err(self.bad(
                column,
                format!("`{text}` is out of what is measured, 1e-9 to 1e15"),
            )),
            Ok(_) => Err(self.bad(column, format!("`{text}` is not above 0 and finite"))),
            Err(_) => Err(self.bad(column, format!("`{text}` is no number"))),
        }
    }
    fn count(&self, column: &str) -> Result<u64, PredictError> {
        let text = self.get(column);
        match text.parse::<u64>() {
            Ok(v) if (1..=1 << 40).contains(&v) => Ok(v),
            _ => Err(self.bad(column, format!("`{text}` is no count from 1"))),
        }
    }
    /// `key=value` joined by `;`.
    fn params(&self) -> Result<Vec<(String, String)>, PredictError> {
        let text = self.get("params");
        let parts = text.split(';').filter(|p| !p.is_empty());
        parts
            .map(|p| match p.split_once('=') {
                Some((k, v)) if !k.is_empty() && !v.is_empty() => {
                    Ok((k.trim().to_string(), v.trim().to_string()))
                }
                _ => Err(self.bad("params", format!("`{p}` is no key=value"))),
            })
            .collect()
    }
}

impl Measurements {
    /// Reads a file, plain or gzipped.
    ///
    /// # Errors
    /// A file that does not open, or the line and column of what does not read.
    pub fn open(path: &Path) -> Result<Measurements, PredictError> {
        Measurements::parse(&csv::text(path)?, &path.display().to_string())
    }

    /// Reads the text of a file that errors call `file`.
    ///
    /// # Errors
    /// The line and column of what does not read.
    pub fn parse(text: &str, file: &str) -> Result<Measurements, PredictError> {
        let records = csv::records(text, file)?;
        let head = records.first().map_or(&[][..], |r| &r.fields);
        let head: Vec<&str> = head.iter().map(|f| f.trim()).collect();
        let has = |wanted: &[&str]| wanted.iter().all(|w| head.contains(w));
        // A source may leave its notes out, and what is not read of a model.
        let needed = |all: &'static [&'static str], spare: &[&str]| -> Vec<&str> {
            let keep = all.iter().filter(|c| !spare.contains(*c));
            keep.copied().collect()
        };
        let kernels = has(&needed(KERNELS, &["note"]));
        let models = has(&needed(
            MODELS,
            &["throughput_per_s", "fwd_ms", "bwd_ms", "note"],
        ));
        let decode = has(&needed(DECODE, &["note"]));
        if !kernels && !models && !decode {
            return Err(PredictError::Header {
                file: file.into(),
                found: head.join(",").chars().take(200).collect(),
            });
        }
        let mut rows = Vec::with_capacity(records.len());
        for record in &records[1..] {
            let f = Fields {
                file,
                columns: &head,
                record,
            };
            if record.fields.len() != head.len() {
                let (n, of) = (record.fields.len(), head.len());
                let column = match head.get(n.min(of.saturating_sub(1))) {
                    Some(c) => c.to_string(),
                    None => n.to_string(),
                };
                return Err(f.bad(&column, format!("{n} fields; the first line has {of}")));
            }
            let (subject, seconds) = if kernels {
                let op = f.word("op")?;
                let params = f.params()?;
                (
                    Subject::Kernel { op, params },
                    f.figure("measured_us")? * 1e-6,
                )
            } else if models {
                let batch = match f.get("batch") {
                    "" => None,
                    _ => Some(f.count("batch")?),
                };
                // Throughput runs have no latency: a batch, or one sample, takes its share.
                let seconds = match (f.get("latency_ms"), f.get("throughput_per_s")) {
                    ("", t) if !t.is_empty() => {
                        batch.unwrap_or(1) as f64 / f.figure("throughput_per_s")?
                    }
                    _ => f.figure("latency_ms")? * 1e-3,
                };
                let subject = Subject::Model {
                    framework: f.get("framework").into(),
                    model: f.word("model")?,
                    mode: f.word("mode")?,
                    batch,
                    input: f.get("input").into(),
                };
                (subject, seconds)
            } else {
                let subject = Subject::Decode {
                    gpus: f.count("n_gpu")?,
                    framework: f.get("framework").into(),
                    model: f.word("model")?,
                    quant: f.get("quant").into(),
                    test: f.word("test")?,
                };
                (subject, 1.0 / f.figure("tokens_per_s")?)
            };
            rows.push(Row {
                line: record.line,
                source: f.word("source")?,
                gpu: f.word("gpu")?,
                subject,
                dtype: f.get("dtype").into(),
                seconds,
                note: f.get("note").into(),
            });
        }
        Ok(Measurements {
            file: file.into(),
            rows,
        })
    }
}
