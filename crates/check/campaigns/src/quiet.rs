//! Locks that keep other jobs away while something is timed, on machines that are shared.
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Files that are locked (flock) while something is timed; none is fine.
pub struct Quiet {
    files: Vec<PathBuf>,
    held: Vec<File>,
    since: Instant,
}

/// Others get their turn after this long.
const TURN: Duration = Duration::from_secs(40);

impl Quiet {
    /// Nothing is locked yet.
    pub fn new(files: Vec<PathBuf>) -> Quiet {
        Quiet {
            files,
            held: vec![],
            since: Instant::now(),
        }
    }

    /// Takes the locks in their order, or keeps those it has; after a while it lets others in first.
    pub fn hold(&mut self) -> Result<(), String> {
        if self.since.elapsed() > TURN {
            self.release();
            // Long enough for one who asks again and again.
            if !self.files.is_empty() {
                std::thread::sleep(Duration::from_millis(700));
            }
        }
        if !self.held.is_empty() {
            return Ok(());
        }
        for f in &self.files {
            let fail = |e: std::io::Error| format!("{}: {e}", f.display());
            let file = File::options().create(true).append(true).open(f);
            let file = file.map_err(fail)?;
            file.lock().map_err(fail)?;
            self.held.push(file);
        }
        self.since = Instant::now();
        Ok(())
    }

    /// Lets others in.
    pub fn release(&mut self) {
        self.held.clear();
    }
}
