//! The ONNX standard's own tests of operators and small models, one named test per folder, with the
//! sizes that the model states and once more with every dimension a symbol (`open_dims::`). The cases
//! of ../shared/cases, where they are, in the same two ways.
//!
//! `scripts/fetch-node-tests.sh` makes them; without cache, Python and its packages they are left out by name and
//! count, and with `CI=true` that is a failure. `exclusions.toml` names the cases that are not
//! expected to pass and why; one of them that passes fails the suite.
extern crate shopfloor_testkit as testkit;

use libtest_mimic::{Arguments, Failed, Trial};
use shopfloor::{Engine, ModelOptions, Session, default_engine};
use shopfloor_tools::{Closeness, TestFolder, Verdict, find_test_folders, run_test_folder};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use testing::Share;
use testkit::printed::{Code, On, PrintOutcome, check, everywhere};
use testkit::tools;

/// Folders of the pinned version.
const CASES: usize = 2027;
/// Parts of them, of which a run prints one for targets that need not be here.
const SHARES: u64 = 200;
/// Parts of them, of which a run that asks for no case by name opens the dims of one.
const OPEN_SHARES: u64 = 4;

/// One engine for all: its workers would otherwise start anew for each of the cases. The calling
/// thread is its only worker, because the tests themselves run side by side.
fn engine() -> Result<&'static Arc<Engine>, Failed> {
    static ENGINE: OnceLock<Result<Arc<Engine>, String>> = OnceLock::new();
    ENGINE
        .get_or_init(|| default_engine(Some(1), None, None).map_err(|e| e.to_string()))
        .as_ref()
        .map_err(|e| Failed::from(e.clone()))
}

/// Why a case is excluded: the entry of its name, or the longest prefix written `NAME*`.
struct Exclusions(BTreeMap<String, String>);

impl Exclusions {
    fn read() -> Exclusions {
        let text = include_str!("node/exclusions.toml");
        let table: BTreeMap<String, BTreeMap<String, String>> = basic_toml::from_str(text)
            .expect("exclusions.toml is a table of name = reason by reason's kind");
        let mut all = BTreeMap::new();
        for (name, reason) in table.into_values().flatten() {
            assert!(!reason.is_empty(), "exclusions.toml: {name} has no reason");
            assert!(
                all.insert(name.clone(), reason).is_none(),
                "exclusions.toml: {name} is there twice"
            );
        }
        Exclusions(all)
    }

