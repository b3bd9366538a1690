//! The first command line that predicts measures this CPU for a moment: until then its rates are those of its kind.

use crate::args::EngineArgs;
use crate::output::{Done, note};
use crate::progress::Progress;
use shopfloor::machines::{self, Extent};
use shopfloor_tools::calibrate;
use std::time::Instant;

/// Whether predictions are for this CPU, as it is and not as it was detected.
fn of_this_cpu(on: Option<&str>, machine: Option<&str>) -> bool {
    machine.is_none_or(|m| m == "cpu")
        && on.is_none_or(|on| on.split(['+', ',']).any(|p| p == "cpu"))
}

/// Whether the environment is one in which nothing is measured unasked, as `CI` says.
fn automatic(ci: Option<&str>) -> bool {
    ci.is_some_and(|v| !matches!(v, "" | "0" | "false"))
}

/// Finds the machine that the command names, before a model is read; then measures this CPU where nobody has and the
/// command predicts for it, keeps what was found, and says so.
pub fn measure(engine: &EngineArgs) -> Done {
    if let Some(m) = &engine.machine {
        machines::find(m)?;
    }
    measure_own(engine);
    Ok(())
}

fn measure_own(engine: &EngineArgs) {
    let ci = std::env::var("CI").ok();
    let own = of_this_cpu(engine.on.as_deref(), engine.machine.as_deref());
    if !own || automatic(ci.as_deref()) || machines::file().is_none() {
        return;
    }
    match machines::calibration() {
        Ok(None) => {}
        Ok(Some(_)) => return,
        Err(e) => return note(&e.to_string()),
    }
    let began = Instant::now();
    let progress = Progress::bar("measuring this CPU, once");
    let measured = calibrate(Extent::Short, None, &mut |done, _| {
        progress.done(done);
    });
    drop(progress);
    let kept = measured.and_then(|m| Ok((machines::keep(&m, None)?, m)));
    match kept {
        Ok((file, m)) => {
            note(&format!(
                "measured this CPU once, for {:.1} s, so that predictions are right; kept in {}; `shopfloor machines calibrate` measures it thoroughly",
                began.elapsed().as_secs_f64(),
                file.display()
            ));
            if let Some(why) = m.disturbed() {
                note(&format!("{why}; calibrate again when less else runs"));
            }
        }
        Err(e) => note(&format!("this CPU is not measured: {e}")),
    }
}
