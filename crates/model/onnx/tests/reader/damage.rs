//! Damaged files: an error or another model, never a panic.

use shopfloor_onnx::ModelFile;
use shopfloor_onnx::proto::{AttributeValue, Graph};

use crate::reader::encode::{msg, rich_model};

/// Reads a model and everything in it, and counts the tensors that could be had.
fn use_all(bytes: Vec<u8>) -> Option<usize> {
    let file = ModelFile::from_bytes(bytes, None).ok()?;
    let mut had = graph_tensors(&file, &file.model.graph);
    for function in &file.model.functions {
        had += file
            .model
            .function(&function.domain, &function.name, "")
            .is_some() as usize;
    }
    had += format!("{:?}", file.model).len() & 1;
    Some(had)
}

fn graph_tensors(file: &ModelFile, graph: &Graph) -> usize {
    let mut had = 0;
    for tensor in &graph.initializers {
        had += file.tensor_bytes(tensor).is_ok() as usize;
        had += file.tensor_strings(tensor).is_ok() as usize;
    }
    for attribute in graph.nodes.iter().flat_map(|node| &node.attributes) {
        match &attribute.value {
            AttributeValue::Tensor(tensor) => had += file.tensor_bytes(tensor).is_ok() as usize,
            AttributeValue::Tensors(tensors) => {
                had += tensors
                    .iter()
                    .filter(|t| file.tensor_bytes(t).is_ok())
                    .count();
            }
            AttributeValue::Graph(graph) => had += graph_tensors(file, graph),
            AttributeValue::Graphs(graphs) => {
                had += graphs
                    .iter()
                    .map(|graph| graph_tensors(file, graph))
                    .sum::<usize>();
            }
            _ => {}
        }
    }
    had
}

#[test]
fn a_model_cut_anywhere_is_an_error() {
    // The graph comes last, so that no prefix is a whole model.
    let whole = rich_model().0;
    assert!(use_all(whole.clone()).is_some());
    for len in 0..whole.len() {
        assert_eq!(use_all(whole[..len].to_vec()), None, "cut to {len} B");
    }
}

#[test]
fn flipped_bits_never_panic() {
    let whole = rich_model().0;
    let mut random = fastrand::Rng::with_seed(1);
    let mut read = 0;
    for round in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + round % 4 {
            let bit = random.usize(..bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        read += use_all(bytes).is_some() as usize;
    }
    // Flips in names and values leave a model: the test must not only see refusals.
    assert!(
        (1_000..19_000).contains(&read),
        "{read} of 20000 were still models"
    );
}

#[test]
fn random_bytes_never_panic() {
    let mut random = fastrand::Rng::with_seed(2);
    for _ in 0..20_000 {
        let len = random.usize(..200);
        // Few distinct values make many valid tags.
        let bytes: Vec<u8> = (0..len).map(|_| random.usize(..64) as u8).collect();
        use_all(bytes);
    }
}

#[test]
fn every_byte_changed_to_the_extremes_never_panics() {
    let whole = rich_model().0;
    for at in 0..whole.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            use_all(bytes);
        }
    }
}

#[test]
fn many_empty_messages_take_proportional_memory() {
    // 200,000 empty nodes in 400 KB: accepted or refused, but soon.
    let graph = (0..200_000).fold(msg(), |graph, _| graph.raw(&[0x0a, 0x00]));
    assert_eq!(
        use_all(crate::reader::encode::model(graph).0).map(|_| ()),
        Some(())
    );
}
