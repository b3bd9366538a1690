//! The socket at which an engine is asked for its state.
use super::Status;
use crate::{Engine, Error};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of a question at most.
const QUESTION: u64 = 4096;
/// Bytes of an answer at most, as a reader takes it.
const ANSWER: u64 = 64 << 20;
/// How long a question or an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers questions about an engine on a socket until it is dropped: a line `status` is answered with
/// JSON, a line `metrics` or an HTTP request with Prometheus' text.
pub struct StatusServer {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> Error {
    let path = path.display().to_string();
    move |source| Error::Io {
        path: path.clone(),
        source,
    }
}

fn bind(path: &Path) -> std::io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(e) if e.kind() == ErrorKind::AddrInUse && is_stale(path) => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        made => made,
    }
}

/// Whether a socket is there at which nobody listens.
fn is_stale(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    let refused = |e: std::io::Error| e.kind() == ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).is_err_and(refused)
}

impl StatusServer {
    /// Begins to answer at the Unix socket `path`. A socket that a process left there when it was ended is
    /// replaced: nobody listens at it.
    ///
    /// # Errors
    /// The socket cannot be made, or somebody listens at it.
    pub fn start(engine: Arc<Engine>, path: impl AsRef<Path>) -> Result<StatusServer, Error> {
        let path = path.as_ref().to_path_buf();
        let listener = bind(&path).map_err(io(&path))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stops = stop.clone();
        let began = std::time::Instant::now();
        let thread = std::thread::Builder::new()
            .name("shopfloor-status".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    if stops.load(Ordering::SeqCst) {
                        return;
                    }
                    // Who asks badly, or leaves in the middle, hurts nobody else.
                    if let Ok(s) = stream {
                        let _ = answer(s, &engine, began.elapsed().as_secs_f64());
                    }
                }
            })
            .map_err(io(&path))?;
        Ok(StatusServer {
            path,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // So that it looks up.
        let _ = UnixStream::connect(&self.path);
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn answer(mut stream: UnixStream, engine: &Engine, at_s: f64) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(QUESTION)).read_line(&mut line)?;
    let status = Status::of(engine, at_s);
    let text = match line.trim() {
        "status" => serde_json::to_string(&status).map_err(std::io::Error::other)?,
        "metrics" => status.prometheus(),
        http if http.starts_with("GET ") => {
            let body = status.prometheus();
            let n = body.len();
            format!(
                "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {n}\r\n\r\n{body}"
            )
        }
        _ => "ask for status or metrics\n".into(),
    };
    stream.write_all(text.as_bytes())
}

fn ask(path: &Path, question: &str) -> Result<String, Error> {
    let fail = io(path);
    let mut s = UnixStream::connect(path).map_err(&fail)?;
    s.set_read_timeout(Some(PATIENCE)).map_err(&fail)?;
    s.write_all(question.as_bytes()).map_err(&fail)?;
    let mut text = String::new();
    s.take(ANSWER).read_to_string(&mut text).map_err(&fail)?;
    Ok(text)
}

/// The state of the engine that answers at the socket `path`.
///
/// # Errors
/// Nobody answers there, or not with a state.
pub fn status_at(path: impl AsRef<Path>) -> Result<Status, Error> {
    let path = path.as_ref();
    let text = ask(path, "status\n")?;
    serde_json::from_str(&text).map_err(|e| {
        let path = path.display();
        Error::Other(format!("what answers at {path} is no engine of this version: {e}").into())
    })
}

/// The metrics of the engine that answers at the socket `path`, as Prometheus reads them.
///
/// # Errors
/// Nobody answers there.
pub fn metrics_at(path: impl AsRef<Path>) -> Result<String, Error> {
    ask(path.as_ref(), "metrics\n")
}
