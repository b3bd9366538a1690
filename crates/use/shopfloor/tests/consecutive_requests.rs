//! Requests one after the other on one session: what it learned from the first must not show in the
//! answers to the others.

use graph::{ContractSpec, GraphBuilder, Op, Origin};
use layout::{DType, Dim};
use shopfloor::{
    Model, ModelOptions, Outputs, Session, SessionBuilder, Tensor, Tolerance, compare,
    default_engine, inputs,
};
use std::path::Path;
use std::sync::Arc;
use tensor::WeightStore;

/// Products with bias, residual sums and bounds between, which all become single calls.
fn layers() -> Model {
    const W: usize = 40;
    let mut weights = WeightStore::new();
    let values = |n: usize, k: usize| -> Vec<f32> {
        (0..n)
            .map(|i| ((i * k % 17) as f32 - 8.0) / (4.0 * W as f32).sqrt())
            .collect()
    };
    let mut ids = Vec::new();
    for i in 0..3 {
        let w = Tensor::from_f32(&[W, W], &values(W * W, 3 + i)).unwrap();
        let b = Tensor::from_f32(&[W], &values(W, 5 + i)).unwrap();
        ids.push((
            weights.add_tensor(&format!("w{i}"), w).unwrap(),
            weights.add_tensor(&format!("b{i}"), b).unwrap(),
        ));
    }
    let mut g = GraphBuilder::new("layers", Arc::new(weights));
    let rows = Dim::sym("rows");
    let shape = vec![rows, Dim::from(W)];
    let x = g.input("x", DType::F32, shape.clone());
    let y = g.input("y", DType::F32, shape);
    let mut at = x;
    for (i, (w, b)) in ids.into_iter().enumerate() {
        let origin = |what: &str| Origin {
            name: format!("{what}{i}"),
            op_type: what.into(),
        };
        let (w, b) = (g.weight(w).unwrap(), g.weight(b).unwrap());
        let spec = ContractSpec {
            a: vec![0, 1],
            b: vec![1, 2],
            out: vec![0, 2],
        };
        let name = format!("p{i}");
        let p = g
            .node(Op::Contract(spec), &[at, w], &[&name], &origin("MatMul"))
            .unwrap()[0];
        let mut e = expr::ExprBuilder::new();
        let args: Vec<_> = (0..3).map(|s| e.input(s, DType::F32)).collect();
        let sum = e.add(args[0], args[1]);
        let sum = e.add(sum, args[2]);
        let zero = e.constant(0.0, DType::F32);
        let relu = e.binary(expr::Binary::Max, sum, zero);
        let map = Op::Map(e.finish(&[relu]));
        let name = format!("r{i}");
        let add = if i == 1 { y } else { at };
        at = g
            .node(map, &[p, b, add], &[&name], &origin("Relu"))
            .unwrap()[0];
    }
    Model::from_graph("layers", &g.finish(&[at]), &ModelOptions::default()).unwrap()
}

/// Inputs number `n` for `rows` rows.
fn given(session: &Session, rows: i64, n: usize) -> Vec<(String, Tensor)> {
    let sizes = inputs::sizes(session.model()).0;
    let sizes = sizes.into_keys().map(|k| (k, rows)).collect();
    let mut named = inputs::random_inputs(session.model(), &sizes).unwrap();
    for (_, t) in &mut named {
        let values: Vec<f32> = (0..t.len())
            .map(|i| t.get_f64(i) as f32 * (n as f32 - 1.5) + 0.01 * n as f32)
            .collect();
        *t = Tensor::from_f32(t.shape(), &values).unwrap();
    }
    named
}

/// Every request's answer is that of a session that was never used before: bit for bit where plans follow from
/// nothing but the dims asked for. Else a plan may take schedules from that for other dims, which may add up in
/// another order: then it is within 1e-5.
fn check(make: &dyn Fn(SessionBuilder) -> Session) {
    for pinned in [true, false] {
        let make = || match pinned {
            true => make(Session::builder().deterministic()),
            false => make(Session::builder()),
        };
        let agree = |got: Outputs, want: Outputs, what: &str| {
            let (got, want) = (got.into_vec(), want.into_vec());
            let within = Tolerance {
                rtol: 1e-5,
                atol: 1e-5,
            };
            let c = compare(&got, &want, within);
            assert!(c.agrees, "{what}: {:?}", c.complaint());
            assert!(!pinned || got == want, "{what}");
        };
        let session = make();
        // Shapes return, and with them what was learned.
        for (n, rows) in [2, 2, 2, 1, 2, 5, 5, 1].into_iter().enumerate() {
            let named = given(&session, rows, n);
            let got = session.run(&inputs::borrowed(&named)).unwrap();
            let want = make().run(&inputs::borrowed(&named)).unwrap();
            agree(got, want, &format!("request {n} of {rows} rows"));
        }
        // One tensor for both inputs, and then two.
        let named = given(&session, 2, 3);
        let same: Vec<(&str, &Tensor)> = named.iter().map(|(k, _)| (&**k, &named[0].1)).collect();
        session.run(&same).unwrap();
        let got = session.run(&inputs::borrowed(&named)).unwrap();
        let want = make().run(&inputs::borrowed(&named)).unwrap();
        agree(got, want, "one tensor, and then two");
    }
}

#[test]
fn products_with_bias_sum_and_bound() {
    let engine = default_engine(Some(1), None, None).unwrap();
    check(&|b| b.with_engine(engine.clone()).commit(layers()).unwrap());
}

#[test]
fn digits() {
    let engine = default_engine(Some(1), None, None).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models/digits_cnn/model.onnx");
    check(&|b| {
        b.with_engine(engine.clone())
            .commit_from_file(&path)
            .unwrap()
    });
}
