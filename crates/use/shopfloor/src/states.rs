//! State found by name: the pairs of inputs and outputs that exporters leave for KV caches and recurrent
//! state.
use graph::{Graph, ValueId};
use layout::Inserted;
use std::collections::{BTreeMap, BTreeSet};

/// Names that an output would have if it carried `input` on, the likeliest first.
fn carried(input: &str) -> Vec<String> {
    let mut names = vec![];
    for (past, present) in [
        ("past_key_values", "present"),
        ("past_key_values", "present_key_values"),
        ("past", "present"),
        ("prev", "next"),
        ("old", "new"),
    ] {
        if input.contains(past) {
            names.push(input.replacen(past, present, 1));
        }
    }
    for (end, next) in [
        ("_in", "_out"),
        (".in", ".out"),
        ("In", "Out"),
        ("_0", "_n"),
        ("0", "n"),
        ("0", "N"),
        ("_prev", ""),
    ] {
        if let Some(stem) = input.strip_suffix(end) {
            names.push(format!("{stem}{next}"));
        }
    }
    for end in ["N", "n", "_n", "_out", ".out", "Out", "_next", "_new", "_t"] {
        names.push(format!("{input}{end}"));
    }
    for begin in ["new_", "next_", "out_", "updated_"] {
        names.push(format!("{begin}{input}"));
    }
    names
}

/// Whether `out` can be what `given` is in the next request: of its type and rank, in fixed extents the same.
fn fits(graph: &Graph, given: ValueId, out: ValueId) -> bool {
    let (i, o) = (graph.value(given), graph.value(out));
    let same = |(a, b): (&layout::Dim, &layout::Dim)| match (a.known(), b.known()) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    };
    i.dtype == o.dtype
        && i.shape.len() == o.shape.len()
        && !i.shape.is_empty()
        && i.shape.iter().zip(&o.shape).all(same)
}

/// Pairs of an input and the output that carries its state on, by their names, types and shapes.
pub(crate) fn by_name(graph: &Graph) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = vec![];
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let outputs = graph.outputs.iter().rev();
    let outputs: BTreeMap<&str, ValueId> = outputs
        .map(|&o| (graph.value(o).name.as_str(), o))
        .inserted();
    for &input in &graph.inputs {
        let name = &graph.value(input).name;
        let output = carried(name).into_iter().find(|n| {
            let output = outputs.get(n.as_str());
            !taken.contains(n) && output.is_some_and(|&o| fits(graph, input, o))
        });
        if let Some(o) = output {
            taken.insert(o.clone());
            found.push((name.clone(), o));
        }
    }
    found
}

/// Refuses pairs that name no input or no output, or one that another pair names.
pub(crate) fn known(graph: &Graph, states: &[(String, String)]) -> Result<(), crate::Error> {
    let names = |all: &[ValueId]| -> Vec<String> {
        all.iter().map(|&v| graph.value(v).name.clone()).collect()
    };
    let (inputs, outputs) = (names(&graph.inputs), names(&graph.outputs));
    let each = states.iter().flat_map(|s| {
        let named = [("input", &s.0, &inputs), ("output", &s.1, &outputs)];
        named.map(|(what, name, all)| (s, what, name, all))
    });
    for ((input, output), what, name, all) in each.clone() {
        if !all.contains(name) {
            return Err(crate::Error::Usage(format!(
                "state '{input}={output}': the model has no {what} '{name}'; it has {}",
                all.join(", ")
            )));
        }
    }
    for ((input, output), what, name, _) in each.clone() {
        let others = each.clone().filter(|e| (e.1, e.2) == (what, name));
        if others.count() > 1 {
            return Err(crate::Error::Usage(format!(
                "state '{input}={output}': {what} '{name}' is part of another state, too; leave one of them out"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::by_name;
    use graph::{GraphBuilder, Op, Origin, View};
    use layout::{DType, Dim};
    use std::sync::Arc;

    /// A graph whose outputs are copies of its inputs under other names.
    fn pairs(named: &[(&str, &[i64], &str, &[i64])]) -> Vec<(String, String)> {
        let mut b = GraphBuilder::new("g", Arc::default());
        let dims = |s: &[i64]| s.iter().map(|&n| Dim::Known(n)).collect::<Vec<_>>();
        let mut outs = vec![];
        for (input, from, output, to) in named {
            let x = b.input(input, DType::F32, dims(from));
            let origin = Origin {
                name: output.to_string(),
                op_type: String::new(),
            };
            let op = Op::View(View::Reshape(dims(to)));
            outs.push(b.node(op, &[x], &[output], &origin).unwrap()[0]);
        }
        by_name(&b.finish(&outs))
    }

    #[test]
    fn what_exporters_call_state_is_paired() {
        for (input, output) in [
            ("past_key_values.0.key", "present.0.key"),
            ("past_3.value", "present_3.value"),
            ("state", "stateN"),
            ("h0", "hn"),
            ("c_in", "c_out"),
            ("cache", "new_cache"),
        ] {
            let found = pairs(&[(input, &[2, 3], output, &[2, 3]), ("x", &[2], "y", &[2])]);
            assert_eq!(found, [(input.to_string(), output.to_string())]);
        }
        // Other shapes, other names.
        assert!(pairs(&[("h", &[2, 3], "hn", &[3, 2])]).is_empty());
        assert!(pairs(&[("x", &[2, 3], "y", &[2, 3])]).is_empty());
    }
}
