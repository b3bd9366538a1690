//! Control flow whose branches do not all fit the sizes a model is loaded with.
extern crate shopfloor_testkit as testkit;

use shopfloor::{Session, Tensor};
use testkit::zoo;

#[test]
fn a_branch_that_does_not_fit_is_refused_when_it_is_taken() {
    let Some(model) = zoo::find("silero_vad") else {
        eprintln!("{}", zoo::left_out(&["silero_vad"]));
        return;
    };
    let prepared = model.prepare_temporary().expect("the model is whole");
    let inputs = model.inputs().expect("the inputs are whole");
    let mut builder = Session::builder().with_threads(1);
    for (n, t) in &inputs {
        builder = builder.with_shape(n, t.shape());
    }
    let session = builder
        .commit_from_file(&prepared.model)
        .expect("one branch fits these sizes");
    let run = |rate: i64| {
        let rate = Tensor::from_i64(&[], &[rate]).expect("a number");
        let named: Vec<(&str, &Tensor)> = inputs
            .iter()
            .map(|(n, t)| (n.as_str(), if n == "sr" { &rate } else { t }))
            .collect();
        session.run(&named)
    };
    run(16_000).expect("the branch for 16 kHz fits 576 samples");
    // The branch for 8 kHz takes 288 samples.
    let e = run(8_000).expect_err("the other branch does not fit");
    let e = e.to_string();
    assert!(
        e.contains("If_0") && e.contains("does not fit the sizes"),
        "{e}"
    );
    run(16_000).expect("a refused request leaves the session as it was");
}
