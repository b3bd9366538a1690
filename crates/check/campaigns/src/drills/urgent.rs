//! An urgent model beside a busy one, and the same pair in two processes of another engine.
use super::world::{
    WORKERS, bundled, closed, engine, given, open, poisson, quantile, rate, session, supervise,
    text,
};
use super::{Aim, Figure, How, Outcome};
use crate::pages::root;
use crate::quiet::Quiet;
use shopfloor::{Session, Tensor, Timeline, inputs};
use shopfloor_tools::data;
use std::process::Command;
use std::time::Duration;

const URGENT: &str = "ppocr_cls";
const BACKGROUND: &str = "magika";
/// Urgent requests per second.
const RATE: f64 = 100.0;
/// Callers of the background model.
const CALLERS: usize = 2;
/// Alone and beside the background take turns so often in a block: what the machine does to one of them it does to
/// the other, and the worst in a hundred are enough to be told from chance.
const TURNS: u64 = 3;

/// The longest task of a request, in seconds: the median of several requests, since any task may be held up.
fn longest_task(s: &Session, x: &[(&str, &Tensor)]) -> Result<f64, String> {
    let mut all = Vec::new();
    for _ in 0..9 {
        let mut t = Timeline::default();
        s.run_timed(x, &mut t).map_err(text)?;
        // A ticket may be several tasks: a worker looks up between them.
        let each = t.spans.iter();
        let longest = each.map(|s| (s.end_ns - s.start_ns) as f64 / f64::from(s.tasks.max(1)));
        all.push(1e-9 * longest.fold(0.0, f64::max));
    }
    Ok(quantile(all, 0.5))
}

/// Urgent requests (when, how long, whether answered).
type Requests = Vec<(f64, f64, bool)>;

/// What a block of the pair in one engine gave.
struct Pair {
    /// Seconds of the background's longest task.
    task: f64,
    /// Urgent requests alone, and beside the background.
    alone: Requests,
    beside: Requests,
    /// The background's requests per second alone, and beside the urgent ones.
    done: f64,
    left: f64,
    /// Inputs of both models.
    inputs: [inputs::Named; 2],
}

impl Pair {
    fn measure(block: usize, time: Duration) -> Result<Pair, String> {
        let seconds = time.as_secs_f64();
        let e = engine(None, None)?;
        let u = session(&e, URGENT, |b| b.with_priority(10))?;
        let b = session(&e, BACKGROUND, |b| b)?;
        let (xu, xb) = (given(&u, &[])?, given(&b, &[])?);
        let (gu, gb) = (inputs::borrowed(&xu), inputs::borrowed(&xb));
        u.run(&gu).map_err(text)?;
        b.run(&gb).map_err(text)?;
        let task = longest_task(&b, &gb)?;
        let watching = supervise(&e)?;
        // Callers that have called before: who has not takes its turns on the processors like anybody else, and
        // as many as the callers are one in a hundred of the requests.
        let urgent = |turn: u64| {
            let ats = poisson(RATE, 0.0, seconds, 7 + TURNS * block as u64 + turn);
            open(4, &ats, &|| drop(u.run(&gu)), &|_| u.run(&gu).is_ok())
        };
        let background = || closed(CALLERS, time, &|_| b.run(&gb).map(drop).map_err(text));
        let (mut alone, mut beside, mut done, mut left) = (vec![], vec![], 0.0, 0.0);
        for turn in 0..TURNS {
            alone.extend(urgent(turn));
            done += rate(&background()?, 0.0, seconds) / TURNS as f64;
            let (all, rest) = std::thread::scope(|s| {
                let t = s.spawn(|| urgent(turn));
                let rest = background();
                (t.join().unwrap_or_default(), rest)
            });
            beside.extend(all);
            if beside.len() != alone.len() {
                return Err("an urgent caller panicked: its requests are missing".into());
            }
            left += rate(&rest?, 0.0, seconds) / TURNS as f64;
        }
        watching.finish().map_err(text)?;
        if beside.iter().chain(&alone).any(|r| !r.2) {
            return Err("an urgent request failed".into());
        }
        drop((gu, gb));
        Ok(Pair {
            task,
            alone,
            beside,
            done,
            left,
            inputs: [xu, xb],
        })
    }

    /// The background's share of the time that urgent requests leave.
    fn share(&self) -> f64 {
        let took = time_of(&self.alone, 0.5);
        self.left / (self.done * (1.0 - (took * RATE).min(1.0)))
    }
}

/// The quantile `q` of the seconds that requests took.
fn time_of(all: &Requests, q: f64) -> f64 {
    quantile(all.iter().map(|r| r.1).collect(), q)
}

