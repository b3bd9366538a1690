//! What `--help` says beyond each option: commands in groups, examples, what `--on` may name; and the page
//! of commands made of it.

use crate::output;
use clap::{Arg, Command};
use shopfloor_tools::report::units::wrapped;
use std::fmt::Write;

/// Commands in the order in which one comes to need them.
const GROUPS: &[(&str, &[&str])] = &[
    ("start", &["demo"]),
    ("run", &["run", "bench", "profile", "test"]),
    (
        "understand",
        &["inspect", "plan", "walk", "annotate", "emit", "emulate"],
    ),
    (
        "machines",
        &[
            "machines",
            "occupancy",
            "access",
            "transfer",
            "tensorcore",
            "roofline",
        ],
    ),
    (
        "decide",
        &[
            "advise",
            "what-if",
            "predict",
            "simulate",
            "supervise",
            "top",
        ],
    ),
];

/// Examples of every command. They run in the repository, where `models/` is; `cases`, `measurements.csv` and
/// `engine.sock` stand for what a reader has.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("demo", &["shopfloor demo", "shopfloor demo --threads 1"]),
    (
        "run",
        &[
            "shopfloor run models/digits_cnn/model.onnx --inputs models/digits_cnn/inputs.npz \\
    --labels models/digits_cnn/labels.txt",
            "shopfloor run models/digits_cnn/model.onnx --inputs models/digits_cnn/inputs.npz \\
    --compare models/digits_cnn/outputs.npz --on emulated:a100",
        ],
    ),
    (
        "bench",
        &[
            "shopfloor bench models/digits_cnn/model.onnx --dim batch=16 --seconds 0.5",
            "shopfloor bench --op matmul:64x64x64:f32 --on emulated:a100,sms=2 --launch steps,resident \\
    --iterations 2",
        ],
    ),
    (
        "profile",
        &[
            "shopfloor profile models/ppocr_cls/model.onnx --inputs models/ppocr_cls/inputs.npz --top 5",
            "shopfloor profile models/digits_cnn/model.onnx --dim batch=16 --report report.html",
        ],
    ),
    (
        "test",
        &[
            "shopfloor test cases",
            "shopfloor test cases --on emulated:a100 --open-dims",
        ],
    ),
    (
        "inspect",
        &[
            "shopfloor inspect models/digits_cnn/model.onnx",
            "shopfloor inspect models/ppocr_rec/model.onnx --inputs models/ppocr_rec/inputs.npz --all",
        ],
    ),
    (
        "plan",
        &[
            "shopfloor plan models/digits_cnn/model.onnx --on h100 --why 3",
            "shopfloor plan models/digits_cnn/model.onnx --on a100,h100,cpu --batch 1,64",
        ],
    ),
    (
        "walk",
        &[
            "shopfloor walk --tour --out walk.html",
            "shopfloor walk models/digits_cnn/model.onnx --node node_linear --on h100 --text",
        ],
    ),
    (
        "annotate",
        &[
            "shopfloor annotate models/digits_cnn/model.onnx --out annotated.onnx",
            "shopfloor annotate models/digits_cnn/model.onnx --on a100 --out annotated.onnx",
        ],
    ),
    (
        "emit",
        &[
            "shopfloor emit models/digits_cnn/model.onnx --on a100 --step 3",
            "shopfloor emit models/digits_cnn/model.onnx --on a100 --step node_softmax --ptx softmax.ptx",
        ],
    ),
    (
        "emulate",
        &[
            "shopfloor emulate softmax.ptx --arg buf:f32:64=iota --arg buf:f32:640=random:1 \\
    --arg buf:f32:10=random:2 --arg out:f32:10 --arg s64:1",
            "shopfloor emulate softmax.ptx --arg buf:f32:64=iota --arg buf:f32:640=random:1 \\
    --arg buf:f32:10=random:2 --arg out:f32:10 --arg s64:1 --on a100 --stalls",
        ],
    ),
    (
        "machines",
        &[
            "shopfloor machines list",
            "shopfloor machines compare a100 h100 cpu",
        ],
    ),
    (
        "occupancy",
        &[
            "shopfloor occupancy --on a100 --threads 256 --registers 64",
            "shopfloor occupancy --cc 9.0 --threads 128 --dynamic-shared 96KiB --optin",
        ],
    ),
    (
        "access",
        &[
            "shopfloor access --stride 33",
            "shopfloor access --index \"lane*32 + lane/8\" --width 8",
        ],
    ),
    (
        "transfer",
        &[
            "shopfloor transfer --on a100 --bytes 64KiB --kernel 10us --batches 1000",
            "shopfloor transfer --on h100 --bytes 4KiB --kernel 3us --launch 5us",
        ],
    ),
    (
        "tensorcore",
        &[
            "shopfloor tensorcore --on a100 --op matmul:100x100x100:f16",
            "shopfloor tensorcore --on h100 --op matmul:4096x4096x4096:bf16",
        ],
    ),
    (
        "roofline",
        &[
            "shopfloor roofline --on a100 --op matmul:4096x4096x4096:f16",
            "shopfloor roofline models/digits_cnn/model.onnx --dim batch=64 --on cpu",
        ],
    ),
    (
        "advise",
        &[
            "shopfloor advise models/digits_cnn/model.onnx --on a100",
            "shopfloor advise models/ppocr_rec/model.onnx --inputs models/ppocr_rec/inputs.npz --on cpu",
        ],
    ),
    (
        "what-if",
        &[
            "shopfloor what-if models/digits_cnn/model.onnx --on a100 --set l2=2x",
            "shopfloor what-if models/ppocr_cls/model.onnx --inputs models/ppocr_cls/inputs.npz --on cpu \\
    --set clock=+10% --set bandwidth=2x",
        ],
    ),
    (
        "predict",
        &[
            "shopfloor predict --measurements measurements.csv",
            "shopfloor predict --measurements measurements.csv --gpu A100 --rows",
        ],
    ),
    (
        "simulate",
        &[
            "shopfloor simulate scenarios/shift.toml",
            "shopfloor simulate scenarios/burst.toml --seed 7 --supervise observe",
        ],
    ),
    (
        "supervise",
        &[
            "shopfloor supervise models/digits_cnn/model.onnx models/magika/model.onnx --seconds 1",
            "shopfloor supervise models/digits_cnn/model.onnx --callers 4 --seconds 1 --log decisions.log",
        ],
    ),
    (
        "top",
        &[
            "shopfloor top --attach engine.sock",
            "shopfloor top --attach engine.sock --once",
        ],
    ),
];

