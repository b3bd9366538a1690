//! The machine is not what it was, or not what its file says.
use super::world::{
    Answers, Neighbour, WORKERS, changes, closed, engine, given, quantile, rate, session,
    supervise, text,
};
use super::{Aim, Figure, How, Outcome};
use crate::quiet::Quiet;
use shopfloor::{Change, Engine, Session, inputs, machines};
use std::sync::Arc;
use std::time::Duration;

/// What the engine recovers of the oracle at least.
const RECOVERED: f64 = 0.9;
/// Within so many seconds.
const WITHIN: f64 = 2.0;
/// Answers are counted over this long to say when an engine has recovered.
const SPAN: f64 = 0.4;

/// By how much the oracle may change between before and after.
const STEADY: f64 = 1.15;
/// Blocks that are left out at most because it did.
const MOST_AGAIN: usize = 10;

/// When, after `from`, the rate over a span first reaches `aim` and stays near it until the span after
/// that: seconds since `from`, or what there is until `to`.
fn recovered(all: &Answers, from: f64, to: f64, aim: f64) -> f64 {
    let mut at = from;
    while at + 2.0 * SPAN <= to {
        let now = rate(all, at, at + SPAN);
        if now >= aim && rate(all, at + SPAN, at + 2.0 * SPAN) >= 0.9 * aim {
            return at - from;
        }
        at += 0.1;
    }
    to - from
}

/// The model that the drill sends requests to, and what it is sent.
fn subject() -> Result<(Arc<Engine>, Session, inputs::Named), String> {
    let e = engine(None, None)?;
    let s = session(&e, "ppocr_rec", |b| b)?;
    let x = given(&s, &[("DynamicDimension.1", 160)])?;
    Ok((e, s, x))
}

/// What a supervised engine answers in the seconds before a neighbour comes to core `hit`, while it is there
/// and after that, and what was changed meanwhile.
fn supervised(
    hit: usize,
    (before, there, after): (f64, f64, f64),
) -> Result<(Answers, Vec<String>), String> {
    let (e, s, x) = subject()?;
    let x = inputs::borrowed(&x);
    let call = |_| s.run(&x).map(drop).map_err(text);
    call(0)?;
    let watching = supervise(&e)?;
    let all = std::thread::scope(|scope| {
        let world = scope.spawn(move || -> Result<(), String> {
            std::thread::sleep(Duration::from_secs_f64(before));
            let n = Neighbour::on(hit)?;
            std::thread::sleep(Duration::from_secs_f64(there));
            drop(n);
            Ok(())
        });
        let time = Duration::from_secs_f64(before + there + after);
        let all = closed(1, time, &call);
        world
            .join()
            .map_err(|_| "the neighbour's thread panicked")??;
        all
    })?;
    watching.finish().map_err(text)?;
    Ok((all, changes(&e.decisions())))
}

/// Requests per second for `probe` each with one and with two workers: without a neighbour on core `hit`, and
/// beside it.
fn oracle(hit: usize, probe: Duration) -> Result<[[f64; 2]; 2], String> {
    let mut out = [[0.0; 2]; 2];
    let (e, s, x) = subject()?;
    let x = inputs::borrowed(&x);
    let call = |_| s.run(&x).map(drop).map_err(text);
    call(0)?;
    for (with, row) in out.iter_mut().enumerate() {
        let _neighbour = (with == 1).then(|| Neighbour::on(hit)).transpose()?;
        for (workers, cell) in (1..).zip(row.iter_mut()) {
            e.limit_workers(workers);
            closed(1, Duration::from_millis(100), &call)?;
            let all = closed(1, probe, &call)?;
            *cell = rate(&all, 0.0, probe.as_secs_f64());
        }
    }
    Ok(out)
}

