//! `shopfloor top`: a running engine's sessions.
use crate::output::{self, Done};
use shopfloor::status;
use std::io::IsTerminal;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    /// Socket at which an engine answers, such as one of `shopfloor bench --status SOCKET`
    #[arg(long, value_name = "SOCKET")]
    attach: String,
    /// Seconds between two looks
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = crate::args::whole::<u32>(1..=3600))]
    every: u32,
    /// One look, of what happened since the engine began to answer
    #[arg(long, conflicts_with = "every")]
    once: bool,
    /// The figures in Prometheus' text form, once
    #[arg(long, conflicts_with_all = ["json", "every"])]
    prometheus: bool,
    /// The figures as JSON, once
    #[arg(long, conflicts_with = "every", help_heading = "Output")]
    json: bool,
}

pub fn run(a: Args) -> Done {
    if a.prometheus {
        return output::print(&status::metrics_at(&a.attach)?);
    }
    let mut before = status::status_at(&a.attach)?;
    if a.json {
        return output::json(&before);
    }
    if a.once {
        return output::page(&before.render(None, output::style()));
    }
    loop {
        std::thread::sleep(Duration::from_secs(a.every.into()));
        // An engine that ends is the end of this, and no error.
        let Ok(now) = status::status_at(&a.attach) else {
            return Ok(());
        };
        let text = now.render(Some(&before), output::style());
        let clear = if std::io::stdout().is_terminal() {
            "\x1b[2J\x1b[H"
        } else {
            ""
        };
        output::print(&format!("{clear}{text}"))?;
        before = now;
    }
}
