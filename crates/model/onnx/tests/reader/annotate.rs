//! Properties that are added to a model file.
use crate::reader::encode::{Msg, entry, msg};
use shopfloor_onnx::Bytes;
use shopfloor_onnx::internals::{annotate, modules};
use std::collections::BTreeMap;

/// A node of an operator.
fn relu(node: Msg) -> Msg {
    node.text(4, "Relu")
}

/// A model of these nodes.
fn of_nodes(nodes: [Msg; 2]) -> Msg {
    let graph = nodes.into_iter().fold(msg(), |g, n| g.sub(1, n));
    msg().int(1, 10).sub(7, graph.text(2, "g"))
}

#[test]
fn module_paths_as_exporters_leave_them() {
    let path = |key: &str, text: &str| {
        let node = relu(msg().text(3, "n")).sub(9, entry(key, text));
        let bytes = Bytes::from(of_nodes([node, relu(msg())]).0);
        let mut all = modules(&bytes, "m").unwrap();
        all.remove("n").unwrap_or_default()
    };
    let scopes = |text: &str| path("pkg.torch.onnx.name_scopes", text);
    let namespace = |text: &str| path("namespace", text);
    let list = "['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d_3']";
    assert_eq!(scopes(list), "layer1/layer1.0/layer1.0.conv1");
    assert_eq!(scopes("[]"), "");
    assert_eq!(scopes("['add']"), "");
    let classes =
        ": models.ResNet/layer1: nn.Sequential/layer1.0: BasicBlock/conv2d: aten.conv2d.default";
    assert_eq!(namespace(classes), "layer1/layer1.0");
    assert_eq!(namespace(""), "");
}

/// A model of two nodes of one name, the second without one, with properties of others and of ours.
fn model() -> Bytes {
    let first = relu(msg().text(2, "y").text(3, "n"))
        .sub(
            9,
            entry("pkg.torch.onnx.name_scopes", "['', 'block', 'relu']"),
        )
        .sub(9, entry("own.old", "1"));
    let second = relu(msg().text(2, "n"));
    let whole = of_nodes([first, second])
        .sub(14, entry("kept", "yes"))
        .sub(14, entry("own.machine", "old"));
    Bytes::from(whole.0)
}

#[test]
fn properties_are_added_and_replaced() {
    let m = model();
    let paths = modules(&m, "m").unwrap();
    assert_eq!(
        paths,
        BTreeMap::from([("n".to_string(), "block".to_string())])
    );
    let facts = |n: &str| vec![("own.name".to_string(), n.to_string())];
    let whole = [("own.machine".to_string(), "new".to_string())];
    let once = annotate(&m, "m", "own.", &facts, &whole).unwrap();
    assert_eq!(once.nodes(), 2);
    let mut a = Vec::new();
    once.write_to(&mut a).unwrap();
    let a = Bytes::from(a);
    let text = String::from_utf8_lossy(&a).into_owned();
    for part in ["name_scopes", "own.name", "n#2", "kept", "new", "Relu"] {
        assert!(text.contains(part), "{part}: {text:?}");
    }
    assert!(
        !text.contains("own.old") && !text.contains("old"),
        "{text:?}"
    );
    // Again, nothing changes; with nothing to say, what is ours is gone.
    let mut b = Vec::new();
    let again = annotate(&a, "m", "own.", &facts, &whole).unwrap();
    again.write_to(&mut b).unwrap();
    assert_eq!(&a[..], &b[..]);
    let mut c = Vec::new();
    let none = annotate(&a, "m", "own.", &|_| vec![], &[]).unwrap();
    none.write_to(&mut c).unwrap();
    assert_eq!(
        c.len(),
        m.len()
            - msg().sub(9, entry("own.old", "1")).0.len()
            - msg().sub(14, entry("own.machine", "old")).0.len()
    );
    // What is cut off is an error, not a panic.
    for n in 0..m.len() {
        let part = Bytes::from(m[..n].to_vec());
        let _ = annotate(&part, "m", "own.", &facts, &whole);
        let _ = modules(&part, "m");
    }
}
