//! Models whole on whatever GPU answers, against their references. The larger ones are left to
//! `cargo xtask zoo --on wgpu`.
use shopfloor::{Session, engine_on, planview};
use std::sync::{Arc, OnceLock};
use testkit::zoo;

/// The engine, or `None` where no adapter answers: said once, by name.
fn engine() -> Option<Arc<runtime::Engine>> {
    static ONE: OnceLock<Option<Arc<runtime::Engine>>> = OnceLock::new();
    let made = ONE.get_or_init(|| match engine_on("wgpu", None, None, None) {
        Ok(e) => Some(e),
        Err(e) => {
            println!("left out: models on a GPU: {e}");
            None
        }
    });
    made.clone()
}

/// Runs a model twice and compares; gives what ran where.
fn check(name: &str) -> Option<planview::Shares> {
    let engine = engine()?;
    if !zoo::missing(&[name]).is_empty() {
        return None;
    }
    let model = zoo::find(name).expect(name);
    let prepared = model.prepare_temporary().expect("weights");
    let session = Session::builder()
        .with_engine(engine)
        .commit_from_file(&prepared.model)
        .expect("a session");
    let inputs = model.inputs().expect("inputs");
    let given: Vec<(&str, &shopfloor::Tensor)> =
        inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let got = session.run(&given).expect("a result").into_vec();
    let report = model.check(&got).expect("references");
    assert!(report.passed(), "{name}: {report}");
    let again = session.run(&given).expect("a result").into_vec();
    assert!(got == again, "{name}: a second run gave other bits");
    let shares = planview::shares(&session);
    println!("{name}: {shares:?}, {:?}", planview::fallbacks(&session));
    Some(shares)
}

#[test]
fn digits_cnn() {
    let Some(s) = check("digits_cnn") else { return };
    // Everything there is to compute is the GPU's.
    assert_eq!(s.steps_by_device.get("cpu"), None, "{s:?}");
    assert!(s.bytes_moved > 0);
}

#[test]
fn silero_vad() {
    check("silero_vad");
}

#[test]
fn ppocr_cls() {
    check("ppocr_cls");
}

#[test]
fn skl_mlp() {
    check("skl_mlp");
}

#[test]
fn gnn_gcn() {
    check("gnn_gcn");
}

#[test]
fn if_branches() {
    check("if_branches");
}

/// `SHOPFLOOR_ON_MODELS=a,b`: those models.
#[test]
fn models_asked_for() {
    let list = std::env::var("SHOPFLOOR_ON_MODELS").unwrap_or_default();
    for name in list.split(',').filter(|n| !n.is_empty()) {
        let began = std::time::Instant::now();
        check(name);
        println!("{name}: {:.1} s", began.elapsed().as_secs_f64());
    }
}
