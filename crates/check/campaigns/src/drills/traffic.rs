//! Requests are not those that were planned for.
use super::world::{
    bundled, changes, closed, engine, given, open, poisson, quantile, rate, session, supervise,
    text,
};
use super::{Aim, Figure, How, Outcome};
use crate::quiet::Quiet;
use shopfloor::{Session, Tensor, inputs};
use std::time::Duration;

/// Threads that send requests of a session.
const SENDERS: usize = 6;

/// Median seconds of a request with the machine for itself.
fn alone(s: &Session, x: &[(&str, &Tensor)]) -> Result<f64, String> {
    let all = closed(1, Duration::from_millis(300), &|_| {
        s.run(x).map(drop).map_err(text)
    })?;
    Ok(quantile(all.iter().map(|a| a.1).collect(), 0.5))
}

/// The dim of the second model whose value is not the one that was planned for.
const WIDTH: &str = "DynamicDimension.1";
const SHORT: i64 = 160;
const LONG: i64 = 320;

/// Requests (when, how long, whether answered).
type Requests = Vec<(f64, f64, bool)>;

/// Requests of the second model when, at `at` of `end` seconds, it takes over from the first with longer ones;
/// how many were lost, and what the supervisor changed. Without one the second length is planned for before
/// anybody asks for it: that is the oracle.
fn shifted(
    supervised: bool,
    (at, end): (f64, f64),
    seed: u64,
) -> Result<(Requests, f64, Vec<String>), String> {
    let e = engine(None, None)?;
    let (a, b) = (
        session(&e, "ppocr_cls", |b| b)?,
        session(&e, "ppocr_rec", |b| b)?,
    );
    let (xa, xs, xl) = (
        given(&a, &[])?,
        given(&b, &[(WIDTH, SHORT)])?,
        given(&b, &[(WIDTH, LONG)])?,
    );
    let (xa, xs, xl) = (
        inputs::borrowed(&xa),
        inputs::borrowed(&xs),
        inputs::borrowed(&xl),
    );
    let (ta, ts) = (alone(&a, &xa)?, alone(&b, &xs)?);
    // Longer requests of b take about as much longer as they are.
    let tl = ts * LONG as f64 / SHORT as f64;
    if !supervised {
        b.run(&xl).map_err(text)?;
    }
    let watching = supervised.then(|| supervise(&e)).transpose()?;
    let mut ats = poisson(0.5 / ta, 0.0, at, seed);
    ats.extend(poisson(0.05 / ta, at, end, seed + 100));
    let mut bts = poisson(0.05 / ts, 0.0, at, seed + 200);
    bts.extend(poisson(0.5 / tl, at, end, seed + 300));
    let b_due = bts.clone();
    let (sa, sb) = std::thread::scope(|s| {
        let first = s.spawn(|| open(SENDERS, &ats, &|| {}, &|_| a.run(&xa).is_ok()));
        let second = open(SENDERS, &bts, &|| {}, &|i| {
            let x = if b_due[i] < at { &xs } else { &xl };
            b.run(x).is_ok()
        });
        (first.join().unwrap_or_default(), second)
    });
    if let Some(w) = watching {
        w.finish().map_err(text)?;
    }
    let bad = sa.iter().chain(&sb).filter(|r| !r.2).count();
    let missing = ats.len() + bts.len() - sa.len() - sb.len();
    Ok((sb, (bad + missing) as f64, changes(&e.decisions())))
}

pub fn shift(how: &How, quiet: &mut Quiet) -> Result<Outcome, String> {
    let (at, end) = match how.quick {
        true => (1.5, 5.0),
        false => (3.0, 8.0),
    };
    let (mut ratio, mut lost, mut time, mut notes) = (vec![], vec![], vec![], vec![]);
    for block in 0..how.blocks {
        quiet.hold()?;
        let once = |supervised| shifted(supervised, (at, end), 17 + block as u64);
        let (s, o) = match block % 2 {
            0 => {
                let s = once(true)?;
                (s, once(false)?)
            }
            _ => {
                let o = once(false)?;
                (once(true)?, o)
            }
        };
        let late = |all: &[(f64, f64, bool)], from: f64| -> f64 {
            let those = all.iter().filter(|r| r.0 >= from);
            quantile(those.map(|r| r.1).collect(), 0.99)
        };
        let best = late(&o.0, at + 2.0);
        ratio.push(late(&s.0, at + 2.0) / best);
        lost.push(s.1);
        // From when on no request took longer than 1.3 times the oracle's p99.
        let slow = s.0.iter().filter(|r| r.0 >= at && r.1 > 1.3 * best);
        let early = slow.filter(|r| r.0 < at + 2.0).map(|r| r.0 + r.1 - at);
        time.push(early.fold(0.0, f64::max));
        if block == 0 {
            notes.push(format!(
                "ppocr_cls at half of what one request at a time can do gives way to ppocr_rec at width {LONG} instead of {SHORT}; the oracle had that width planned. Its p99 in the first block: {:.2} ms. The supervisor's changes: {}.",
                1e3 * best,
                match s.2.is_empty() {
                    true => "none".into(),
                    false => s.2.join("; "),
                }
            ));
        }
    }
    Ok(Outcome {
        figures: vec![
            Figure::new(
                "p99 from 2 s after the shift on, over the oracle's",
                Aim::Most(1.3),
                "",
                ratio,
            ),
            Figure::new(
                "last request beyond 1.3 times that in the first 2 s, after",
                Aim::Most(2.0),
                " s",
                time,
            ),
            Figure::new("requests lost or failed", Aim::Most(0.0), "", lost),
        ],
        notes,
    })
}