    fn entry(&self, case: &str) -> Option<(&str, &str)> {
        if let Some((k, v)) = self.0.get_key_value(case) {
            return Some((k, v));
        }
        self.0
            .iter()
            .filter(|(k, _)| k.strip_suffix('*').is_some_and(|p| case.starts_with(p)))
            .max_by_key(|(k, _)| k.len())
            .map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

fn run(folder: &TestFolder, open_dims: bool, excluded: Option<String>) -> Result<(), Failed> {
    let engine = engine()?;
    let options = ModelOptions {
        open_dims,
        ..ModelOptions::default()
    };
    let verdict = catch_unwind(AssertUnwindSafe(|| {
        let builder = Session::builder().with_engine(engine.clone());
        run_test_folder(folder, &builder, &options, Closeness::default())
    }));
    let problem = match verdict {
        Ok(Verdict::Passed) => None,
        Ok(Verdict::Failed(why) | Verdict::Skipped(why)) => Some(why),
        // A panic is a fault of ours whether the case is excluded or not.
        Err(_) => return Err("it panicked".into()),
    };
    match (problem, excluded) {
        (None, None) | (Some(_), Some(_)) => Ok(()),
        (Some(why), None) => Err(why.into()),
        (None, Some(reason)) => Err(format!(
            "it passes, but exclusions.toml leaves it out ({reason}); take it out there"
        )
        .into()),
    }
}

/// The cases of ../shared/cases by kind and name.
fn shared(opened: Share) -> Vec<Trial> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(3).unwrap_or(here);
    let cases = root.join("../shared/cases");
    let Ok(folders) = find_test_folders(&[cases]) else {
        testing::skip("cases", "there is no ../shared/cases");
        return Vec::new();
    };
    let both = folders.into_iter().flat_map(|f| {
        let parent = f.path.parent().and_then(|p| p.file_name());
        let kind = parent.unwrap_or_default().to_string_lossy();
        let name = format!("cases::{kind}::{}", f.name());
        let open = f.clone();
        let opened = opened
            .has(&name)
            .then(|| Trial::test(format!("open_dims::{name}"), move || run(&open, true, None)));
        let fixed = Trial::test(name, move || run(&f, false, None));
        opened.into_iter().chain([fixed])
    });
    both.collect()
}

/// Whether `code` is valid, where it is WGSL.
fn valid(on: &On, code: &Code) -> Result<(), String> {
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    if on.target.kind != kernel::TargetKind::Wgsl {
        return Ok(());
    }
    let module = naga::front::wgsl::parse_str(&code.text);
    let module = module.map_err(|e| e.emit_to_string(&code.text))?;
    let mut v = Validator::new(ValidationFlags::all(), Capabilities::all());
    let done = v.validate(&module);
    done.map(|_| ()).map_err(|e| e.emit_to_string(&code.text))
}

/// Plans and prints this run's share of the cases for every target.
fn share_is_printed(folders: &[TestFolder]) -> Result<(), Failed> {
    let (share, all) = (Share::of_run(SHARES), everywhere()?);
    let (mut steps, mut wrong) = (0, vec![]);
    for f in folders.iter().filter(|f| share.has(&f.name())) {
        let name = f.name();
        match check(&f.path.join("model.onnx"), &[], &all, &mut valid) {
            Ok(PrintOutcome::Steps(n)) => steps += n,
            // What is not taken at all is its own case's to say.
            Ok(PrintOutcome::Unknown(_)) => {}
            Err(why) => wrong.push(format!(
                "{name}: {why}\n    again: cargo xtask targets {name}"
            )),
        }
    }
    println!("share {} of {}: {steps} steps", share.number, share.of);
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n").into()),
    }
}

fn main() {
    let args = Arguments::from_args();
    let exclusions = Exclusions::read();
    let found =
        tools::node_tests().and_then(|path| find_test_folders(&[path]).map_err(|e| e.to_string()));
    let mut trials = Vec::new();
    let opened = match args.filter.is_some() {
        true => Share::ALL,
        false => Share::of_run(OPEN_SHARES),
    };
    println!("open dims of {opened}");
    match found {
        Ok(folders) => {
            let total = folders.len();
            trials.push(Trial::test("all_cases_are_there", move || match total {
                CASES => Ok(()),
                n => Err(format!("{n} cases were found, not {CASES}").into()),
            }));
            let all = folders.clone();
            let printed = move || share_is_printed(&all);
            trials.push(Trial::test("a_share_is_printed_for_every_target", printed));
            let mut used = Vec::new();
            for folder in folders {
                let parent = folder.path.parent().and_then(|p| p.file_name());
                let family = parent.unwrap_or_default().to_string_lossy().into_owned();
                let name = format!("{family}::{}", folder.name());
                let excluded = exclusions.entry(&name).map(|(k, v)| {
                    used.push(k.to_string());
                    v.to_string()
                });
                let (open, again) = (folder.clone(), excluded.clone());
                if opened.has(&name) {
                    trials.push(Trial::test(format!("open_dims::{name}"), move || {
                        run(&open, true, again)
                    }));
                }
                trials.push(Trial::test(name, move || run(&folder, false, excluded)));
            }
            let idle: Vec<String> = exclusions
                .0
                .keys()
                .filter(|k| !used.contains(k))
                .cloned()
                .collect();
            trials.push(Trial::test(
                "every_exclusion_is_a_case",
                move || match idle.is_empty() {
                    true => Ok(()),
                    false => Err(format!("no case has these names: {}", idle.join(", ")).into()),
                },
            ));
        }
        Err(why) => {
            testing::skip(
                &format!("node: the {CASES} cases of the ONNX standard"),
                &why,
            );
        }
    }
    trials.extend(shared(opened));
    libtest_mimic::run(&args, trials).exit();
}
