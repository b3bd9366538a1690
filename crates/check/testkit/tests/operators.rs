//! Small models of one operator each, of com.microsoft, ai.onnx.ml and the quantised ones, against
//! the outputs that onnxruntime gave (`scripts/operator_cases.py`), as exported and with all dims
//! fixed. `SHOPFLOOR_OPERATOR_CASES` names another folder of such cases.
extern crate shopfloor_testkit as testkit;

use libtest_mimic::{Arguments, Failed, Trial};
use shopfloor::{Session, SessionBuilder, Tensor};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tensor::HostValue;

/// Largest difference over the largest magnitude; f16 has 11 bits.
const TOLERANCE: f64 = 2e-5;
const TOLERANCE_F16: f64 = 4e-3;

fn folder() -> PathBuf {
    std::env::var_os("SHOPFLOOR_OPERATOR_CASES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("data/operators"),
        PathBuf::from,
    )
}

/// How far `got` is from `want`; an error when they cannot be compared.
fn compare(name: &str, got: &Tensor, want: &Tensor) -> Result<(), String> {
    if got.shape() != want.shape() || got.dtype() != want.dtype() {
        return Err(format!("{name} is {got:?}, not {want:?}"));
    }
    if got.text() != want.text() {
        return Err(format!("{name} is {:?}, not {:?}", got.text(), want.text()));
    }
    let d = want.dtype();
    if d.bits() <= 8 && d.is_int() {
        // A quotient that lies halfway between two steps may go either way.
        let apart = (0..want.len()).map(|i| (got.get_i64(i) - want.get_i64(i)).abs());
        return match apart.max() {
            Some(n) if n > 1 => Err(format!("{name} is {n} steps away")),
            _ => Ok(()),
        };
    }
    let limit = match d {
        shopfloor::DType::F16 => TOLERANCE_F16,
        _ => TOLERANCE,
    };
    let far = testkit::compare::difference(got, want);
    if far > limit {
        let show = |t: &Tensor| {
            (0..t.len().min(8))
                .map(|i| t.get_f64(i))
                .collect::<Vec<_>>()
        };
        return Err(format!(
            "{name} differs by {far:.2e}: {:?} against {:?}",
            show(got),
            show(want)
        ));
    }
    Ok(())
}

fn check(
    model: &Path,
    arrays: &BTreeMap<String, Tensor>,
    builder: SessionBuilder,
) -> Result<(), String> {
    let session = builder.commit_from_file(model).map_err(|e| e.to_string())?;
    let inputs: Vec<(&str, &Tensor)> = arrays
        .iter()
        .filter_map(|(k, t)| Some((k.strip_prefix("in:")?, t)))
        .collect();
    let outputs = session.run(&inputs).map_err(|e| e.to_string())?.into_vec();
    for (name, got) in &outputs {
        if let Some(want) = arrays.get(&format!("out:{name}")) {
            compare(name, got, want)?;
            continue;
        }
        let keys = arrays
            .get(&format!("keys:{name}"))
            .ok_or_else(|| format!("{name} has no reference"))?;
        let values = &arrays[&format!("values:{name}")];
        let items = got
            .items()
            .ok_or_else(|| format!("{name} is no sequence"))?;
        let width = keys.len();
        if items.len() * width != values.len() {
            return Err(format!("{name} has {} maps", items.len()));
        }
        for (r, item) in items.iter().enumerate() {
            let Some(HostValue::Map { keys: k, values: v }) = item.host_value() else {
                return Err(format!("item {r} of {name} is no map"));
            };
            compare(name, k, keys)?;
            for i in 0..width {
                if v.get_f64(i) != values.get_f64(r * width + i) {
                    return Err(format!("value {i} of map {r} of {name} differs"));
                }
            }
        }
    }
    let wanted = arrays
        .keys()
        .filter(|k| k.starts_with("out:") || k.starts_with("keys:"));
    if wanted.count() != outputs.len() {
        return Err(format!("there are {} outputs", outputs.len()));
    }
    Ok(())
}

fn run(model: &Path) -> Result<(), Failed> {
    let fail = |how: &str, why: String| Failed::from(format!("{how}: {why}"));
    let arrays: BTreeMap<String, Tensor> = data::read_npz(model.with_extension("npz"))
        .map_err(|e| fail("arrays", e.to_string()))?
        .into_iter()
        .collect();
    let threads = |n| Session::builder().with_threads(n);
    check(model, &arrays, threads(1)).map_err(|e| fail("as exported", e))?;
    let mut fixed = threads(2);
    for (k, t) in &arrays {
        if let Some(k) = k.strip_prefix("in:") {
            fixed = fixed.with_shape(k, t.shape());
        }
    }
    check(model, &arrays, fixed).map_err(|e| fail("fixed dims, 2 threads", e))
}

fn main() {
    let args = Arguments::from_args();
    let folder = folder();
    let mut models: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "onnx"))
        .collect();
    models.sort();
    let trials = models
        .into_iter()
        .map(|p| {
            let name = p
                .file_stem()
                .map_or_else(String::new, |s| s.to_string_lossy().into_owned());
            Trial::test(name, move || run(&p))
        })
        .collect();
    libtest_mimic::run(&args, trials).exit();
}
