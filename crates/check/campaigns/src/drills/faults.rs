//! Steps that panic, and plans that are swapped under way.
use super::world::{closed, engine, given, quantile, rate, resident, right, session, text};
use super::{Aim, Figure, How, Outcome};
use crate::quiet::Quiet;
use shopfloor::{DimBox, Plan, Session, Tensor, inputs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub fn panics(how: &How, quiet: &mut Quiet) -> Result<Outcome, String> {
    let injections = if how.quick { 40 } else { 200 };
    // What is injected says so to nobody.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let out = injected(how, quiet, injections);
    std::panic::set_hook(usual);
    out
}

/// Tickets between two injections: a prime, so that all steps are hit.
const EVERY: u64 = 211;

fn injected(how: &How, quiet: &mut Quiet, injections: u64) -> Result<Outcome, String> {
    let (mut wrong, mut unheard, mut healed, mut grown) = (vec![], vec![], vec![], vec![]);
    let part = how.seconds(0.8, 0.4);
    for _ in 0..how.blocks {
        quiet.hold()?;
        let (armed, tickets, made) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicU64::new(0)),
        );
        let (a, t, m) = (armed.clone(), tickets, made.clone());
        let e = engine(
            None,
            Some(Arc::new(move |step: &str| {
                let due = t.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY);
                if a.load(Ordering::Relaxed) && due {
                    m.fetch_add(1, Ordering::Relaxed);
                    panic!("injected in {step}");
                }
                Ok(())
            })),
        )?;
        let s = session(&e, "ppocr_cls", |b| b)?;
        let x = given(&s, &[])?;
        let x = inputs::borrowed(&x);
        let want = s.run(&x).map_err(text)?.into_vec();
        let bad = AtomicU64::new(0);
        let checked = |_| -> Result<(), String> {
            let got = s.run(&x).map_err(text)?.into_vec();
            if !right(&got, &want) {
                bad.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        closed(2, part / 2, &checked)?;
        let before = rate(&closed(2, part, &checked)?, 0.0, part.as_secs_f64());
        let memory = resident();
        armed.store(true, Ordering::Relaxed);
        let errors = AtomicU64::new(0);
        let began = std::time::Instant::now();
        while made.load(Ordering::Relaxed) < injections {
            if began.elapsed() > Duration::from_secs(60) {
                return Err("a minute went by and not all was injected".into());
            }
            closed(2, Duration::from_millis(50), &|c| {
                if checked(c).is_err() {
                    errors.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })?;
        }
        armed.store(false, Ordering::Relaxed);
        let after = rate(&closed(2, part, &checked)?, 0.0, part.as_secs_f64());
        let (made, errors) = (made.load(Ordering::Relaxed), errors.load(Ordering::Relaxed));
        wrong.push(bad.load(Ordering::Relaxed) as f64);
        // Two workers may both panic in one request: then there are two for one error.
        unheard.push(if errors == 0 {
            made as f64
        } else {
            (errors as f64 - made as f64).max(0.0)
        });
        healed.push(after / before);
        grown.push((resident() - memory) / 1048576.0);
    }
    Ok(Outcome {
        figures: vec![
            Figure::new("wrong answers", Aim::Most(0.0), "", wrong),
            Figure::new(
                "errors that nothing was injected for",
                Aim::Most(0.0),
                "",
                unheard,
            ),
            Figure::new(
                "requests/s afterwards over before",
                Aim::Least(0.9),
                "",
                healed,
            ),
            Figure::new("resident memory grown", Aim::Most(4.0), " MiB", grown),
        ],
        notes: vec![format!(
            "ppocr_cls, two callers; every {EVERY}th ticket panics until {injections} have, in each of {} blocks; every answer is compared.",
            how.blocks
        )],
    })
}

/// What four callers saw.
#[derive(Default)]
struct Ran {
    /// Seconds of every request.
    times: Vec<f64>,
    /// Answers that were wrong or another's.
    bad: u64,
    /// Requests answered.
    done: u64,
    /// Swaps done while requests were still to come.
    within: u64,
}

/// A session with four callers' inputs, the answers that are right, and two plans to swap.
struct Swapped {
    session: Session,
    all: Vec<(inputs::Named, Vec<(String, Tensor)>)>,
    /// Two plans that differ: for one worker, and for all.
    plans: [Plan; 2],
}

impl Swapped {
    fn new() -> Result<Swapped, String> {
        let e = engine(None, None)?;
        let s = session(&e, "digits_cnn", |b| b)?;
        let mut all = Vec::new();
        for c in 0..4 {
            let mut x = given(&s, &[("batch", 16)])?;
            let t = &mut x[0].1;
            for i in 0..t.len() {
                t.set_f64(i, t.get_f64(i) * (1.0 + 0.5 * f64::from(c)));
            }
            let want = s.run(&inputs::borrowed(&x)).map_err(text)?.into_vec();
            all.push((x, want));
        }
        let mut dims = DimBox::new();
        dims.insert("batch", 16, 16);
        // Two plans that differ: for all workers, and for one.
        let two = s.plan(&dims).map_err(text)?;
        let one = {
            let mut o = s.runtime().options().allotment;
            o.workers = vec![1];
            e.planner()
                .bind(s.runtime().program(), &dims, &o)
                .map_err(text)?
        };
        Ok(Swapped {
            session: s,
            all,
            plans: [one, two],
        })
    }

    /// Swaps to the plan whose turn is the `i`th.
    fn swap(&self, i: u64) -> Result<(), String> {
        let plan = &self.plans[i as usize % 2];
        let swapped = plan::with_pauses(cpu::step_aside, || self.session.swap_plan(plan.clone()));
        swapped.map(drop).map_err(text)
    }

    /// `share` requests. Somebody looks `looks` times whether a swap is due, and does it where `swaps`; without
    /// swaps too, because looking is the drill's part.
    fn run(&self, share: u64, looks: u64, swaps: bool) -> Result<Ran, String> {
        let (left, bad, done) = (AtomicU64::new(share), AtomicU64::new(0), AtomicU64::new(0));
        // As the supervisor's thread does, which is who swaps beside traffic.
        let swapping = || -> Result<u64, String> {
            cpu::stand_back();
            let mut within = 0;
            // One each time so many requests are done.
            for i in 0..looks {
                let due = i * share / looks;
                while done.load(Ordering::Relaxed) < due && left.load(Ordering::Relaxed) > 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
                if swaps {
                    self.swap(i)?;
                    within += u64::from(left.load(Ordering::Relaxed) > 0);
                }
            }
            Ok(within)
        };
        let (times, within) = std::thread::scope(|scope| -> Result<_, String> {
            let swapping = scope.spawn(swapping);
            let callers: Vec<_> = self
                .all
                .iter()
                .map(|(x, want)| {
                    let (left, bad, done, s) = (&left, &bad, &done, &self.session);
                    scope.spawn(move || -> Result<Vec<f64>, String> {
                        let x = inputs::borrowed(x);
                        let mut times = Vec::new();
                        while left
                            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                                n.checked_sub(1)
                            })
                            .is_ok()
                        {
                            let began = std::time::Instant::now();
                            let got = s.run(&x).map_err(text)?;
                            times.push(began.elapsed().as_secs_f64());
                            if !right(&got.into_vec(), want) {
                                bad.fetch_add(1, Ordering::Relaxed);
                            }
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(times)
                    })
                })
                .collect();
            let mut times = Vec::new();
            for c in callers {
                times.extend(c.join().map_err(|_| "a caller panicked")??);
            }
            let within = swapping.join().map_err(|_| "the swapper panicked")??;
            Ok((times, within))
        })?;
        Ok(Ran {
            times,
            bad: bad.into_inner(),
            done: done.into_inner(),
            within,
        })
    }

    /// The same without swaps: each of the two plans has half of the requests.
    fn still(&self, share: u64, looks: u64) -> Result<Ran, String> {
        let mut both = Ran::default();
        for i in 0..2 {
            self.swap(i)?;
            let half = self.run(share / 2, looks / 2, false)?;
            both.times.extend(half.times);
            both.bad += half.bad;
            both.done += half.done;
        }
        Ok(both)
    }
}

