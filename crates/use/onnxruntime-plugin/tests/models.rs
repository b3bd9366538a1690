//! Graphs as models: what is written is read and run by the library.
use onnxruntime_ep_shopfloor::graph::{
    Attribute, Constant, Data, Extent, Graph, Node, TensorType, Value,
};
use onnxruntime_ep_shopfloor::{ports, write};
use shopfloor::{Model, ModelOptions, PortDim, Session, Tensor};

const FLOAT: i32 = 1;
const INT64: i32 = 7;

fn tensor(element: i32, dims: &[Extent]) -> Value<'static> {
    Value {
        tensor: Some(TensorType {
            element,
            shape: Some(dims.to_vec()),
        }),
        ..Value::default()
    }
}

fn constant(element: i32, shape: &[i64], data: Data<'static>) -> Value<'static> {
    let dims: Vec<Extent> = shape.iter().map(|&n| Extent::Size(n)).collect();
    Value {
        constant: Some(Constant {
            element,
            shape: shape.to_vec(),
            data,
        }),
        ..tensor(element, &dims)
    }
}

fn floats(all: &[f32]) -> Data<'static> {
    Data::Owned(all.iter().flat_map(|f| f.to_le_bytes()).collect())
}

fn node(operator: &str, inputs: &[&str], outputs: &[&str]) -> Node<'static> {
    let text = |all: &[&str]| all.iter().map(ToString::to_string).collect();
    Node {
        operator: operator.into(),
        inputs: text(inputs),
        outputs: text(outputs),
        ..Node::default()
    }
}

fn graph(nodes: Vec<Node<'static>>, values: Vec<(&str, Value<'static>)>) -> Graph<'static> {
    Graph {
        ir: 10,
        opsets: vec![(String::new(), 21)],
        nodes,
        values: values.into_iter().map(|(n, v)| (n.into(), v)).collect(),
        ..Graph::default()
    }
}

/// x·w, then a Clip whose lower bound is left out, then a Transpose; the last is not of the group.
fn chain() -> Graph<'static> {
    let rows = Extent::Symbol("rows".into());
    let mut turned = node("Transpose", &["z"], &["t"]);
    turned.attributes = vec![("perm".into(), Attribute::Ints(vec![1, 0]))];
    let mut g = graph(
        vec![
            node("MatMul", &["x", "w"], &["y"]),
            node("Clip", &["y", "", "top"], &["z"]),
            turned,
        ],
        vec![
            ("x", tensor(FLOAT, &[rows.clone(), Extent::Size(2)])),
            ("w", constant(FLOAT, &[2, 1], floats(&[1.0, 10.0]))),
            ("top", constant(FLOAT, &[], floats(&[25.0]))),
            ("y", tensor(FLOAT, &[rows.clone(), Extent::Open])),
            ("z", tensor(FLOAT, &[rows, Extent::Open])),
            ("t", tensor(FLOAT, &[Extent::Open, Extent::Open])),
        ],
    );
    g.inputs = vec!["x".into()];
    g.outputs = vec!["t".into()];
    g
}

fn session(bytes: Vec<u8>) -> Session {
    let model = Model::from_memory("group", bytes, &ModelOptions::default()).expect("it is read");
    let builder = Session::builder().with_threads(1);
    builder.commit(model).expect("it is planned")
}

#[test]
fn a_group_is_a_model_with_its_constants_and_names_of_dims() {
    let g = chain();
    let group = [0, 1];
    let ports = ports(&g, &group);
    assert_eq!((ports.inputs.len(), ports.outputs.len()), (1, 1));
    assert_eq!((&*ports.inputs[0], &*ports.outputs[0]), ("x", "z"));
    let session = session(write::model(&g, &group, &ports, "group").expect("there is memory"));
    let input = session.inputs().next().expect("it has one");
    let dims = [PortDim::Symbol("rows".into()), PortDim::Size(2)];
    assert_eq!(input.dims.as_deref(), Some(&dims[..]));
    for rows in [1usize, 3] {
        let values: Vec<f32> = (0..2 * rows).map(|i| i as f32).collect();
        let x = Tensor::from_f32(&[rows, 2], &values).expect("it fits");
        let out = session.run(&[("x", &x)]).expect("it runs");
        let want: Vec<f32> = values
            .chunks(2)
            .map(|r| (r[0] + 10.0 * r[1]).min(25.0))
            .collect();
        assert_eq!(out["z"].as_slice::<f32>().expect("of floats"), want);
    }
}

