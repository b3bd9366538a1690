//! A box near one that was planned takes its schedules: no other answers, and no chain of boxes away
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

/// Whether the plan for `batch` took another one's schedules.
fn took(s: &Session, batch: i64) -> bool {
    let plans = s.runtime().plans();
    let range = |p: &plan::Plan| p.dims.get("batch").map(|r| (r.lo, r.hi));
    let found = plans
        .iter()
        .find(|p| range(p.plan()) == Some((batch, batch)));
    found.expect("a plan for this batch").plan().is_like()
}

#[test]
fn a_near_box_takes_schedules_and_answers_the_same() {
    let s = session();
    for (batch, like) in [
        (4, false),
        (6, true),
        (8, true),
        (3, true),
        (2, true),
        (9, false),
    ] {
        let got = answer(&s, batch);
        assert_eq!(took(&s, batch), like, "batch {batch}");
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
    // 17 is near to 9, which was looked for anew; 40 is near to neither.
    answer(&s, 17);
    assert!(took(&s, 17));
    answer(&s, 40);
    assert!(!took(&s, 40));
}
