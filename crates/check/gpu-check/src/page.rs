//! The page about a GPU.
use crate::lines::{Said, Timed};
use crate::options::Options;
use crate::parts::{self, Part};
use crate::watch::Came;
use report::{Align, Style, Table, units};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

fn fenced(t: &Table) -> String {
    format!("```\n{}```\n", t.render(Style::default()))
}

/// A table whose first column is text and whose others are figures.
fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let figure = |c: usize| {
        let cells = rows.iter().filter_map(|r| r.get(c));
        cells.clone().count() > 0
            && cells
                .clone()
                .all(|s| s.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '<'))
    };
    let align = |c: usize| match (c, figure(c)) {
        (0, _) => Align::Wrap,
        (_, true) => Align::Right,
        _ => Align::Wrap,
    };
    let columns: Vec<(&str, Align)> = columns
        .iter()
        .enumerate()
        .map(|(c, n)| (*n, align(c)))
        .collect();
    let mut t = Table::new(&columns);
    rows.iter().for_each(|r| t.row(r.clone()));
    fenced(&t)
}

fn us(v: f64) -> String {
    units::seconds(v * 1e-6)
}

/// Median of `v` where each counts with its weight.
fn weighted(mut v: Vec<(f64, f64)>) -> Option<f64> {
    v.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = v.iter().map(|x| x.1).sum();
    let mut sum = 0.0;
    v.into_iter().find_map(|(x, w)| {
        sum += w;
        (2.0 * sum >= all).then_some(x)
    })
}

/// The figures of the page as a table between markers, for other documents to take (`cargo xtask pages`).
fn figures(probe: &Said, rows: &[(String, String)]) -> String {
    let name = probe.fact("name").unwrap_or("a GPU");
    let file = probe.fact("file").unwrap_or("gpu");
    let day = said("date", &["-u", "+%Y-%m-%d"]).unwrap_or("date unknown".into());
    let mut table = String::new();
    for (what, value) in rows {
        let _ = writeln!(table, "| {what} | {value} | {name} | {day} |");
    }
    format!(
        "<!-- figures: {file} -->\n| figure | value | machine | date |\n|---|---|---|---|\n{table}<!-- end -->\n"
    )
}

fn kernels(probe: &Said, all: &[Timed], torch: &BTreeMap<String, f64>) -> String {
    let total = |k: &Timed| k.us * k.launches as f64;
    let asked = |k: &Timed| torch.get(&k.torch.as_ref()?.key()).copied();
    let mut out = String::new();
    let off = |k: &Timed| ((k.us / k.predicted_us - 1.0).abs(), total(k));
    let share = |k: &Timed| (k.roof_us / k.us, total(k));
    let percent = |v: Option<f64>| v.map_or("-".into(), units::percent);
    let both = all.iter().filter_map(|k| Some((asked(k)? / k.us).ln()));
    let both: Vec<f64> = both.collect();
    let mut summed = vec![(
        format!(
            "{} kernels off their prediction, median weighted by time",
            all.len()
        ),
        percent(weighted(all.iter().map(off).collect())),
    )];
    if !both.is_empty() {
        let mean = both.iter().sum::<f64>() / both.len() as f64;
        summed.push((
            format!(
                "speed over PyTorch, {} products and convolutions, f32 without TF32",
                both.len()
            ),
            format!("{:.2} times", mean.exp()),
        ));
    }
    out += &figures(probe, &summed);
    let _ = writeln!(
        out,
        "\nWeighted by their time they reach {} of the roof in the median. `n` is the launches in a request, `roof` what would bound the kernel at best (its distinct bytes from device memory, or its operations; what L2 holds may do better), `share` that time over the measured. A launch is timed between two events, with the host ahead of the GPU.",
        percent(weighted(all.iter().map(share).collect())),
    );
    if !both.is_empty() {
        let _ = writeln!(
            out,
            "\nPyTorch (f32 without TF32, channels-last, launches in a graph) beside {} of them, for products and convolutions alone, without what is fused to ours; the speed is the geometric mean.",
            both.len(),
        );
    }
    let mut names: Vec<&str> = all.iter().map(|k| k.model.as_str()).collect();
    names.sort_by_key(|m| (parts::order(m), *m));
    names.dedup();
    for model in names {
        let mut list: Vec<&Timed> = all.iter().filter(|k| k.model == model).collect();
        list.sort_by(|a, b| total(b).total_cmp(&total(a)));
        let mut columns = vec![
            ("family", Align::Left),
            ("axes", Align::Wrap),
            ("n", Align::Right),
            ("predicted", Align::Right),
            ("measured", Align::Right),
            ("off", Align::Right),
            ("roof", Align::Left),
            ("share", Align::Right),
        ];
        if !torch.is_empty() {
            columns.push(("PyTorch", Align::Right));
        }
        let mut t = Table::new(&columns);
        for k in list {
            t.row(vec![
                k.family.clone(),
                k.shapes.clone(),
                k.launches.to_string(),
                us(k.predicted_us),
                us(k.us),
                units::signed_percent(k.us / k.predicted_us - 1.0),
                k.roof.clone(),
                units::percent(k.roof_us / k.us),
                asked(k).map_or("-".into(), us),
            ]);
        }
        let _ = write!(out, "\n{model}:\n\n{}", fenced(&t));
    }
    out
}

