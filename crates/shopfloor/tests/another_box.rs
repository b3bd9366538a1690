//! A box beside one that was planned takes its schedules: no other answers, and no chain of boxes away
//! from where a schedule was looked for.

use shopfloor::{Session, Tensor, default_engine, inputs};
use std::path::Path;

fn session() -> Session {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/digits_cnn/model.onnx");
    Session::builder()
        .with_engine(default_engine(Some(2), None, None).unwrap())
        .commit_from_file(model)
        .unwrap()
}

fn answer(s: &Session, batch: i64) -> Vec<(String, Tensor)> {
    let sizes = [("batch".to_string(), batch)].into_iter().collect();
    let named = inputs::random_inputs(s.model(), &sizes).unwrap();
    s.run(&inputs::borrowed(&named)).unwrap().into_vec()
}

/// The box whose schedules the plan for `batch` took, if it did.
fn took(s: &Session, batch: i64) -> Option<String> {
    let plans = s.runtime().plans();
    let range = |p: &plan::Plan| p.dims.get("batch").map(|r| (r.lo, r.hi));
    let found = plans
        .iter()
        .find(|p| range(p.plan()) == Some((batch, batch)));
    let plan = found.expect("a plan for this batch").plan();
    let why = plan.whys.iter().find(|w| w.pass == plan::Plan::LIKE);
    assert_eq!(why.is_some(), plan.is_like());
    why.map(|w| w.choice.clone())
}

#[test]
fn another_box_takes_schedules_and_answers_the_same() {
    let s = session();
    for batch in [4, 6, 8, 3, 2, 9, 17, 40, 1] {
        let got = answer(&s, batch);
        // Near or far, schedules are those of the box that they were looked for in.
        let from = (batch != 4).then(|| "batch=4".to_string());
        assert_eq!(took(&s, batch), from, "batch {batch}");
        let want = answer(&session(), batch);
        assert_eq!(got.len(), want.len());
        for ((_, g), (_, w)) in got.iter().zip(&want) {
            assert_eq!(g.shape(), w.shape());
            for i in 0..g.len() {
                let (g, w) = (g.get_f64(i), w.get_f64(i));
                assert!((g - w).abs() <= 1e-5 * w.abs().max(1.0), "{g} {w}");
            }
        }
    }
}