pub fn million(how: &How, quiet: &mut Quiet) -> Result<Outcome, String> {
    // Requests and swaps of all blocks together.
    let (requests, swaps): (u64, u64) = match how.quick {
        true => (100_000, 1_000),
        false => (1_000_000, 10_000),
    };
    let (mut wrong, mut lost, mut tail, mut grown, mut told) =
        (vec![], vec![], vec![], vec![], vec![]);
    let mut beside = vec![];
    for block in 0..how.blocks {
        quiet.hold()?;
        let s = Swapped::new()?;
        // Even, since half of them is asked for.
        let share = requests / how.blocks as u64 / 2 * 2;
        let own = swaps / how.blocks as u64;
        // The first swaps grow what is kept between requests.
        s.run(share, own.min(20), true)?;
        let memory = resident();
        let (without, with) = match block % 2 {
            0 => (s.still(share, own)?, s.run(share, own, true)?),
            _ => {
                let with = s.run(share, own, true)?;
                (s.still(share, own)?, with)
            }
        };
        let p99 = |r: &Ran| quantile(r.times.clone(), 0.99);
        grown.push((resident() - memory) / 1048576.0);
        wrong.push((with.bad + without.bad) as f64);
        lost.push((2 * share - with.done - without.done) as f64);
        tail.push(p99(&with) / p99(&without));
        told.push(1e6 * p99(&without));
        beside.push(with.within as f64 / own as f64);
    }
    Ok(Outcome {
        figures: vec![
            Figure::new("wrong or mixed answers", Aim::Most(0.0), "", wrong),
            Figure::new("requests lost", Aim::Most(0.0), "", lost),
            Figure::new("p99 with swaps over without", Aim::Most(1.1), "", tail),
            Figure::new("p99 without swaps", Aim::Told, " us", told),
            Figure::new(
                "share of the swaps that were done beside requests",
                Aim::Least(0.99),
                "",
                beside,
            ),
            Figure::new("resident memory grown", Aim::Most(4.0), " MiB", grown),
        ],
        notes: vec![format!(
            "digits_cnn at batch 16, four callers with inputs of their own: {requests} requests over {swaps} swaps between two plans in {} blocks, and as many without, half of them with each of the two plans. Every swap proves and compiles its plan anew beside the traffic, in a thread that stands back as the supervisor's does; without swaps the same thread looks as often. Callers keep every latency, which is in the memory that grows.",
            how.blocks
        )],
    })
}
