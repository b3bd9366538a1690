//! Models that are read from memory, and what sessions say of the file's inputs and outputs.

use shopfloor::{Error, PortDim, Session, Tensor, inputs};
use std::path::Path;
use std::sync::Arc;

fn bytes() -> Vec<u8> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models");
    std::fs::read(models.join("digits_cnn/model.onnx")).unwrap()
}

fn session() -> Session {
    let builder = Session::builder().with_threads(1);
    builder.commit_from_memory(bytes()).unwrap()
}

/// Counts who holds it.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[test]
fn bytes_are_shared_and_give_what_the_file_gives() {
    let held = Arc::new(bytes());
    let builder = Session::builder().with_threads(1);
    let s = builder.commit_from_memory(Shared(held.clone())).unwrap();
    assert!(Arc::strong_count(&held) > 1);
    let (sizes, _) = inputs::sizes(s.model());
    let named = inputs::random_inputs(s.model(), &sizes).unwrap();
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models");
    let file = Session::builder().with_threads(1);
    let file = file
        .commit_from_file(models.join("digits_cnn/model.onnx"))
        .unwrap();
    let run = |s: &Session| s.run(&inputs::borrowed(&named)).unwrap().into_vec();
    assert_eq!(run(&s), run(&file));
    assert!(s.model().files().is_empty());
    drop(s);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn inputs_and_outputs_are_those_of_the_file() {
    let s = session();
    let input = s.inputs().next().unwrap();
    assert_eq!(input.kind, "tensor(float)");
    assert_eq!(input.dtype, Some(shopfloor::DType::F32));
    let dims = input.dims.as_ref().unwrap();
    assert!(matches!(dims[0], PortDim::Symbol(_)));
    assert_eq!(dims[1..], [1, 8, 8].map(PortDim::Size));
    assert_eq!(s.outputs()[0].name, "probabilities");
    assert_eq!(s.overridable().count(), 0);
    assert!(!s.metadata().graph_name.is_empty());
}

#[test]
fn a_damaged_model_is_told_from_others() {
    let builder = || Session::builder().with_threads(1);
    let damaged = |b: &[u8]| match builder().commit_from_memory(b.to_vec()) {
        Err(e @ Error::Model(_)) => e.is_damaged(),
        _ => panic!("it is refused as a model"),
    };
    let whole = bytes();
    assert!(damaged(&whole[..whole.len() / 2]));
    assert!(!damaged(&[]));
}

#[test]
fn a_stored_profile_is_that_of_its_requests() {
    let s = session();
    let (sizes, _) = inputs::sizes(s.model());
    let named = inputs::random_inputs(s.model(), &sizes).unwrap();
    let borrowed: Vec<(&str, &Tensor)> = inputs::borrowed(&named);
    let mut timeline = shopfloor::Timeline::default();
    s.run_timed(&borrowed, &mut timeline).unwrap();
    let sizes = inputs::sizes_given(s.model(), &borrowed);
    let profile = shopfloor::profile_of(&s, &sizes, 0, &[timeline]);
    assert!(!profile.steps.is_empty());
    assert!(profile.steps.iter().all(|step| step.time_us > 0.0));
}

#[test]
fn inputs_whose_rank_is_not_stated_have_that_of_the_request() {
    let builder = Session::builder().with_threads(1);
    let s = builder
        .commit_from_memory(crate::common::unranked())
        .unwrap();
    let dims = s.inputs().map(|p| p.dims.clone());
    assert!(
        dims.chain([s.outputs()[0].dims.clone()])
            .all(|d| d.is_none())
    );
    let number = |shape: &[usize], v: f32| {
        let count = shape.iter().product();
        Tensor::from_array((shape.to_vec(), vec![v; count])).unwrap()
    };
    for (x, b, y) in [
        (&[2, 3][..], &[3][..], &[2, 3][..]),
        (&[], &[], &[]),
        (&[4], &[1, 2, 1, 4], &[1, 2, 1, 4]),
        (&[2, 3], &[3], &[2, 3]),
    ] {
        let (x, b) = (number(x, 1.0), number(b, 2.0));
        let outputs = s.run(inputs!["x" => &x, "b" => &b]).unwrap();
        assert_eq!(outputs["y"], number(y, 3.0));
        let sent = s.run_async([("x", x), ("b", b)]);
        let outputs = crate::futures::block_on(sent).unwrap();
        assert_eq!(outputs["y"], number(y, 3.0));
    }
    let (x, b) = (number(&[3], 1.0), number(&[2], 2.0));
    assert!(s.run(inputs!["x" => &x, "b" => &b]).is_err());
}

#[test]
fn items_whose_rank_is_not_stated_have_that_of_the_request() {
    let builder = Session::builder().with_threads(1);
    let s = builder.commit_from_memory(crate::common::items()).unwrap();
    let one = |shape: &[usize], v: f32| {
        let count = shape.iter().product();
        Tensor::from_array((shape.to_vec(), vec![v; count])).unwrap()
    };
    // As many items as dimensions, and not.
    for shapes in [
        &[&[3, 4][..]][..],
        &[&[2, 3], &[4, 5]],
        &[&[], &[], &[]],
        &[&[6], &[6], &[7], &[1]],
        &[&[3, 4]],
    ] {
        let all = |v: f32| Tensor::sequence(shapes.iter().map(|s| one(s, v)));
        let outputs = s.run(inputs!["s" => &all(-1.0)]).unwrap();
        let shape: Vec<i64> = shapes[0].iter().map(|&n| n as i64).collect();
        let shape = Tensor::from_i64(&[shape.len()], &shape).unwrap();
        assert_eq!(outputs["y"], shape, "{shapes:?}");
        assert_eq!(outputs["v"], all(0.0), "{shapes:?}");
    }
}