pub fn neighbour(how: &How, quiet: &mut Quiet) -> Result<Outcome, String> {
    let cpus = cpu::detect::worker_cpus();
    if cpus.len() < WORKERS {
        return Err(format!(
            "it needs {WORKERS} cores, and there are {}",
            cpus.len()
        ));
    }
    let (before, there, after) = (
        1.0,
        how.seconds(5.0, 3.6).as_secs_f64(),
        how.seconds(4.0, 3.2).as_secs_f64(),
    );
    let probe = how.seconds(1.5, 0.8);
    let (mut share, mut time, mut back, mut back_time) = (vec![], vec![], vec![], vec![]);
    let (mut unchanged, mut notes) = (vec![], vec![]);
    let best = |row: [f64; 2]| row[0].max(row[1]);
    let (mut again, mut unsteady) = (0, 0);
    for block in 0..how.blocks {
        quiet.hold()?;
        // Workers pinned to either core are hit in turn.
        let hit = cpus[block % WORKERS];
        let (mut o, mut now);
        let (all, did) = loop {
            o = oracle(hit, probe)?;
            let s = supervised(hit, (before, there, after))?;
            now = oracle(hit, probe)?;
            // A shared machine may give two processors or two halves of one for a while: then the oracle is of
            // another machine than what it is compared with.
            let changed = |a: f64, b: f64| a.max(b) > STEADY * a.min(b);
            let steady = !(0..2).any(|i| changed(best(o[i]), best(now[i])));
            if steady || again == MOST_AGAIN {
                unsteady += usize::from(!steady);
                break s;
            }
            again += 1;
            quiet.hold()?;
        };
        let both = |i: usize| 0.5 * (best(o[i]) + best(now[i]));
        let (quiet_best, hit_best) = (both(0), both(1));
        let (from, to) = (before, before + there);
        share.push(rate(&all, from + WITHIN, to) / hit_best);
        time.push(recovered(&all, from, to, RECOVERED * hit_best));
        back.push(rate(&all, to + WITHIN, to + after) / quiet_best);
        back_time.push(recovered(&all, to, to + after, RECOVERED * quiet_best));
        unchanged.push(0.5 * (o[1][1] + now[1][1]) / hit_best);
        if block == 0 {
            notes.push(format!(
                "ppocr_rec at width 160, one caller. First block: {:.0} and {:.0} requests/s with one and two workers alone, {:.0} and {:.0} beside the neighbour, who is pinned to a core. The supervisor's changes: {}.",
                o[0][0], o[0][1], o[1][0], o[1][1], did.join("; ")
            ));
        }
    }
    notes.push(format!(
        "The oracle is measured before and after. {again} further blocks were left out, since what it could do changed by more than {:.0}%; of those counted {unsteady} changed as much (at most {MOST_AGAIN} are left out).",
        100.0 * (STEADY - 1.0)
    ));
    Ok(Outcome {
        figures: vec![
            Figure::new(
                "share of the oracle's requests/s from 2 s on",
                Aim::Least(RECOVERED),
                "",
                share,
            ),
            Figure::new(
                "time until 90% of the oracle",
                Aim::Most(WITHIN),
                " s",
                time,
            ),
            Figure::new(
                "the core given back: share from 2 s on",
                Aim::Least(RECOVERED),
                "",
                back,
            ),
            Figure::new(
                "the core given back: time until 90%",
                Aim::Most(WITHIN),
                " s",
                back_time,
            ),
            Figure::new(
                "two workers all the time, as a share of the oracle",
                Aim::Told,
                "",
                unchanged,
            ),
        ],
        notes,
    })
}

pub fn lying_file(how: &How, quiet: &mut Quiet) -> Result<Outcome, String> {
    let truth = machines::find("cpu").map_err(text)?;
    let mut lie = truth.clone();
    for c in ["bandwidth=4x", "l2=0.5x"] {
        c.parse::<Change>().and_then(|c| c.apply(&mut lie))?;
    }
    let part = how.seconds(1.5, 0.7);
    let (mut share, mut unsupervised, mut notes) = (vec![], vec![], vec![]);
    for model in ["magika", "ppocr_cls"] {
        quiet.hold()?;
        let of = |m: &shopfloor::Machine| -> Result<_, String> {
            let e = engine(Some(m.clone()), None)?;
            let s = session(&e, model, |b| b)?;
            let x = given(&s, &[])?;
            s.run(&inputs::borrowed(&x)).map_err(text)?;
            Ok((e, s, x))
        };
        let (right, wrong, helped) = (of(&truth)?, of(&lie)?, of(&lie)?);
        let watching = supervise(&helped.0)?;
        let x = inputs::borrowed(&helped.2);
        for _ in 0..200 {
            helped.1.run(&x).map_err(text)?;
        }
        watching.finish().map_err(text)?;
        for block in 0..how.blocks {
            quiet.hold()?;
            let mut ms = [0.0; 3];
            for turn in 0..3 {
                let which = (turn + block) % 3;
                let (_, s, x) = [&right, &wrong, &helped][which];
                let x = inputs::borrowed(x);
                let all = closed(1, part, &|_| s.run(&x).map(drop).map_err(text))?;
                ms[which] = 1e3 * quantile(all.iter().map(|a| a.1).collect(), 0.5);
            }
            share.push(ms[0] / ms[2]);
            unsupervised.push(ms[0] / ms[1]);
        }
        let did = changes(&helped.0.decisions());
        notes.push(format!(
            "{model}, 200 requests with the supervisor, then measured without: {}.",
            match did.is_empty() {
                true => "nothing was changed".into(),
                false => did.join("; "),
            }
        ));
    }
    Ok(Outcome {
        figures: vec![
            Figure::new(
                "speed of the plan after 200 requests, as a share of the plan from the calibrated machine",
                Aim::Least(0.95),
                "",
                share,
            ),
            Figure::new("the same without a supervisor", Aim::Told, "", unsupervised),
        ],
        notes,
    })
}