/// `--on` of commands that run.
const RUNS: &str = "Device that runs: cpu (this CPU), cuda[:N], wgpu[:ADAPTER], emulated:a100, :h100 or :t4, \
or cpu+cuda, each step where all together is predicted to take least [default: cpu]";
/// `--on` of commands that take either.
const EITHER: &str = "Device that is here (cpu is this CPU; cuda, wgpu and others as for run), or machine that \
is planned for and does not run: h100, cpu+h100, a TOML file [default: cpu]";
/// `--on` of commands that run nothing.
const PLANS: &str = "Machine that is planned for and does not run: cpu (this CPU), a name such as h100 \
(`shopfloor machines list`), or a TOML file [default: cpu]";

/// `--on` of the command that prints a GPU's code.
const PRINTS: &str = "GPU whose code is printed and which need not be here: a name such as h100 \
(`shopfloor machines list`), cpu+h100, a TOML file, or wgpu for WGSL; --text takes a CPU too";

/// `--inputs` of the command that takes none by itself.
const RUN_INPUTS: &str =
    "Inputs: an npz file with the inputs' names, or INPUT=FILE.npy; repeatable; see --random";

/// What `--on` of a command may name.
fn on(command: &str) -> Option<&'static str> {
    Some(match command {
        "demo" | "run" | "bench" | "profile" | "test" | "supervise" => RUNS,
        "plan" | "walk" | "annotate" => EITHER,
        "advise" | "what-if" | "roofline" => PLANS,
        "emit" => PRINTS,
        _ => return None,
    })
}

fn examples(command: &str) -> String {
    let of = EXAMPLES
        .iter()
        .find(|e| e.0 == command)
        .map_or(&[][..], |e| e.1);
    let mut out = String::from("Examples:");
    for e in of {
        let _ = write!(out, "\n  {e}");
    }
    out
}

/// What the exit codes of all commands mean.
const CODES: [(u8, &str); 7] = [
    (0, "done"),
    (
        1,
        "it failed while running: a file that is not there or is wrong, a model that cannot be planned, a device that \
         cannot be used",
    ),
    (2, "the command line is wrong: an option, a value or a name"),
    (3, "the model has operators that are not supported"),
    (
        4,
        "outputs differ from the reference, or test folders failed",
    ),
    (5, "a stated goal or expectation was missed"),
    (6, "nothing was tested: every test folder was skipped"),
];

/// [`CODES`] as a paragraph of lines of `width` columns.
fn codes(width: usize) -> String {
    let each = CODES.iter().map(|(code, what)| format!("{code} {what}"));
    let text = format!("Exit codes: {}.", each.collect::<Vec<_>>().join("; "));
    wrapped(&text, width).join("\n")
}

/// The groups with what every command does, in lines of `width` columns.
fn groups(command: &Command, width: usize) -> String {
    let mut out = String::new();
    for (group, names) in GROUPS {
        let mut title = *group;
        for name in *names {
            let Some(c) = command.find_subcommand(name) else {
                continue;
            };
            let about = c.get_about().map(ToString::to_string).unwrap_or_default();
            let (mut first, rest) = (name, width.saturating_sub(26));
            for line in wrapped(&about, rest) {
                let _ = writeln!(out, "  {title:<12}{first:<12}{line}");
                (title, first) = ("", &"");
            }
        }
        out.push('\n');
    }
    out
}

