//! Models in a kernel that stays on an emulated GPU: the same bits as step by step, over changing dims,
//! from several threads, and with other plans in between.
use plan::Wait;
use shopfloor::{Launch, Session, Tensor, inputs};
use shopfloor_tools::data;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testkit::zoo;

fn folder(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../models")
        .join(model)
}

/// A device and how its steps are launched.
type Way = (&'static str, Launch);

fn engine((on, launch): Way) -> Arc<runtime::Engine> {
    let builder = Session::builder().with_device(on).with_launch(launch);
    builder.engine().unwrap_or_else(|e| panic!("{e}"))
}

fn session(engine: &Arc<runtime::Engine>, model: &str) -> Session {
    Session::builder()
        .with_engine(engine.clone())
        .commit_from_file(folder(model).join("model.onnx"))
        .unwrap_or_else(|e| panic!("{e}"))
}

fn given(model: &str) -> Vec<(String, Tensor)> {
    data::read_npz(folder(model).join("inputs.npz")).expect("inputs")
}

/// The first `n` entries along the first axis.
fn first(t: &Tensor, n: usize) -> Tensor {
    let mut shape = t.shape().to_vec();
    let each = t.bytes().len() / shape[0].max(1);
    shape[0] = n;
    Tensor::from_bytes(t.dtype(), &shape, t.bytes()[..n * each].to_vec()).expect("a tensor")
}

fn outputs(s: &Session, given: &[(String, Tensor)]) -> Vec<Vec<u8>> {
    let list: Vec<(&str, &Tensor)> = given.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let out = s.run(&list).unwrap_or_else(|e| panic!("{e}"));
    let all = out.into_vec();
    all.iter().map(|(_, t)| t.bytes().to_vec()).collect()
}

const STEPS: Way = ("emulated:a100,sms=3", Launch::Steps);
const RESIDENT: Way = ("emulated:a100,sms=3,checks", Launch::Resident);

#[test]
fn a_model_gives_the_same_bits_resident_and_step_by_step() {
    if !testing::turn("a_model_gives_the_same_bits_resident_and_step_by_step") {
        return;
    }
    let all = given("digits_cnn");
    let (a, b) = (engine(STEPS), engine(RESIDENT));
    let (a, b) = (session(&a, "digits_cnn"), session(&b, "digits_cnn"));
    let most = all[0].1.shape()[0];
    for n in [1, 2, 1, 1, most.min(3)] {
        let some: Vec<(String, Tensor)> =
            all.iter().map(|(k, t)| (k.clone(), first(t, n))).collect();
        assert_eq!(outputs(&a, &some), outputs(&b, &some), "batch {n}");
    }
}

#[test]
fn requests_of_several_threads_share_a_kernel() {
    let all: Vec<(String, Tensor)> = given("digits_cnn");
    let want = outputs(&session(&engine(STEPS), "digits_cnn"), &one(&all));
    let s = session(&engine(RESIDENT), "digits_cnn");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2 {
                    assert_eq!(outputs(&s, &one(&all)), want);
                }
            });
        }
    });
}

fn one(all: &[(String, Tensor)]) -> Vec<(String, Tensor)> {
    all.iter().map(|(k, t)| (k.clone(), first(t, 1))).collect()
}

#[test]
fn another_plan_comes_and_goes() {
    let all = one(&given("digits_cnn"));
    let engine = engine(RESIDENT);
    let s = session(&engine, "digits_cnn");
    let want = outputs(&s, &all);
    // A session of its own has a plan of its own, whose memory is made while no kernel runs.
    let other = session(&engine, "digits_cnn");
    assert_eq!(outputs(&other, &all), want);
    assert_eq!(outputs(&s, &all), want);
    drop(other);
    assert_eq!(outputs(&s, &all), want);
}

/// Outputs of a model of the zoo with its own inputs, and of another request behind it.
fn whole(name: &str, way: Way) -> Option<Vec<Vec<u8>>> {
    let Some(model) = zoo::find(name) else {
        zoo::skip(&[name]);
        return None;
    };
    let prepared = model.prepare_temporary().expect("weights");
    let given = model.inputs().expect("inputs");
    let mut builder = Session::builder().with_engine(engine(way));
    for (n, t) in &given {
        builder = builder.with_shape(n, t.shape());
    }
    let s = builder.commit_from_file(&prepared.model);
    let s = s.unwrap_or_else(|e| panic!("{name}: {e}"));
    let first = outputs(&s, &given);
    let again = outputs(&s, &given);
    assert_eq!(first, again, "{name}: two requests");
    Some(first)
}

/// The same bits both ways, of a whole model with checks while it stays.
fn same(name: &str) {
    let staying = whole(name, RESIDENT);
    assert_eq!(staying, whole(name, STEPS), "{name}");
}

#[test]
fn skl_mlp() {
    same("skl_mlp");
}

#[test]
fn gnn_gcn() {
    same("gnn_gcn");
}

#[test]
fn if_branches() {
    same("if_branches");
}

#[test]
fn silero_vad() {
    if !testing::turn("emulated: silero_vad") {
        return;
    }
    same("silero_vad");
}

#[test]
fn steps_wait_for_tiles_and_not_for_each_other() {
    let s = session(&engine(RESIDENT), "digits_cnn");
    let (mut sizes, _) = inputs::sizes(s.model());
    sizes.values_mut().for_each(|v| *v = 64);
    let plan = s.plan(&inputs::box_of(s.model(), &sizes)).expect("a plan");
    let steps = || plan.blocks().flat_map(|b| &b.steps);
    let tiles = |w: &Wait| matches!(w, Wait::Tiles { .. });
    let some = steps().filter(|s| s.waits.iter().any(tiles)).count();
    let waiting = steps().filter(|s| !s.waits.is_empty()).count();
    println!("{some} of {waiting} steps that wait do so by tiles");
    assert!(some > 0);
}
