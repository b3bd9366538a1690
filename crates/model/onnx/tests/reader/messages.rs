//! Structure: every message and both encodings, and what is refused.

use shopfloor_onnx::proto::{AttributeKind, AttributeValue as V, Dimension, Type};
use shopfloor_onnx::{Error, ModelFile};

use crate::reader::encode::*;

fn error(message: Msg) -> String {
    read(message).expect_err("must be refused").to_string()
}

#[test]
fn every_message_is_read() {
    let file = read(rich_model()).unwrap();
    let model = &file.model;
    assert_eq!(file.name(), "<memory>");
    assert_eq!((model.ir_version, model.model_version), (10, 3));
    assert_eq!(
        (
            model.producer_name.as_str(),
            model.producer_version.as_str()
        ),
        ("maker", "1.0")
    );
    assert_eq!(
        (model.opset(""), model.opset("ai.onnx")),
        (Some(21), Some(21))
    );
    assert_eq!(
        (model.opset("local"), model.opset("other")),
        (Some(1), None)
    );
    assert_eq!(model.metadata, [("key".to_string(), "value".to_string())]);

    let function = model.function("local", "Twice", "o").unwrap();
    assert!(model.function("local", "Twice", "").is_none());
    assert_eq!(
        (function.inputs[0].as_str(), function.outputs[0].as_str()),
        ("a", "b")
    );
    assert_eq!(function.attributes, ["alpha"]);
    assert_eq!(function.attribute_defaults[0].value, V::Float(2.0));
    assert_eq!(function.opset_imports[0].version, 18);
    let parent = V::Parent {
        name: "alpha".into(),
        kind: Some(AttributeKind::Float),
    };
    assert_eq!(function.nodes[0].attributes[0].value, parent);

    let graph = &model.graph;
    assert_eq!((graph.name.as_str(), graph.nodes.len()), ("main", 1));
    let Some(Type::Tensor(x)) = &graph.inputs[0].ty else {
        panic!("{:?}", graph.inputs[0])
    };
    let dims = [
        Dimension::Value(3),
        Dimension::Param("batch".into()),
        Dimension::Unknown,
    ];
    assert_eq!((x.dtype, x.shape.as_deref()), (1, Some(&dims[..])));
    assert!(
        matches!(&graph.inputs[1].ty, Some(Type::Sequence(t)) if matches!(**t, Type::Tensor(_)))
    );
    assert!(
        matches!(&graph.inputs[2].ty, Some(Type::Optional(t)) if matches!(**t, Type::Sequence(_)))
    );
    assert!(matches!(
        &graph.inputs[3].ty,
        Some(Type::Map { key: 7, .. })
    ));
    assert_eq!(graph.outputs[0].ty, None);
    assert_eq!(graph.sparse_initializers[0].values.name, "sparse");

    let node = &graph.nodes[0];
    assert_eq!((node.op_type.as_str(), node.domain.as_str()), ("If", ""));
    assert_eq!(node.overload, "second");
    assert_eq!((node.inputs.len(), node.inputs[1].as_str()), (2, ""));
    let value = |name: &str| &node.attribute(name).unwrap().value;
    assert_eq!(value("f"), &V::Float(0.5));
    assert_eq!(value("i"), &V::Int(-7));
    assert!(matches!(value("s"), V::String(s) if &s[..] == b"NOTSET"));
    assert!(matches!(value("g"), V::Graph(g) if g.nodes[0].op_type == "Neg"));
    assert_eq!(value("fs"), &V::Floats(vec![1.0, 2.0]));
    assert_eq!(value("is"), &V::Ints(vec![1, -1, 300]));
    assert!(matches!(value("ss"), V::Strings(s) if s.len() == 2 && s[1].is_empty()));
    assert!(matches!(value("ts"), V::Tensors(t) if t.len() == 1));
    assert!(matches!(value("gs"), V::Graphs(g) if g.len() == 1));
    assert!(matches!(value("sp"), V::SparseTensor(s) if s.dims == [9]));
    assert!(matches!(value("sps"), V::SparseTensors(s) if s.len() == 1));
    assert!(matches!(value("tp"), V::Type(t) if matches!(**t, Type::Sequence(_))));
    assert!(matches!(value("tps"), V::Types(t) if matches!(t[0], Type::Opaque { .. })));
    assert!(node.attribute("none").is_none());
    for attribute in &node.attributes {
        assert!(attribute.value.kind().is_some());
    }
    let V::Tensor(t) = value("t") else { panic!() };
    assert_eq!(
        &file.tensor_bytes(t).unwrap()[..],
        [255, 255, 255, 255, 5, 0, 0, 0]
    );
    assert_eq!(
        &file.tensor_bytes(&graph.initializers[0]).unwrap()[..],
        [0, 0, 128, 63, 0, 0, 0, 64]
    );
}