#[test]
fn attributes_of_every_kind_are_read_again() {
    let mut all = node("Gemm", &["x", "w"], &["y"]);
    all.attributes = vec![
        ("alpha".into(), Attribute::Float(0.5)),
        ("transB".into(), Attribute::Int(1)),
    ];
    let mut made = node("Constant", &[], &["one"]);
    made.attributes = vec![(
        "value".into(),
        Attribute::Tensor(Constant {
            element: FLOAT,
            shape: vec![1],
            data: floats(&[1.0]),
        }),
    )];
    let mut more = node("Constant", &[], &["few"]);
    more.attributes = vec![("value_floats".into(), Attribute::Floats(vec![2.0, 3.0]))];
    let mut cast = node("Cast", &["sum"], &["z"]);
    cast.attributes = vec![("to".into(), Attribute::Int(i64::from(INT64)))];
    let mut g = graph(
        vec![
            all,
            made,
            more,
            node("Add", &["y", "one"], &["more"]),
            node("Add", &["more", "few"], &["sum"]),
            cast,
        ],
        vec![
            ("x", tensor(FLOAT, &[Extent::Size(1), Extent::Size(2)])),
            ("w", constant(FLOAT, &[2, 2], floats(&[2.0, 4.0, 6.0, 8.0]))),
            ("z", tensor(INT64, &[])),
        ],
    );
    g.outputs = vec!["z".into()];
    let group: Vec<usize> = (0..g.nodes.len()).collect();
    let bytes = write::model(&g, &group, &ports(&g, &group), "group").expect("there is memory");
    let x = Tensor::from_f32(&[1, 2], &[1.0, 2.0]).expect("it fits");
    let out = session(bytes).run(&[("x", &x)]).expect("it runs");
    assert_eq!(out["z"].as_slice::<i64>().expect("of integers"), [8, 15]);
}

#[test]
fn a_body_is_written_with_its_own_constants_and_sees_outer_ones() {
    let branch = |operator: &str| {
        let mut b = graph(
            vec![node(operator, &["x", "w"], &["inner"])],
            vec![
                ("w", constant(FLOAT, &[2], floats(&[5.0, 6.0]))),
                ("inner", tensor(FLOAT, &[Extent::Size(2)])),
            ],
        );
        b.outputs = vec!["inner".into()];
        Attribute::Graph(Box::new(b))
    };
    let mut chosen = node("If", &["which"], &["y"]);
    chosen.attributes = vec![
        ("then_branch".into(), branch("Add")),
        ("else_branch".into(), branch("Mul")),
    ];
    chosen.captured = vec!["x".into(), "w".into()];
    let mut g = graph(
        vec![chosen],
        vec![
            ("which", tensor(9, &[])),
            ("x", tensor(FLOAT, &[Extent::Size(2)])),
            ("w", constant(FLOAT, &[2], floats(&[5.0, 6.0]))),
            ("y", tensor(FLOAT, &[Extent::Size(2)])),
        ],
    );
    g.outputs = vec!["y".into()];
    let ports = ports(&g, &[0]);
    assert_eq!(ports.inputs, ["which", "x"]);
    let session = session(write::model(&g, &[0], &ports, "group").expect("there is memory"));
    let x = Tensor::from_f32(&[2], &[1.0, 2.0]).expect("it fits");
    for (which, want) in [(true, [6.0, 8.0]), (false, [5.0, 12.0])] {
        let which = Tensor::from_array(([0usize; 0], vec![which])).expect("it fits");
        let out = session
            .run(&[("which", &which), ("x", &x)])
            .expect("it runs");
        assert_eq!(out["y"].as_slice::<f32>().expect("of floats"), want);
    }
}

#[test]
fn errors_name_nodes_that_have_no_name_or_the_same() {
    let g = graph(
        vec![
            node("Relu", &["x"], &["a"]),
            Node {
                name: "same".into(),
                ..node("Relu", &["a"], &["b"])
            },
            Node {
                name: "same".into(),
                ..node("Relu", &["b"], &["c"])
            },
        ],
        vec![],
    );
    let nodes: Vec<&Node<'_>> = g.nodes.iter().collect();
    assert_eq!(write::names(&nodes), ["a", "same#1", "same#2"]);
}