pub fn burst(how: &How, quiet: &mut Quiet) -> Result<Outcome, String> {
    let burst = how.seconds(5.0, 3.0).as_secs_f64();
    let (from, to) = (1.0, 1.0 + burst);
    let end = to + 1.0;
    let (mut kept, mut heard, mut used, mut after) = (vec![], vec![], vec![], vec![]);
    let mut notes = vec![];
    for block in 0..how.blocks {
        quiet.hold()?;
        let e = engine(None, None)?;
        let probe = session(&e, "ppocr_cls", |b| b)?;
        let x = given(&probe, &[])?;
        let x = inputs::borrowed(&x);
        probe.run(&x).map_err(text)?;
        let one = alone(&probe, &x)?;
        // What the engine can do with as many callers as there will be.
        let can = closed(2 * SENDERS, Duration::from_millis(700), &|_| {
            probe.run(&x).map(drop).map_err(text)
        })?;
        let can = rate(&can, 0.1, 0.7);
        drop(probe);
        let deadline = (20.0 * one).max(0.02);
        let s = Session::builder()
            .with_engine(e.clone())
            .with_deadline(Duration::from_secs_f64(deadline))
            .with_queue(8, 256)
            .commit_from_file(bundled("ppocr_cls"))
            .map_err(text)?;
        s.run(&x).map_err(text)?;
        let watching = supervise(&e)?;
        let usual = 0.3 * can;
        let mut ats = poisson(usual, 0.0, end, 40 + block as u64);
        ats.extend(poisson(9.0 * usual, from, to, 140 + block as u64));
        ats.sort_by(f64::total_cmp);
        // Who sends waits for the answer: enough of them that nobody is late to send.
        let all = open(128, &ats, &|| {}, &|_| {
            let sent = std::time::Instant::now();
            let ok = s.run(&x).is_ok();
            (ok, sent.elapsed().as_secs_f64())
        });
        watching.finish().map_err(text)?;
        let admitted: Vec<f64> = all.iter().filter(|r| r.2.0).map(|r| r.2.1).collect();
        let in_time = admitted.iter().filter(|t| **t <= deadline).count();
        kept.push(in_time as f64 / admitted.len().max(1) as f64);
        let refused: Vec<f64> = all.iter().filter(|r| !r.2.0).map(|r| 1e3 * r.2.1).collect();
        heard.push(quantile(refused.clone(), 0.5));
        let done: Vec<(f64, f64)> = all
            .iter()
            .filter(|r| r.2.0)
            .map(|r| (r.0 + r.1, 0.0))
            .collect();
        used.push(rate(&done, from + 0.5, to) / can);
        let late = all.iter().filter(|r| r.0 > to + 2.0 * deadline && !r.2.0);
        after.push(late.count() as f64);
        if block == 0 {
            notes.push(format!(
                "ppocr_cls, {:.2} ms alone, {can:.0} requests/s at most; {usual:.0} requests/s and ten times that for {burst} s, a deadline of {:.0} ms. First block: {} admitted, {} refused; those that are refused after waiting are among them.",
                1e3 * one,
                1e3 * deadline,
                admitted.len(),
                refused.len()
            ));
        }
    }
    Ok(Outcome {
        figures: vec![
            Figure::new(
                "share of admitted requests that kept their deadline",
                Aim::Least(0.99),
                "",
                kept,
            ),
            Figure::new(
                "median time until a refused request knows",
                Aim::Most(1.0),
                " ms",
                heard,
            ),
            Figure::new(
                "requests/s done in the burst over what the engine can do",
                Aim::Told,
                "",
                used,
            ),
            Figure::new(
                "requests refused once the burst is over",
                Aim::Most(0.0),
                "",
                after,
            ),
        ],
        notes,
    })
}