#[test]
fn packed_and_single_values_are_the_same() {
    let with = |attribute: Msg| {
        let node = msg().text(4, "X").sub(5, attribute.text(1, "a"));
        read(model(msg().sub(1, node))).unwrap().model.graph.nodes[0].attributes[0]
            .value
            .clone()
    };
    let values = [0, 1, -1, 127, 128, i64::MAX, i64::MIN];
    let head = || msg().int(20, 7);
    assert_eq!(with(head().packed(8, &values)), V::Ints(values.to_vec()));
    assert_eq!(with(head().ints(8, &values)), V::Ints(values.to_vec()));
    assert_eq!(
        with(
            head()
                .packed(8, &values[..2])
                .ints(8, &values[2..3])
                .packed(8, &values[3..])
        ),
        V::Ints(values.to_vec())
    );
    let single = |v: f32| v.to_le_bytes();
    let floats = msg()
        .int(20, 6)
        .fixed32(7, single(1.5))
        .bytes(7, &single(-0.0));
    assert_eq!(
        with(floats.fixed32(7, single(3.0))),
        V::Floats(vec![1.5, -0.0, 3.0])
    );
}

#[test]
fn attributes_without_type_are_told_by_their_field() {
    let with = |attribute: Msg| {
        let node = msg().text(4, "X").sub(5, attribute.text(1, "alpha"));
        let file = read(model(msg().sub(1, node)));
        file.map(|f| f.model.graph.nodes[0].attributes[0].value.clone())
    };
    assert_eq!(with(msg().int(3, 5)).unwrap(), V::Int(5));
    assert_eq!(with(msg().int(3, 0)).unwrap(), V::Int(0));
    assert_eq!(
        with(msg().int(3, 0).packed(8, &[2])).unwrap(),
        V::Ints(vec![2])
    );
    // Zero scalars are left out by writers of protobuf 3, or written beside the value by others.
    assert_eq!(with(msg().int(20, 2)).unwrap(), V::Int(0));
    assert_eq!(with(msg().int(20, 7).int(3, 0)).unwrap(), V::Ints(vec![]));
    for (attribute, part) in [
        (msg(), "states no type"),
        (msg().int(3, 5).packed(8, &[2]), "states no type"),
        (
            msg().int(20, 1).int(3, 5),
            "says its value is in f, but i has one",
        ),
        (msg().int(20, 15), "no type 15"),
        (msg().int(20, -1), "no type -1"),
        (msg().int(20, 4), "lacks its value"),
        (
            msg().int(20, 2).int(3, 5).text(21, "p"),
            "ref_attr_name and a value in i",
        ),
    ] {
        let error = with(attribute).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("alpha"), "{error}");
    }
}

#[test]
fn unknown_fields_are_passed_over() {
    let unknown = |m: Msg| {
        m.int(900, -1)
            .fixed64(901, [7; 8])
            .bytes(902, &[1, 2, 3])
            .fixed32(900_000, [9; 4])
    };
    let graph = unknown(msg())
        .text(2, "g")
        .sub(1, unknown(msg().text(4, "Relu")));
    let file = read(unknown(model(graph))).unwrap();
    assert_eq!(file.model.graph.nodes[0].op_type, "Relu");
}

#[test]
fn wrong_wire_types_name_message_and_field() {
    for (message, part) in [
        (
            msg().text(1, "8"),
            "ModelProto.ir_version at byte 0: wire type Len where Varint is due",
        ),
        (model(msg().int(2, 1)), "GraphProto.name"),
        (
            model(msg().sub(1, msg().fixed32(4, [0; 4]))),
            "NodeProto.op_type",
        ),
        (
            model(msg().sub(5, msg().fixed64(4, [0; 8]))),
            "TensorProto.float_data",
        ),
        (
            model(msg().sub(5, msg().fixed32(1, [0; 4]))),
            "TensorProto.dims",
        ),
        (model(msg().sub(11, msg().int(2, 1))), "ValueInfoProto.type"),
        (
            msg().raw(&[0x0b]),
            "ModelProto.tag at byte 0: field 1 has wire type 3",
        ),
        (msg().raw(&[0x00, 0x01]), "no field tag"),
    ] {
        let error = error(message);
        assert!(
            error.contains(part) && error.contains("<memory>"),
            "{error}"
        );
    }
}