fn said(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).trim().to_string();
    (out.status.success() && !text.is_empty()).then_some(text)
}

/// What the folder says of the commit that it was made of.
fn built() -> String {
    let here = std::env::current_exe().ok();
    let file = here.and_then(|p| std::fs::read_to_string(p.parent()?.join("built.txt")).ok());
    file.map_or("unknown".into(), |t| t.trim().to_string())
}

/// The rows of a part's table, those of counts included.
fn rows(c: &Came) -> Vec<Vec<String>> {
    match c.said.counts.is_empty() {
        true => c.said.rows.clone(),
        false => parts::counted(&c.said.counts),
    }
}

fn part(out: &mut String, probe: &Said, c: &Came, all: &[Came]) {
    let p: &Part = c.part;
    let _ = writeln!(out, "\n## {}\n", p.title);
    for (what, note) in c.said.passed.iter().filter(|x| !x.1.is_empty()) {
        let _ = writeln!(out, "- {what}: {note}");
    }
    for (name, value) in &c.said.facts {
        let _ = writeln!(out, "- {name}: {value}");
    }
    if let Some(n) = c.said.counts.get("refused") {
        let _ = writeln!(
            out,
            "- programs whose drawn schedule cannot be on this target: {n}"
        );
    }
    if !c.said.kernels.is_empty() {
        let torch = all.iter().find(|c| c.part.name == "torch");
        let none = BTreeMap::new();
        let torch = torch.map_or(&none, |c| &c.said.torch);
        let _ = write!(out, "\n{}", kernels(probe, &c.said.kernels, torch));
    }
    let rows = rows(c);
    if !rows.is_empty() {
        let _ = write!(out, "\n{}", table(p.columns, &rows));
    }
    if !c.said.torch.is_empty() {
        let _ = writeln!(
            out,
            "\n{} operations timed, in the table of kernels above.",
            c.said.torch.len()
        );
    }
    for (what, why) in &c.said.failed {
        let _ = writeln!(out, "\nFAILED {what}: {why}");
    }
    for why in &c.broke {
        let _ = writeln!(out, "\nFAILED: {why}");
    }
    if !c.said.left.is_empty() {
        let _ = writeln!(out, "\nLeft out:\n");
        for (what, why) in &c.said.left {
            let _ = writeln!(out, "- {what}: {why}");
        }
    }
}

/// The page.
pub fn write(o: &Options, probe: &Said, all: &[Came]) -> String {
    let name = probe.fact("name").unwrap_or("a GPU");
    let mut out = format!("# {name}\n\n");
    if o.emulated() {
        out += "**Emulated: nothing here was measured on a GPU.** Times are the emulated clock's, whose figures are assumed.\n\n";
    }
    let date = said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or("date unknown".into());
    let _ = writeln!(
        out,
        "{date}, commit {}, {:.0} s in all. Made by `gpu-check --on {}`, which `cargo xtask gpu-check` packs.\n",
        built(),
        o.began.elapsed().as_secs_f64(),
        o.on
    );
    let facts = probe.facts.iter().filter(|f| f.0 != "file");
    let facts: Vec<Vec<String>> = facts.map(|f| vec![f.0.clone(), f.1.clone()]).collect();
    out += &table(&["machine", ""], &facts);
    let mut sum = vec![];
    for c in all {
        let n: usize = c
            .said
            .counts
            .iter()
            .filter(|c| c.0.starts_with("agreed"))
            .map(|c| c.1)
            .sum();
        let checked = c.said.passed.len() + n;
        let state = match (c.passed(), c.said.ended) {
            (false, _) => "FAILED",
            (true, false) => "cut short",
            // Nothing was found wrong where nothing was looked at.
            _ if checked == 0 => "left out",
            _ => "passed",
        };
        sum.push(vec![
            c.part.name.into(),
            state.into(),
            checked.to_string(),
            (c.said.failed.len() + c.broke.len()).to_string(),
            c.said.left.len().to_string(),
            units::seconds(c.took.as_secs_f64()),
        ]);
    }
    let columns = [
        "part",
        "result",
        "checks passed",
        "failed",
        "left out",
        "took",
    ];
    let _ = write!(out, "\n{}", table(&columns, &sum));
    all.iter().for_each(|c| part(&mut out, probe, c, all));
    // One empty line between any two things.
    while out.contains("\n\n\n") {
        out = out.replace("\n\n\n", "\n\n");
    }
    out
}
