//! The page that lists every operator: `docs/operators.md`, written from the tables of lowerings and
//! of host operators.
use std::fmt::Write;

/// Domain's name for people.
fn domain(d: &str) -> &str {
    if d.is_empty() { "ai.onnx" } else { d }
}

/// The page's text.
pub fn page() -> String {
    let mut out = String::from(
        "# Operators\n\n\
         Written by `cargo xtask operators`; a test fails when it is out of date.\n\n\
         Every operator is lowered when the model is imported. *Core ops* become kernels of tile\n\
         programs; *host* operators are plain code between kernels, with the reason why. Versions\n\
         are those of the domain's operator set that the lowering takes; an operator may be\n\
         younger than the first of them.\n\n",
    );
    let all = onnx::covered_versions();
    let hosted = hostops::host_names();
    let mut domains: Vec<&str> = all.iter().map(|o| o.0).collect();
    domains.dedup();
    for d in domains {
        let own: Vec<_> = all.iter().filter(|o| o.0 == d).collect();
        let _ = writeln!(out, "## {}\n", domain(d));
        let _ = writeln!(out, "{} operators.\n", own.len());
        out.push_str("| operator | versions | runs as |\n|---|---|---|\n");
        for (_, name, first, last) in own {
            let prefix = match d {
                "ai.onnx.ml" => "ml.",
                "com.microsoft" => "ms.",
                _ => "",
            };
            // Operators that the standard took up run under its names.
            let own = format!("{prefix}{name}");
            let host = if hosted.contains(&own.as_str()) {
                own
            } else {
                (*name).to_string()
            };
            let reason = hostops::reason(&host);
            let how = match hosted.contains(&host.as_str()) {
                false => "core ops".to_string(),
                true if reason.starts_with("only ") => {
                    format!("core ops; host {}", reason.trim_start_matches("only "))
                }
                true => format!("host: {reason}"),
            };
            let versions = match last {
                100 => format!("{first} on"),
                last => format!("{first} to {last}"),
            };
            let _ = writeln!(out, "| {name} | {versions} | {how} |");
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}
