//! Operators whose code is a closure: where they run, and what becomes of wrong ones.

use crate::common::{Field, field, int, text};
use shopfloor::{
    Cache, DType, Dim, Error, Operator, Precision, Session, SessionBuilder, Tensor, ValueType,
    default_engine, inputs,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

const FLOAT: u64 = 1;
const INT64: u64 = 7;
const STRING: u64 = 8;
const BOOL: u64 = 9;

/// A graph's value; extents are numbers or names.
fn value(name: &str, kind: u64, shape: &[&str]) -> Field {
    let extent = |d: &&str| match d.parse::<u64>() {
        Ok(n) => field(1, &int(1, n)),
        Err(_) => field(1, &text(2, d)),
    };
    let shape: Field = shape.iter().flat_map(extent).collect();
    let tensor = [int(1, kind), field(2, &shape)].concat();
    [text(1, name), field(2, &field(1, &tensor))].concat()
}

enum A<'a> {
    Float(f32),
    Graph(&'a Field),
}

fn node(domain: &str, op: &str, ins: &[&str], outs: &[&str], attrs: &[(&str, A)]) -> Field {
    let mut n: Vec<Field> = ins.iter().map(|i| text(1, i)).collect();
    n.extend(outs.iter().map(|o| text(2, o)));
    n.extend([text(3, &format!("the_{}", op.to_lowercase())), text(4, op)]);
    for (name, a) in attrs {
        let (body, kind) = match a {
            A::Float(x) => ([vec![2 << 3 | 5], x.to_le_bytes().to_vec()].concat(), 1),
            A::Graph(g) => (field(6, g), 5),
        };
        n.push(field(5, &[text(1, name), body, int(20, kind)].concat()));
    }
    n.push(text(7, domain));
    field(1, &n.concat())
}

fn graph(nodes: &[Field], ins: &[Field], outs: &[Field]) -> Field {
    let mut g = nodes.concat();
    g.extend(text(2, "g"));
    ins.iter().for_each(|v| g.extend(field(11, v)));
    outs.iter().for_each(|v| g.extend(field(12, v)));
    g
}

fn model(graph: &Field) -> Field {
    let own = [text(1, "my.co"), int(2, 1)].concat();
    [
        int(1, 8),
        field(7, graph),
        field(8, &int(2, 17)),
        field(8, &own),
    ]
    .concat()
}

/// Relu, Scale by `factor`, and the sum of that with itself.
fn scaled(factor: f32) -> Field {
    let x = value("x", FLOAT, &["batch", "3"]);
    let y = value("y", FLOAT, &["batch", "3"]);
    let nodes = [
        node("", "Relu", &["x"], &["r"], &[]),
        node(
            "my.co",
            "Scale",
            &["r"],
            &["s"],
            &[("factor", A::Float(factor))],
        ),
        node("", "Add", &["s", "s"], &["y"], &[]),
    ];
    model(&graph(&nodes, &[x], &[y]))
}

/// x times the attribute `factor`.
fn scale() -> Operator {
    Operator::new(
        "my.co",
        "Scale",
        |node| Ok(vec![node.input(0)?.clone()]),
        |call| {
            let factor = call.attributes.float("factor").unwrap_or(1.0) as f32;
            let x = call.input(0)?;
            let y: Vec<f32> = x.as_slice::<f32>()?.iter().map(|x| x * factor).collect();
            Ok(vec![Tensor::from_array((x.shape(), y))?])
        },
    )
}

fn rows(n: usize) -> Tensor {
    let values = (0..3 * n).map(|i| i as f32 - 2.0).collect::<Vec<_>>();
    Tensor::from_array(([n, 3], values)).unwrap()
}

fn check_scaled(s: &Session, factor: f32) {
    for n in [1, 2, 5, 8] {
        let x = rows(n);
        let out = s.run(inputs!["x" => &x]).unwrap();
        assert_eq!(out["y"].shape(), [n, 3]);
        let want = x.as_slice::<f32>().unwrap().iter();
        let want: Vec<f32> = want.map(|x| 2.0 * x.max(0.0) * factor).collect();
        assert_eq!(out["y"].as_slice::<f32>().unwrap(), want);
    }
}

fn two() -> SessionBuilder {
    Session::builder().with_threads(2)
}

#[test]
fn nodes_run_the_closure_for_all_sizes_and_devices() {
    let mut builders = vec![
        two(),
        two().with_dim("batch", 1, 8),
        two().with_precision(Precision::Bf16),
    ];
    if cfg!(feature = "cuda") {
        builders.push(two().with_device("emulated:t4").with_dim("batch", 1, 8));
    }
    for builder in builders {
        let s = builder.with_operator(scale());
        check_scaled(&s.commit_from_memory(scaled(0.5)).unwrap(), 0.5);
    }
    let s = two().commit_from_memory(scaled(0.5)).err().unwrap();
    assert!(s.is_unsupported(), "{s}");
}

#[test]
fn equal_models_with_other_code_are_others() {
    let engine = default_engine(Some(1), None, None).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.onnx");
    std::fs::write(&path, scaled(2.0)).unwrap();
    let cache = Cache::new(dir.path().join("cache"));
    let with = |operator: Operator| {
        let builder = Session::builder().with_engine(engine.clone());
        let builder = builder.with_operator(operator).with_cache(cache.clone());
        builder.commit_from_file(&path).unwrap()
    };
    let twice = Operator::new(
        "my.co",
        "Scale",
        |node| Ok(vec![node.input(0)?.clone()]),
        |call| {
            let mut y = call.input(0)?.clone();
            y.as_mut_slice::<f32>()?.iter_mut().for_each(|x| *x *= 7.0);
            Ok(vec![y])
        },
    );
    let (a, b) = (with(scale()), with(twice));
    check_scaled(&a, 2.0);
    check_scaled(&b, 7.0);
    check_scaled(&with(scale()), 2.0);
}

#[test]
fn loops_and_branches_run_it() {
    // Three rounds of Scale by 2.
    let body = graph(
        &[
            node(
                "my.co",
                "Scale",
                &["v"],
                &["w"],
                &[("factor", A::Float(2.0))],
            ),
            node("", "Identity", &["go"], &["on"], &[]),
        ],
        &[
            value("i", INT64, &[]),
            value("go", BOOL, &[]),
            value("v", FLOAT, &["batch", "3"]),
        ],
        &[value("on", BOOL, &[]), value("w", FLOAT, &["batch", "3"])],
    );
    let looped = model(&graph(
        &[node(
            "",
            "Loop",
            &["n", "", "x"],
            &["y"],
            &[("body", A::Graph(&body))],
        )],
        &[value("n", INT64, &[]), value("x", FLOAT, &["batch", "3"])],
        &[value("y", FLOAT, &["batch", "3"])],
    ));
    let s = two()
        .with_operator(scale())
        .commit_from_memory(looped)
        .unwrap();
    for n in 0..4i64 {
        let trips = Tensor::from_array(((), vec![n])).unwrap();
        let x = rows(4);
        let out = s.run(inputs!["n" => trips, "x" => &x]).unwrap();
        let want = x.as_slice::<f32>().unwrap().iter();
        let want: Vec<f32> = want.map(|x| x * 2f32.powi(n as i32)).collect();
        assert_eq!(out["y"].as_slice::<f32>().unwrap(), want);
    }
    let branch = |nodes: &[Field]| graph(nodes, &[], &[value("b", FLOAT, &["batch", "3"])]);
    let yes = branch(&[node(
        "my.co",
        "Scale",
        &["x"],
        &["b"],
        &[("factor", A::Float(3.0))],
    )]);
    let no = branch(&[node("", "Neg", &["x"], &["b"], &[])]);
    let chosen = model(&graph(
        &[node(
            "",
            "If",
            &["c"],
            &["y"],
            &[
                ("then_branch", A::Graph(&yes)),
                ("else_branch", A::Graph(&no)),
            ],
        )],
        &[value("c", BOOL, &[]), value("x", FLOAT, &["batch", "3"])],
        &[value("y", FLOAT, &["batch", "3"])],
    ));
    let s = two()
        .with_operator(scale())
        .commit_from_memory(chosen)
        .unwrap();
    for (c, factor) in [(true, 3.0), (false, -1.0)] {
        let c = Tensor::from_array(((), vec![c])).unwrap();
        let x = rows(2);
        let out = s.run(inputs!["c" => c, "x" => &x]).unwrap();
        let want = x.as_slice::<f32>().unwrap().iter();
        let want: Vec<f32> = want.map(|x| x * factor).collect();
        assert_eq!(out["y"].as_slice::<f32>().unwrap(), want);
    }
}

/// The positive elements of x, and the model that doubles them.
fn positive() -> (Operator, Field) {
    let operator = Operator::new(
        "my.co",
        "Positive",
        |node| {
            let dtype = node.input(0)?.dtype;
            Ok(vec![ValueType {
                dtype,
                dims: vec![None],
            }])
        },
        |call| {
            let x = call.input(0)?.as_slice::<f32>()?.iter();
            let y: Vec<f32> = x.copied().filter(|x| *x > 0.0).collect();
            Ok(vec![Tensor::from_array(([y.len()], y))?])
        },
    );
    let nodes = [
        node("my.co", "Positive", &["x"], &["p"], &[]),
        node("", "Add", &["p", "p"], &["y"], &[]),
    ];
    let x = value("x", FLOAT, &["batch", "3"]);
    let y = value("y", FLOAT, &["found"]);
    (operator, model(&graph(&nodes, &[x], &[y])))
}

#[test]
fn sizes_that_only_the_data_gives_are_found_when_it_runs() {
    let (operator, m) = positive();
    let s = two().with_operator(operator).commit_from_memory(m).unwrap();
    for n in [2, 1, 4] {
        let x = rows(n);
        let out = s.run(inputs!["x" => &x]).unwrap();
        let all = x.as_slice::<f32>().unwrap().iter();
        let want: Vec<f32> = all.filter(|x| **x > 0.0).map(|x| 2.0 * x).collect();
        assert_eq!(out["y"].shape(), [want.len()]);
        assert_eq!(out["y"].as_slice::<f32>().unwrap(), want);
    }
}

/// x between the inputs `low` and `high`, of which a node may leave out each.
fn clamp() -> Operator {
    Operator::new(
        "my.co",
        "Clamp",
        |node| {
            let x = node.input(0)?;
            let bounds = [node.optional(1), node.optional(2)];
            match bounds.iter().flatten().all(|b| b.dtype == x.dtype) {
                true => Ok(vec![x.clone()]),
                false => Err("its bounds have another type".into()),
            }
        },
        |call| {
            let bound = |at, otherwise: f32| match call.optional(at) {
                Some(b) => b.try_extract_scalar::<f32>(),
                None => Ok(otherwise),
            };
            let (low, high) = (bound(1, f32::MIN)?, bound(2, f32::MAX)?);
            let x = call.input(0)?;
            let y = x.as_slice::<f32>()?.iter().map(|x| x.clamp(low, high));
            Ok(vec![Tensor::from_array((
                x.shape(),
                y.collect::<Vec<_>>(),
            ))?])
        },
    )
}

#[test]
fn inputs_that_a_node_leaves_out_are_none() {
    // Which inputs are given is all that tells some of these nodes apart.
    let forms: [(&[&str], [f32; 2]); 6] = [
        (&["x"], [f32::MIN, f32::MAX]),
        (&["x", "", ""], [f32::MIN, f32::MAX]),
        (&["x", "b", ""], [1.0, f32::MAX]),
        (&["x", "", "b"], [f32::MIN, 1.0]),
        (&["x", "b"], [1.0, f32::MAX]),
        (&["x", "b", "b"], [1.0, 1.0]),
    ];
    let names: Vec<String> = (0..forms.len()).map(|i| format!("y{i}")).collect();
    let made = forms.iter().zip(&names);
    let nodes: Vec<Field> = made
        .map(|((ins, _), y)| node("my.co", "Clamp", ins, &[y], &[]))
        .collect();
    let outs: Vec<Field> = (names.iter())
        .map(|y| value(y, FLOAT, &["batch", "3"]))
        .collect();
    let ins = [value("x", FLOAT, &["batch", "3"]), value("b", FLOAT, &[])];
    let s = two().with_operator(clamp());
    let s = s
        .commit_from_memory(model(&graph(&nodes, &ins, &outs)))
        .unwrap();
    let b = Tensor::from_array(((), vec![1.0f32])).unwrap();
    for n in [1, 4] {
        let x = rows(n);
        let got = s.run(inputs!["x" => &x, "b" => &b]).unwrap();
        for ((_, [low, high]), y) in forms.iter().zip(&names) {
            let want = x.as_slice::<f32>().unwrap().iter();
            let want: Vec<f32> = want.map(|x| x.clamp(*low, *high)).collect();
            assert_eq!(got[y.as_str()].as_slice::<f32>().unwrap(), want, "{y}");
        }
    }
}

#[test]
fn inputs_are_left_out_in_loops_and_of_constants_too() {
    // Three rounds of v = clamp(v + v, none, 5).
    let body = graph(
        &[
            node("", "Add", &["v", "v"], &["w"], &[]),
            node("my.co", "Clamp", &["w", "", "b"], &["u"], &[]),
            node("", "Identity", &["go"], &["on"], &[]),
        ],
        &[
            value("i", INT64, &[]),
            value("go", BOOL, &[]),
            value("v", FLOAT, &["batch", "3"]),
        ],
        &[value("on", BOOL, &[]), value("u", FLOAT, &["batch", "3"])],
    );
    let rounds = [("body", A::Graph(&body))];
    let nodes = [
        node("my.co", "Clamp", &["five", "", ""], &["b"], &[]),
        node("", "Loop", &["n", "", "x"], &["y"], &rounds),
    ];
    let mut g = graph(
        &nodes,
        &[value("n", INT64, &[]), value("x", FLOAT, &["batch", "3"])],
        &[value("y", FLOAT, &["batch", "3"])],
    );
    let five = [int(2, 1), text(8, "five"), field(9, &5f32.to_le_bytes())].concat();
    g.extend(field(5, &five));
    let s = two().with_operator(clamp()).commit_from_memory(model(&g));
    let n = Tensor::from_array(((), vec![3i64])).unwrap();
    let x = rows(2);
    let got = s.unwrap().run(inputs!["n" => n, "x" => &x]).unwrap();
    let want = x.as_slice::<f32>().unwrap().iter().map(|x| {
        let round = |v: f32| (v + v).min(5.0);
        round(round(round(*x)))
    });
    assert_eq!(
        got["y"].as_slice::<f32>().unwrap(),
        want.collect::<Vec<_>>()
    );
}

#[test]
fn an_input_that_is_needed_and_left_out_is_named() {
    let [x, y] = ["x", "y"].map(|v| value(v, FLOAT, &["batch", "3"]));
    let m = model(&graph(
        &[node("my.co", "Clamp", &["", "x"], &["y"], &[])],
        &[x],
        &[y],
    ));
    let e = two().with_operator(clamp()).commit_from_memory(m.clone());
    let e = e.err().unwrap().to_string();
    assert!(
        e.contains("the_clamp") && e.contains("it has no input 0"),
        "{e}"
    );
    // Kernels take all of their inputs.
    let kernel = two().with_kernel("my.co", "Clamp", crate::kernels::MEAN);
    let e = kernel.commit_from_memory(m).err().unwrap().to_string();
    assert!(e.contains("input 0 is missing"), "{e}");
}

#[test]
fn texts_go_through_it() {
    let upper = Operator::new(
        "my.co",
        "Upper",
        |node| Ok(vec![node.input(0)?.clone()]),
        |call| {
            let (shape, x) = call.input(0)?.try_extract_strings()?;
            let y = x.iter().map(|x| x.to_uppercase()).collect::<Vec<_>>();
            Ok(vec![Tensor::from_array((shape, y))?])
        },
    );
    let nodes = [node("my.co", "Upper", &["x"], &["y"], &[])];
    let [x, y] = ["x", "y"].map(|v| value(v, STRING, &["n"]));
    let m = model(&graph(&nodes, &[x], &[y]));
    let s = two().with_operator(upper).commit_from_memory(m).unwrap();
    let x = Tensor::from_array(([2], &["one", "two"][..])).unwrap();
    let out = s.run(inputs!["x" => x]).unwrap();
    assert_eq!(out["y"].text().unwrap(), ["ONE", "TWO"]);
}

/// What the run of a Scale with this code says; the session goes on after it.
fn said<F>(code: F) -> String
where
    F: Fn(&Tensor) -> Result<Vec<Tensor>, shopfloor::Error> + Send + Sync + 'static,
{
    let wrong = Operator::new(
        "my.co",
        "Scale",
        |node| Ok(vec![node.input(0)?.clone()]),
        move |call| match call.input(0)?.shape()[0] {
            2 => Ok(code(call.input(0)?)?),
            _ => Ok(vec![call.input(0)?.clone()]),
        },
    );
    let s = two().with_operator(wrong).commit_from_memory(scaled(1.0));
    let s = s.unwrap();
    let e = s.run(inputs!["x" => rows(2)]).unwrap_err().to_string();
    for part in ["the_scale", "my.co:Scale"] {
        assert!(e.contains(part), "'{part}' is not in: {e}");
    }
    assert!(!e.contains('\n'), "{e}");
    // What is wrong with one request leaves the workers to the others.
    for _ in 0..3 {
        s.run(inputs!["x" => rows(3)]).unwrap();
        assert_eq!(s.run(inputs!["x" => rows(2)]).unwrap_err().to_string(), e);
    }
    e
}

#[test]
fn wrong_code_fails_its_requests_by_name() {
    let e = said(|_| Err(Error::Usage("the moon is full".into())));
    assert!(e.contains("the moon is full"), "{e}");
    let e = said(|_| panic!("out of cheese"));
    assert!(e.contains("panicked: out of cheese"), "{e}");
    let e = said(|_| Ok(vec![]));
    assert!(e.contains("0 outputs") && e.contains("f32[2, 3]"), "{e}");
    let e = said(|_| Ok(vec![Tensor::zeros(DType::F32, &[3, 2])?]));
    assert!(e.contains("f32[3, 2]") && e.contains("f32[2, 3]"), "{e}");
    let e = said(|_| Ok(vec![Tensor::zeros(DType::F64, &[2, 3])?]));
    assert!(e.contains("f64[2, 3]"), "{e}");
    let e = said(|x| {
        x.as_slice::<i8>()?;
        Ok(vec![])
    });
    assert!(e.contains("f32, not i8"), "{e}");
}

#[test]
fn wrong_code_of_open_sizes_fails_by_name_too() {
    let (_, m) = positive();
    for (given, part) in [
        (Tensor::zeros(DType::F64, &[2]).unwrap(), "f64[2]"),
        (Tensor::zeros(DType::F32, &[2, 2]).unwrap(), "f32[2, 2]"),
    ] {
        let wrong = Operator::new(
            "my.co",
            "Positive",
            |_| {
                Ok(vec![ValueType {
                    dtype: DType::F32,
                    dims: vec![None],
                }])
            },
            move |_| Ok(vec![given.clone()]),
        );
        let s = two().with_operator(wrong).commit_from_memory(m.clone());
        let e = s.unwrap().run(inputs!["x" => rows(2)]).unwrap_err();
        let e = e.to_string();
        assert!(e.contains("the_positive") && e.contains(part), "{e}");
    }
    let fails = Operator::new(
        "my.co",
        "Positive",
        |_| {
            Ok(vec![ValueType {
                dtype: DType::F32,
                dims: vec![None],
            }])
        },
        |_| panic!("no idea"),
    );
    let s = two().with_operator(fails).commit_from_memory(m).unwrap();
    let e = s.run(inputs!["x" => rows(2)]).unwrap_err().to_string();
    assert!(e.contains("the_positive") && e.contains("no idea"), "{e}");
}

#[test]
fn wrong_types_are_refused_when_the_model_is_opened() {
    let refused = |types: fn() -> Result<Vec<ValueType>, shopfloor::Cause>| {
        let wrong = Operator::new("my.co", "Scale", move |_| types(), |_| Ok(vec![]));
        let s = two().with_operator(wrong).commit_from_memory(scaled(1.0));
        let e = s.err().unwrap().to_string();
        assert!(e.contains("the_scale") && !e.contains('\n'), "{e}");
        e
    };
    assert!(refused(|| Err("two inputs are needed".into())).contains("two inputs"));
    assert!(refused(|| panic!("oh")).contains("panicked: oh"));
    assert!(refused(|| Ok(vec![])).contains("no output"));
    let unknown = || Ok(vec![ValueType::new(DType::F32, [Dim::sym("nobody")])]);
    assert!(refused(unknown).contains("'nobody'"));
    let negative = || Ok(vec![ValueType::new(DType::F32, [Dim::Known(-1)])]);
    assert!(refused(negative).contains("negative"));
    // Two things for one operator.
    let both = two()
        .with_operator(scale())
        .with_kernel("my.co", "Scale", crate::kernels::MEAN);
    let e = both.commit_from_memory(scaled(1.0)).err().unwrap();
    assert!(e.to_string().contains("my.co:Scale"), "{e}");
}

#[test]
fn what_is_constant_is_computed_once() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let count = Operator::new(
        "my.co",
        "Scale",
        |node| Ok(vec![node.input(0)?.clone()]),
        move |call| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(vec![call.input(0)?.clone()])
        },
    );
    let weight = [int(1, 3), int(2, 1), text(8, "w"), field(9, &[0u8; 12])].concat();
    let nodes = [
        node(
            "my.co",
            "Scale",
            &["w"],
            &["s"],
            &[("factor", A::Float(1.0))],
        ),
        node("", "Add", &["x", "s"], &["y"], &[]),
    ];
    let [x, y] = ["x", "y"].map(|v| value(v, FLOAT, &["batch", "3"]));
    let mut g = graph(&nodes, &[x], &[y]);
    g.extend(field(5, &weight));
    let s = two()
        .with_operator(count)
        .commit_from_memory(model(&g))
        .unwrap();
    for n in [1, 2, 2, 3] {
        let x = rows(n);
        assert_eq!(s.run(inputs!["x" => &x]).unwrap()["y"], x);
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn requests_at_once_call_it_at_once() {
    let s = two().with_operator(scale()).with_queue(4, 1000);
    let s = s.commit_from_memory(scaled(0.25)).unwrap();
    std::thread::scope(|scope| {
        (0..6).for_each(|_| {
            scope.spawn(|| (0..50).for_each(|_| check_scaled(&s, 0.25)));
        });
    });
    // Nothing says that its items do not influence each other.
    let joined = two()
        .with_operator(scale())
        .with_batching(4, Duration::from_millis(1));
    assert!(joined.commit_from_memory(scaled(0.25)).is_err());
}

#[test]
fn code_that_would_wait_for_its_own_workers_is_told_so() {
    let engine = default_engine(Some(1), None, None).unwrap();
    let inner: Arc<OnceLock<Session>> = Arc::default();
    let found: Arc<Mutex<String>> = Arc::default();
    let (held, told) = (inner.clone(), found.clone());
    let nested = Operator::new(
        "my.co",
        "Scale",
        |node| Ok(vec![node.input(0)?.clone()]),
        move |call| {
            let x = call.input(0)?;
            if let Some(Err(e)) = held.get().map(|s| s.run(inputs!["x" => x])) {
                *told.lock().unwrap() = e.to_string();
            }
            Ok(vec![x.clone()])
        },
    );
    let on = || Session::builder().with_engine(engine.clone());
    let other = on().with_operator(scale()).commit_from_memory(scaled(1.0));
    inner.set(other.unwrap()).ok().unwrap();
    let outer = on().with_operator(nested).commit_from_memory(scaled(1.0));
    outer.unwrap().run(inputs!["x" => rows(1)]).unwrap();
    assert!(found.lock().unwrap().contains("must not wait"), "{found:?}");
}

#[test]
fn a_saved_plan_has_no_code() {
    let s = two().with_operator(scale()).with_dim("batch", 1, 8);
    let s = s.commit_from_memory(scaled(2.0)).unwrap();
    check_scaled(&s, 2.0);
    let mut dims = shopfloor::DimBox::new();
    dims.insert("batch", 1, 8);
    let plan = s.plan(&dims).unwrap();
    let text = serde_json::to_string(&plan).unwrap();
    assert!(text.contains("my.co:Scale"));
    let read: shopfloor::Plan = serde_json::from_str(&text).unwrap();
    s.swap_plan(read).unwrap();
    let e = s.run(inputs!["x" => rows(2)]).unwrap_err().to_string();
    assert!(e.contains("the_scale") && e.contains("saved"), "{e}");
    s.swap_plan(plan).unwrap();
    check_scaled(&s, 2.0);
}
