//! This engine as a runner, called as the others are; and the form in which all take their inputs.
use shopfloor::{Model, ModelOptions, Session, Tensor, inputs};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use testkit::zoo;

/// First argument of `bench-peers` that makes it a runner.
pub const RUNNER: &str = "--runner";

/// numpy's name of an element type, where it has one.
fn dtype_name(t: &Tensor) -> Option<String> {
    let name = ["float32", "float64", "float16"]
        .into_iter()
        .chain(["int64", "int32", "int16", "int8", "uint64", "uint32"])
        .chain(["uint16", "uint8", "bool"]);
    name.map(String::from)
        .find(|n| zoo::element_type(n) == Some(t.dtype()))
}

/// Writes `inputs.txt` and a file of elements per input.
pub fn write_inputs(named: &[(String, Tensor)], folder: &Path) -> Result<(), String> {
    let mut lines = String::new();
    for (i, (name, t)) in named.iter().enumerate() {
        let dtype = dtype_name(t).ok_or_else(|| format!("input {name} is {t:?}"))?;
        let sizes: Vec<String> = t.shape().iter().map(usize::to_string).collect();
        let sizes = match sizes.is_empty() {
            true => "-".into(),
            false => sizes.join("x"),
        };
        let _ = writeln!(lines, "{i}.bin {dtype} {sizes} {name}");
        std::fs::write(folder.join(format!("{i}.bin")), t.bytes()).map_err(|e| e.to_string())?;
    }
    std::fs::write(folder.join("inputs.txt"), lines).map_err(|e| e.to_string())
}

fn read_inputs(folder: &Path) -> Result<Vec<(String, Tensor)>, String> {
    let text = std::fs::read_to_string(folder.join("inputs.txt")).map_err(|e| e.to_string())?;
    let mut named = Vec::new();
    for line in text.lines() {
        let parts: Vec<&str> = line.splitn(4, ' ').collect();
        let [file, dtype, sizes, name] = parts.as_slice() else {
            return Err("inputs.txt has a short line".into());
        };
        let dtype = zoo::element_type(dtype).ok_or_else(|| format!("{dtype} is no type"))?;
        let shape: Result<Vec<usize>, _> = match *sizes {
            "-" => Ok(vec![]),
            s => s.split('x').map(str::parse).collect(),
        };
        let shape = shape.map_err(|_| format!("{sizes} are no sizes"))?;
        let bytes = std::fs::read(folder.join(file)).map_err(|e| e.to_string())?;
        let t = Tensor::from_bytes(dtype, &shape, bytes).map_err(|e| e.to_string())?;
        named.push((name.to_string(), t));
    }
    Ok(named)
}

/// `RUNNER MODEL INPUTS THREADS SECONDS`.
pub fn run(args: &[String]) -> ExitCode {
    match measure(args) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{}", e.replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &[String]) -> Result<String, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let [model, folder, threads, seconds] = args else {
        return Err("a runner takes MODEL INPUTS THREADS SECONDS".into());
    };
    let threads: usize = threads.parse().map_err(|e| text(&e))?;
    let seconds: f64 = seconds.parse().map_err(|e| text(&e))?;
    let named = read_inputs(Path::new(folder))?;
    // Nothing is taken from a cache: loading is all there is to do for a new model.
    let began = Instant::now();
    let model = Model::open(Path::new(model), &ModelOptions::default()).map_err(|e| text(&e))?;
    let session = Session::builder()
        .with_threads(threads)
        .commit(model)
        .map_err(|e| text(&e))?;
    let sizes = inputs::sizes_of(session.model(), &named);
    let plan = session
        .plan(&inputs::box_of(session.model(), &sizes))
        .map_err(|e| text(&e))?;
    session.swap_plan(plan).map_err(|e| text(&e))?;
    let borrowed = inputs::borrowed(&named);
    let once = || session.run(&borrowed).map(drop).map_err(|e| text(&e));
    once()?;
    let load = began.elapsed();
    let (warm, mut i) = (Instant::now(), 0);
    while i < 3 || warm.elapsed() < Duration::from_secs_f64(seconds / 5.0) {
        once()?;
        i += 1;
    }
    let (mut ms, start) = (Vec::new(), Instant::now());
    while ms.len() < 5 || start.elapsed().as_secs_f64() < seconds {
        let t = Instant::now();
        once()?;
        ms.push(t.elapsed().as_secs_f64() * 1e3);
    }
    ms.sort_by(f64::total_cmp);
    Ok(format!(
        "{{\"load_ms\": {:.3}, \"peak_bytes\": {}, \"median_ms\": {:.6}, \"best_ms\": {:.6}, \"runs\": {}}}",
        load.as_secs_f64() * 1e3,
        shopfloor_tools::peak_rss().unwrap_or(0),
        ms[ms.len() / 2],
        ms[0],
        ms.len()
    ))
}