pub fn urgent(how: &How, quiet: &mut Quiet) -> Result<Outcome, String> {
    let time = how.seconds(4.0, 2.0);
    let (mut over, mut left, mut alone99, mut beside99) = (vec![], vec![], vec![], vec![]);
    let mut shares = [(0.5, "median"), (0.9, "p90")].map(|(q, n)| (q, n, vec![], vec![]));
    let (mut theirs, mut their_left) = (vec![], vec![]);
    let mut notes = Vec::new();
    let mut others = TwoProcesses::find(&how.python);
    for block in 0..how.blocks {
        quiet.hold()?;
        let p = Pair::measure(block, time)?;
        let (a, t) = (time_of(&p.alone, 0.99), time_of(&p.beside, 0.99));
        alone99.push(1e3 * a);
        beside99.push(1e3 * t);
        for (q, _, alone, beside) in &mut shares {
            alone.push(1e3 * time_of(&p.alone, *q));
            beside.push(1e3 * time_of(&p.beside, *q));
        }
        over.push(t / (a + p.task));
        left.push(p.share());
        if block == 0 {
            notes.push(format!(
                "{URGENT} at {RATE} requests/s with priority 10 from callers that have called before, beside {BACKGROUND} with {CALLERS} callers, alone and beside it in turns, {TURNS} times in a block; the background's longest task takes {:.3} ms.",
                1e3 * p.task
            ));
        }
        if let Ok(o) = &mut others {
            let [xu, xb] = &p.inputs;
            match o.measure(xu, xb, time.as_secs_f64()) {
                Ok([a, t, most, beside, took]) => {
                    theirs.push(t / a);
                    their_left.push(beside / (most * (1.0 - (took * RATE).min(1.0))));
                }
                Err(e) => others = Err(e),
            }
        }
    }
    let ratio: Vec<f64> = alone99.iter().zip(&beside99).map(|(a, t)| t / a).collect();
    let mut figures = vec![
        Figure::new(
            "p99 beside the background, over p99 alone plus its longest task",
            Aim::Most(1.0),
            "",
            over,
        ),
        Figure::new(
            "background: share of what is left",
            Aim::Least(0.8),
            "",
            left,
        ),
        Figure::new("p99 alone", Aim::Told, " ms", alone99),
        Figure::new("p99 beside the background", Aim::Told, " ms", beside99),
        Figure::new("p99 beside over alone", Aim::Told, "", ratio),
    ];
    for (_, name, alone, beside) in shares {
        for (which, values) in [("alone", alone), ("beside the background", beside)] {
            figures.push(Figure::new(
                &format!("{name} {which}"),
                Aim::Told,
                " ms",
                values,
            ));
        }
    }
    match others {
        Ok(_) => {
            figures.push(Figure::new(
                "two onnxruntime processes: p99 beside over alone",
                Aim::Told,
                "",
                theirs,
            ));
            figures.push(Figure::new(
                "two onnxruntime processes: background's share of what is left",
                Aim::Told,
                "",
                their_left,
            ));
        }
        Err(why) => notes.push(format!(
            "Left out: the same pair in two onnxruntime processes ({why})."
        )),
    }
    Ok(Outcome { figures, notes })
}

/// The same pair in two processes of onnxruntime, each with as many threads as the engine has workers.
struct TwoProcesses {
    python: String,
    folder: tempfile::TempDir,
}

impl TwoProcesses {
    fn find(python: &str) -> Result<TwoProcesses, String> {
        let out = Command::new(python)
            .args(["-c", "import onnxruntime"])
            .output();
        match out {
            Ok(o) if o.status.success() => Ok(TwoProcesses {
                python: python.into(),
                folder: tempfile::tempdir().map_err(text)?,
            }),
            _ => Err(format!(
                "{python} has no onnxruntime; install it and name the Python with --python"
            )),
        }
    }

    /// Urgent p99 alone and beside, the background's requests per second alone and beside, and the median
    /// of an urgent request alone.
    fn measure(
        &mut self,
        xu: &inputs::Named,
        xb: &inputs::Named,
        seconds: f64,
    ) -> Result<[f64; 5], String> {
        let (fu, fb) = (
            self.folder.path().join("u.npz"),
            self.folder.path().join("b.npz"),
        );
        data::write_npz(&fu, xu).map_err(text)?;
        data::write_npz(&fb, xb).map_err(text)?;
        let out = Command::new(&self.python)
            .arg(root().join("bench/peers/pair.py"))
            .arg(bundled(URGENT))
            .arg(fu)
            .arg(bundled(BACKGROUND))
            .arg(fb)
            .args([
                WORKERS.to_string(),
                seconds.to_string(),
                RATE.to_string(),
                CALLERS.to_string(),
            ])
            .output()
            .map_err(text)?;
        let said = String::from_utf8_lossy(&out.stdout);
        let values: Vec<f64> = said
            .split_whitespace()
            .filter_map(|w| w.parse().ok())
            .collect();
        values.try_into().map_err(|_| {
            let err = String::from_utf8_lossy(&out.stderr);
            format!(
                "it ended with {}: {}",
                out.status,
                err.lines().last().unwrap_or_default()
            )
        })
    }
}
