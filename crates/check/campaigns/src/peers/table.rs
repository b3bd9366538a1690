//! The page `bench/PEERS.md`.
use super::{Engine, Row};
use crate::pages::{commit, date, figures, geometric as mean, number};
use std::fmt::Write as _;

/// A model slower than this against onnxruntime is named.
const SLOW: f64 = 0.5;

/// What holds for all rows.
pub struct Head<'a> {
    pub machine: &'a str,
    pub threads: usize,
    pub seconds: f64,
    pub rounds: usize,
    /// Measured f32 multiply-add peak of that many threads, FLOP per second.
    pub peak: f64,
    /// Models asked for.
    pub of: usize,
}

/// The engine's name without its version.
fn short(e: &Engine) -> &str {
    let first = e.name.split(' ').next().unwrap_or_default();
    first.split('-').next().unwrap_or_default()
}

fn ms(row: &Row, at: usize) -> Option<f64> {
    Some(row.outcomes.get(at)?.as_ref().ok()?.median_ms)
}

/// Time of engine `at` over ours.
fn ratio(row: &Row, at: usize) -> Option<f64> {
    Some(ms(row, at)? / ms(row, 0)?)
}

/// The better of onnxruntime and openvino over ours.
fn better(row: &Row, engines: &[Engine]) -> Option<f64> {
    let of = |name| ratio(row, engines.iter().position(|e| short(e) == name)?);
    match (of("onnxruntime"), of("openvino")) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// A line for whoever waits.
pub fn line(row: &Row) -> String {
    let mut s = format!("{:26}", row.name);
    for o in &row.outcomes {
        match o {
            Ok(m) => drop(write!(s, "{:>11}", number(m.median_ms))),
            Err(_) => s += "          -",
        }
    }
    s
}

/// A row of a table, of cells.
fn put(out: &mut String, cells: impl IntoIterator<Item = String>) {
    let cells: Vec<String> = cells.into_iter().collect();
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

fn header(out: &mut String, cells: &[String]) {
    put(out, cells.iter().cloned());
    let _ = writeln!(out, "|{}", "---|".repeat(cells.len()));
}

/// The whole page.
pub fn page(head: &Head, engines: &[Engine], rows: &[Row]) -> String {
    let mut s = "# Beside other engines\n\n".to_string();
    let others: Vec<&str> = engines.iter().skip(1).map(|e| e.name.as_str()).collect();
    let _ = writeln!(
        s,
        "{}, commit {}, {}, {} threads. Made by `cargo xtask bench-peers`: {} of {} models at their \
         references' inputs. Engines: {}, each in a process of its own, one after the other, {} rounds of {} s after warming up; a time is the \
         median of the rounds' medians. Ratios are the other's time over ours: above 1 we are faster. \
         Measured f32 multiply-add peak of {} threads: {:.0} GFLOPS; `roof` is the model's FLOP (matrix \
         products and convolutions) over our time, as a share of it (8-bit products can pass it). \
         openvino computes in f32 by a hint; tract and we plan for the sizes of the inputs.\n",
        date(),
        commit(),
        head.machine,
        head.threads,
        rows.len(),
        head.of,
        others.join(", "),
        head.rounds,
        head.seconds,
        head.threads,
        head.peak / 1e9,
    );
    for e in engines.iter().filter(|e| e.problem.is_some()) {
        let _ = writeln!(s, "{e}.\n");
    }
    means(&mut s, head, engines, rows);
    let names = || engines.iter().map(|e| short(e).to_string());
    let mut cells = vec!["model".to_string()];
    cells.extend(names().map(|n| format!("{n}, ms")));
    cells.extend(names().skip(1).map(|n| format!("to {n}")));
    cells.extend(["to the better of two".into(), "roof".into()]);
    header(&mut s, &cells);
    let dash = |v: Option<f64>| v.map_or("–".to_string(), number);
    let times = |r: Option<f64>| r.map_or("–".to_string(), |r| format!("{r:.2}"));
    for r in rows {
        let roof = ms(r, 0)
            .filter(|_| r.flops > 0 && head.peak > 0.0)
            .map(|t| 100.0 * r.flops as f64 / (t * 1e-3) / head.peak);
        let n = engines.len();
        let mut cells = vec![r.name.clone()];
        cells.extend((0..n).map(|i| dash(ms(r, i))));
        cells.extend((1..n).map(|i| times(ratio(r, i))));
        cells.push(times(better(r, engines)));
        cells.push(roof.map_or("–".into(), |p| format!("{p:.0}%")));
        put(&mut s, cells);
    }
    let _ = writeln!(
        s,
        "\nMemory and loading: the process's highest resident size in MB (Python's and numpy's own, some \
         30 MB, are in that of onnxruntime and openvino), and from opening the file to the first answer in ms, nothing \
         taken from a cache of plans. `file` is the size of the model with its weights in MB.\n"
    );
    let mut cells = vec!["model".to_string(), "file".into()];
    cells.extend(names().map(|n| format!("{n}, MB")));
    cells.extend(names().map(|n| format!("{n}, load ms")));
    header(&mut s, &cells);
    for r in rows {
        let mut cells = vec![r.name.clone(), number(r.weight_bytes as f64 / 1e6)];
        let get = |i: usize| r.outcomes[i].as_ref().ok();
        let n = engines.len();
        cells.extend((0..n).map(|i| dash(get(i).map(|m| m.peak_bytes as f64 / 1e6))));
        cells.extend((0..n).map(|i| dash(get(i).map(|m| m.load_ms))));
        put(&mut s, cells);
    }
    refused(&mut s, engines, rows);
    s
}

/// Geometric means and the models that fall behind.
fn means(s: &mut String, head: &Head, engines: &[Engine], rows: &[Row]) {
    let machine = format!("{}, {} threads", head.machine, head.threads);
    let row = |name: &str, ratios: &mut dyn Iterator<Item = f64>| {
        let (m, n) = mean(ratios);
        (
            format!("speed over {name}, {n} models"),
            format!("{m:.3} times"),
        )
    };
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for (i, e) in engines.iter().enumerate().skip(1) {
        let list = match short(e) {
            "onnxruntime" => &mut first,
            _ => &mut others,
        };
        list.push(row(short(e), &mut rows.iter().filter_map(|r| ratio(r, i))));
    }
    let of_two = &mut rows.iter().filter_map(|r| better(r, engines));
    first.push(row("the better of onnxruntime and openvino", of_two));
    let _ = writeln!(
        s,
        "Geometric means of those ratios:\n\n{}\n{}",
        figures("peers", &machine, &first),
        figures("other-peers", &machine, &others),
    );
    let ort = engines.iter().position(|e| short(e) == "onnxruntime");
    let mut slow: Vec<(f64, &str)> = rows
        .iter()
        .filter_map(|r| Some((ratio(r, ort?)?, r.name.as_str())))
        .filter(|(x, _)| *x < SLOW)
        .collect();
    slow.sort_by(|a, b| a.0.total_cmp(&b.0));
    let slow: Vec<String> = slow.iter().map(|(x, n)| format!("{n} ({x:.2})")).collect();
    let _ = writeln!(
        s,
        "Below {SLOW} of onnxruntime: {}.\n",
        if slow.is_empty() {
            "none".into()
        } else {
            slow.join(", ")
        }
    );
}

/// What each engine could not run, with its own words.
fn refused(s: &mut String, engines: &[Engine], rows: &[Row]) {
    let _ = writeln!(s, "\nWhat an engine could not run, in its own words:\n");
    let mut any = false;
    for (i, e) in engines
        .iter()
        .enumerate()
        .filter(|(_, e)| e.problem.is_none())
    {
        for r in rows {
            if let Err(why) = &r.outcomes[i] {
                let _ = writeln!(s, "- {}, {}: {}", short(e), r.name, plain(why));
                any = true;
            }
        }
    }
    if !any {
        *s += "- nothing\n";
    }
}

/// A message without what a table or a reader elsewhere cannot use: markup, and paths of this run.
fn plain(why: &str) -> String {
    let words = why.split_whitespace().map(|w| {
        let name = w.rsplit('/').next().unwrap_or(w);
        if w.starts_with('/') || w.starts_with("\"/") {
            name
        } else {
            w
        }
    });
    let text: Vec<&str> = words.collect();
    text.join(" ").replace(['`', '<', '>'], "'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_meant_geometrically() {
        let (m, n) = mean([0.5, 2.0, 1.0].into_iter());
        assert!((m - 1.0).abs() < 1e-12 && n == 3);
    }
}