/// `command`, which takes a negative number for a value that is wrong and for no option.
fn numbered(command: Command) -> Command {
    let command = command.mut_args(|a| match a.get_action().takes_values() {
        true => a.allow_negative_numbers(true),
        false => a,
    });
    command.mut_subcommands(numbered)
}

/// `command` with its groups, and its commands with examples.
pub fn dress(command: Command) -> Command {
    let width = output::style().width;
    let list = groups(&command, width);
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}\n\n\
         `shopfloor COMMAND --help` says more, with examples.\n\n{}",
        codes(width)
    );
    let names: Vec<String> = command
        .get_subcommands()
        .map(|c| c.get_name().into())
        .collect();
    let mut command = command.help_template(template).term_width(width);
    for name in names {
        command = command.mut_subcommand(&name, |c| {
            let c = c.after_help(examples(&name)).term_width(width);
            let c = numbered(c);
            let c = match name.as_str() {
                "run" => c.mut_arg("inputs", |a| a.help(RUN_INPUTS)),
                // It plans nothing, and what it shows is the same by every precision.
                "inspect" => c.mut_arg("precision", |a| a.hide(true)),
                _ => c,
            };
            match on(&name) {
                Some(help) => c.mut_arg("on", |a| a.help(help)),
                None => c,
            }
        });
    }
    command
}

/// An option as it is written: `--dim NAME=RANGE`.
fn written(a: &Arg) -> String {
    let value = a.get_value_names().and_then(|v| v.first());
    let value = value.filter(|_| a.get_action().takes_values());
    match (a.get_long(), value) {
        (Some(long), Some(v)) => format!("`--{long} {v}`"),
        (Some(long), None) => format!("`--{long}`"),
        (None, _) => format!("`{}`", a.get_id().as_str().to_uppercase()),
    }
}

/// Options of a command beside `--help`.
fn options(c: &Command) -> impl Iterator<Item = &Arg> {
    c.get_arguments()
        .filter(|a| !a.is_hide_set() && a.get_long().is_some_and(|l| l != "help"))
}

/// The part of docs/commands.md that is made of the help: the commands, what several of them have, and what
/// each has alone.
pub fn page(command: &Command) -> String {
    let named = |n: &str| command.find_subcommand(n);
    let all: Vec<&Command> = GROUPS
        .iter()
        .flat_map(|g| g.1.iter().filter_map(|n| named(n)))
        .collect();
    let mut out = String::from("| | command | what it does |\n|---|---|---|\n");
    for (group, names) in GROUPS {
        for (i, c) in names.iter().filter_map(|n| named(n)).enumerate() {
            let about = c.get_about().map(ToString::to_string).unwrap_or_default();
            let group = if i == 0 { *group } else { "" };
            let _ = writeln!(out, "| {group} | `{}` | {about} |", c.get_name());
        }
    }
    // An option is shared where another command has it with the same words; `--on` has three.
    let help = |a: &Arg| a.get_help().map(ToString::to_string).unwrap_or_default();
    let with = |a: &Arg| -> Vec<&str> {
        let same = |o: &Arg| o.get_long() == a.get_long() && help(o) == help(a);
        let having = all.iter().filter(|c| options(c).any(same));
        having.map(|c| c.get_name()).collect()
    };
    out += "\n## Options of several commands\n";
    let mut headings: Vec<(String, Vec<String>)> = Vec::new();
    let mut seen: Vec<(Option<&str>, String)> = Vec::new();
    for a in all.iter().flat_map(|c| options(c)) {
        let key = (a.get_long(), help(a));
        let names = with(a);
        if names.len() < 2 || seen.contains(&key) {
            continue;
        }
        let heading = a.get_help_heading().unwrap_or("Others").to_string();
        let of = match names.len() > 6 {
            true => String::new(),
            false => format!(" ({})", names.join(", ")),
        };
        let line = format!("- {}{of}: {}", written(a), key.1);
        seen.push(key);
        match headings.iter_mut().find(|h| h.0 == heading) {
            Some(h) => h.1.push(line),
            None => headings.push((heading, vec![line])),
        }
    }
    for (heading, lines) in &headings {
        let _ = writeln!(out, "\n### {heading}\n\n{}", lines.join("\n"));
    }
    out += "\n## Exit codes\n\n| code | meaning |\n|---|---|\n";
    for (code, what) in CODES {
        let _ = writeln!(out, "| {code} | {what} |");
    }
    out += "\n## Options of one command\n\n";
    for c in &all {
        let own: Vec<String> = options(c)
            .filter(|a| with(a).len() < 2)
            .map(written)
            .collect();
        if !own.is_empty() {
            let _ = writeln!(out, "- `{}`: {}", c.get_name(), own.join(", "));
        }
    }
    out
}
