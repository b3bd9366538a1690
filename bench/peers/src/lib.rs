//! What every runner of a Rust engine does alike: read its inputs, measure, and print one line.
//!
//! A runner is called as `RUNNER MODEL INPUTS THREADS SECONDS`; INPUTS is a folder with `inputs.txt`,
//! a line `FILE DTYPE SIZExSIZE... NAME` per input (`-` for a scalar's sizes), and the elements of
//! each in FILE, packed and little-endian. Its last line is
//! `{"load_ms": .., "peak_bytes": .., "median_ms": .., "best_ms": .., "runs": ..}`; loading ends with the
//! first answer.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Whatever goes wrong ends the runner with its text.
pub type Failure = Box<dyn std::error::Error>;

/// An input as it lies in its file.
pub struct Input {
    /// The model's name of it.
    pub name: String,
    /// Element type as numpy calls it.
    pub dtype: String,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Elements, packed and little-endian.
    pub bytes: Vec<u8>,
}

impl Input {
    /// Elements of `N` bytes each, made by `f`.
    pub fn all<const N: usize, T>(&self, f: impl Fn([u8; N]) -> T) -> Vec<T> {
        let (pieces, _) = self.bytes.as_chunks::<N>();
        pieces.iter().map(|b| f(*b)).collect()
    }
}

/// The arguments of a runner.
pub struct Task {
    /// The ONNX file.
    pub model: String,
    /// Folder of its inputs, for files of the runner's own as well.
    pub folder: PathBuf,
    /// Its inputs.
    pub inputs: Vec<Input>,
    /// Threads to compute with.
    pub threads: usize,
    seconds: f64,
}

impl Task {
    /// Reads the command line.
    pub fn read() -> Result<Task, Failure> {
        let a: Vec<String> = std::env::args().skip(1).collect();
        let [model, folder, threads, seconds] = a.as_slice() else {
            return Err("usage: RUNNER MODEL INPUTS THREADS SECONDS".into());
        };
        let folder = Path::new(folder);
        let mut inputs = Vec::new();
        for line in std::fs::read_to_string(folder.join("inputs.txt"))?.lines() {
            let mut parts = line.splitn(4, ' ');
            let mut next = || parts.next().ok_or("inputs.txt has a short line");
            let (file, dtype, sizes, name) = (next()?, next()?, next()?, next()?);
            let sizes: Result<Vec<usize>, _> = match sizes {
                "-" => Ok(vec![]),
                s => s.split('x').map(str::parse).collect(),
            };
            inputs.push(Input {
                name: name.into(),
                dtype: dtype.into(),
                shape: sizes?,
                bytes: std::fs::read(folder.join(file))?,
            });
        }
        Ok(Task {
            model: model.clone(),
            folder: folder.into(),
            inputs,
            threads: threads.parse()?,
            seconds: seconds.parse()?,
        })
    }

    /// Runs `once` as often as fits and prints the line. `began` is when loading began.
    pub fn measure(
        &self,
        began: Instant,
        mut once: impl FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        once()?;
        let load = began.elapsed();
        let warm = Instant::now();
        for i in 0.. {
            if i >= 3 && warm.elapsed() > Duration::from_secs_f64(self.seconds / 5.0) {
                break;
            }
            once()?;
        }
        let mut ms = Vec::new();
        let start = Instant::now();
        while ms.len() < 5 || start.elapsed().as_secs_f64() < self.seconds {
            let t = Instant::now();
            once()?;
            ms.push(t.elapsed().as_secs_f64() * 1e3);
        }
        ms.sort_by(f64::total_cmp);
        println!(
            "{{\"load_ms\": {:.3}, \"peak_bytes\": {}, \"median_ms\": {:.6}, \"best_ms\": {:.6}, \"runs\": {}}}",
            load.as_secs_f64() * 1e3,
            peak(),
            ms[ms.len() / 2],
            ms[0],
            ms.len()
        );
        Ok(())
    }
}

/// Most memory that this process had resident, in bytes; 0 where the system does not say.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Ends the program with what went wrong in one line.
pub fn end(result: Result<(), Failure>) {
    if let Err(e) = result {
        eprintln!("{}", e.to_string().replace('\n', " "));
        std::process::exit(1);
    }
}