#[test]
fn lengths_and_numbers_that_lie_are_refused() {
    let huge = [255u8, 255, 255, 255, 255, 255, 255, 255, 127];
    let overlong = [255u8; 11];
    for (message, part) in [
        (msg().raw(&[0x3a]).raw(&huge), "B announced, 0 B left"),
        (msg().raw(&[0x3a, 5, 1]), "5 B announced, 1 B left"),
        (msg().raw(&[0x08]).raw(&overlong), "more than 64 bits"),
        (msg().raw(&[0x08, 0x80]), "ends within a number"),
        (
            model(msg().sub(5, msg().raw(&[0x0a]).raw(&huge))),
            "TensorProto.dims",
        ),
        (
            model(msg().sub(5, msg().bytes(4, &[0; 7]))),
            "no whole number of 4-byte values",
        ),
        (
            model(msg().sub(5, msg().bytes(7, &[0x80]))),
            "ends within a number",
        ),
        (
            model(msg().sub(5, msg().int(2, 1 << 40))),
            "TensorProto.data_type",
        ),
        (
            model(msg().sub(5, msg().packed(5, &[1 << 40]))),
            "out of the field's range",
        ),
        (model(msg().bytes(2, &[0xff])), "not UTF-8"),
        (model(msg()).sub(7, msg()), "there twice"),
        (
            model(msg().sub(5, msg().sub(3, msg()))),
            "segments are not supported",
        ),
    ] {
        let error = error(message);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn deep_nesting_is_refused() {
    let types = |depth| {
        let inner = (0..depth).fold(msg().sub(1, msg().int(1, 1)), |m, _| {
            msg().sub(4, msg().sub(1, m))
        });
        model(msg().sub(11, msg().text(1, "x").sub(2, inner)))
    };
    assert!(read(types(40)).is_ok());
    for depth in [60, 5_000] {
        let error = error(types(depth));
        assert!(error.contains("nest deeper than 100"), "{error}");
    }
    let graphs = |depth| {
        let graph = (0..depth).fold(msg(), |graph, _| {
            let attribute = msg().text(1, "body").int(20, 5).sub(6, graph);
            msg().sub(1, msg().text(4, "Loop").sub(5, attribute))
        });
        model(graph)
    };
    assert!(read(graphs(30)).is_ok());
    assert!(error(graphs(40)).contains("nest deeper than 100"));
}

#[test]
fn versions_are_checked() {
    let head = |ir: i64| msg().int(1, ir).sub(7, msg()).sub(8, opset("", 7));
    for ir in 3..=14 {
        assert_eq!(read(head(ir)).unwrap().model.ir_version, ir);
    }
    for ir in [0, 1, 2, 15, -1, i64::MAX] {
        let error = read(head(ir)).unwrap_err();
        assert!(
            matches!(&error, Error::Model { field, .. } if field == "ir_version"),
            "{error}"
        );
    }
    for (message, part) in [
        (msg(), "is empty"),
        (
            msg().sub(7, msg()).sub(8, opset("", 7)),
            "ir_version: is missing",
        ),
        (msg().int(1, 8).sub(8, opset("", 7)), "graph: is missing"),
        (msg().int(1, 8).sub(7, msg()), "opset_import: is missing"),
        (
            head(8).sub(8, opset("x", 0)),
            "0 is no version for domain 'x'",
        ),
        (head(8).sub(8, opset("ai.onnx", 9)), "has versions 7 and 9"),
    ] {
        let error = error(message);
        assert!(error.contains(part), "{error}");
    }
    assert!(read(head(8).sub(8, opset("ai.onnx", 7))).is_ok());
}

#[test]
fn files_that_are_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        ModelFile::open(dir.path().join(name))
            .unwrap_err()
            .to_string()
    };
    assert!(open("none.onnx").contains("no such file"));
    assert!(open(".").contains("not a regular file"));
    std::fs::write(dir.path().join("empty.onnx"), b"").unwrap();
    assert!(open("empty.onnx").contains("is empty"));
    std::fs::write(dir.path().join("text.onnx"), b"<html>not found</html>").unwrap();
    assert!(open("text.onnx").contains("text.onnx: damaged ONNX file"));
}

#[test]
fn a_mapped_model_lends_its_data() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.onnx");
    std::fs::write(&path, rich_model().0).unwrap();
    let file = ModelFile::open(&path).unwrap();
    let bytes = file
        .tensor_bytes(&file.model.graph.initializers[0])
        .unwrap();
    assert!(bytes.same_owner(file.bytes()));
    // The data outlives the model.
    drop(file);
    assert_eq!(bytes[..], [0, 0, 128, 63, 0, 0, 0, 64]);
}

#[test]
fn names_cannot_move_a_terminal_and_end() {
    let name_of = |name: &str| {
        let file = read(model(msg().text(2, name))).unwrap();
        file.model.graph.name
    };
    assert_eq!(name_of("a/b:0 \u{e9}"), "a/b:0 \u{e9}");
    assert_eq!(
        name_of("a\u{1b}[31m\nb\u{202e}"),
        "a\\u{1b}[31m\\nb\\u{202e}"
    );
    let (long, other) = ("x".repeat(1 << 20), "x".repeat(1 << 20) + "y");
    let (a, b) = (name_of(&long), name_of(&other));
    assert!(a.len() < 1100 && a.contains("1048576 B") && a != b, "{a}");
}
