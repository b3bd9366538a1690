//! The accuracy that is stated, on published measurements: with the published constants, and on one GPU
//! whose rows the constants were fitted without.

use shopfloor_predict::fit::{all_pairs, family, fit, of_gpu, thinned};
use shopfloor_predict::page::REACH;
use shopfloor_predict::{Constants, Errors, Measurements};
use std::collections::BTreeMap;
use std::path::Path;

const FILES: [&str; 3] = [
    "gpu_kernels_neusight.csv.gz",
    "model_latency.csv.gz",
    "llm_decode.csv",
];

/// The files, where they are; a test that goes without says which.
fn files(test: &str) -> Option<Vec<Measurements>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/measurements");
    let missing: Vec<&str> = FILES
        .into_iter()
        .filter(|f| !folder.join(f).is_file())
        .collect();
    if !missing.is_empty() {
        let why = format!(
            "there is no {} in ../shared/measurements",
            missing.join(", ")
        );
        testing::skip(&format!("measurements: {test}"), &why);
        return None;
    }
    Some(
        FILES
            .map(|f| Measurements::open(&folder.join(f)).unwrap())
            .into(),
    )
}

fn by_family(files: &[Measurements], c: &Constants) -> BTreeMap<&'static str, Errors> {
    let mut groups: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for p in all_pairs(files, c).unwrap() {
        if let (Some(f), Ok(s)) = (family(p.row), &p.predicted) {
            groups.entry(f).or_default().push((*s, p.row.seconds));
        }
    }
    groups
        .into_iter()
        .map(|(f, p)| (f, Errors::of(p.len(), &p)))
        .collect()
}

fn reached(errors: &BTreeMap<&str, Errors>) {
    for (name, e) in errors {
        let Some(&(_, mean, most)) = REACH.iter().find(|r| r.0 == *name) else {
            continue;
        };
        let is = if mean { e.mean_ape } else { e.median_ape };
        assert!(is.unwrap() <= most, "{name}: {is:?} is above {most}");
    }
}

#[test]
fn published_constants_reach_what_is_stated() {
    let Some(files) = files("published_constants_reach_what_is_stated") else {
        return;
    };
    let errors = by_family(&files, Constants::published());
    assert_eq!(
        REACH.iter().filter(|r| errors.contains_key(r.0)).count(),
        REACH.len()
    );
    reached(&errors);
    for (name, e) in &errors {
        assert!(
            e.spearman.unwrap() > 0.9,
            "{name} is not in order: {:?}",
            e.spearman
        );
    }
}

#[test]
fn a_gpu_that_was_left_out_is_reached_too() {
    if !testing::turn("a_gpu_that_was_left_out_is_reached_too") {
        return;
    }
    let Some(files) = files("a_gpu_that_was_left_out_is_reached_too") else {
        return;
    };
    let gpu = "V100-PCIE-32GB";
    let few: Vec<Measurements> = files.iter().map(|f| thinned(f, 10)).collect();
    let c = fit(&of_gpu(&few, gpu, false), Constants::published()).unwrap();
    reached(&by_family(&of_gpu(&files, gpu, true), &c));
}
