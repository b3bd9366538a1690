//! Vector lanes onto cache lines, invocations onto addresses, and the functions that a CPU's steps call:
//! against what follows from the operators' own extents and layouts.

use expr::{ExprBuilder, Monoid};
use graph::{ContractSpec, GraphBuilder, Op, Origin, PoolKind, PoolSpec, ValueId, View};
use layout::Dim;
use shopfloor::{DType, Machine, Model, ModelOptions};
use shopfloor_tools::op_model;
use shopfloor_tools::report::walk::{LaneRequest, Picture, Scene, Walk};
use shopfloor_tools::walk::{WalkOptions, planned};
use std::collections::BTreeSet;
use std::sync::Arc;
use tensor::WeightStore;

fn dims(v: &[usize]) -> Vec<Dim> {
    v.iter().map(|&n| Dim::from(n)).collect()
}

/// A model of one operator over inputs of these types and shapes.
fn model(name: &str, inputs: &[(DType, &[usize])], op: Op) -> Model {
    let mut b = GraphBuilder::new(name, Arc::new(WeightStore::new()));
    let ids: Vec<ValueId> = inputs
        .iter()
        .enumerate()
        .map(|(i, (d, shape))| b.input(&format!("x{i}"), *d, dims(shape)))
        .collect();
    let origin = Origin {
        name: name.into(),
        op_type: "Test".into(),
    };
    let y = b.node(op, &ids, &["y"], &origin).unwrap();
    Model::from_graph(name, &b.finish(&y), &ModelOptions::default()).unwrap()
}

fn product(d: DType, m: usize, n: usize, k: usize) -> Model {
    let spec = ContractSpec {
        a: vec![0, 1],
        b: vec![1, 2],
        out: vec![0, 2],
    };
    model("product", &[(d, &[m, k]), (d, &[k, n])], Op::Contract(spec))
}

fn walked(model: &Model, machine: &str, quick: bool) -> Walk {
    let machine = Machine::load(machine).unwrap();
    let options = WalkOptions {
        quick,
        ..WalkOptions::default()
    };
    planned(model, &machine.into(), &options).unwrap()
}

fn requests(w: &Walk) -> &[LaneRequest] {
    match &w.scene("lanes").expect("a scene of lanes").picture {
        Picture::Lanes { requests } => requests,
        other => panic!("{other:?}"),
    }
}

/// What holds for every request: its units are those that its lanes touch.
fn whole(w: &Walk) {
    for r in requests(w) {
        assert!(!r.lanes.is_empty() && r.issued > 0, "{r:?}");
        assert!(r.partial.unwrap_or(0) <= r.issued, "{r:?}");
        if r.way == "by data" {
            assert!(r.lanes.iter().all(Option::is_none) && r.moved >= r.ideal);
            continue;
        }
        let mut units = BTreeSet::new();
        for a in r.lanes.iter().flatten() {
            (a / u64::from(r.unit)..=(a + u64::from(r.bytes) - 1) / u64::from(r.unit)).for_each(
                |u| {
                    units.insert(u);
                },
            );
        }
        assert_eq!(r.moved, units.len() as u64, "{r:?}");
        assert!(r.ideal <= r.moved, "{r:?}");
    }
}

fn value(s: &Scene, key: &str) -> f64 {
    s.figure(key).and_then(|f| f.value).unwrap()
}

#[test]
fn a_cpus_vectors_take_neighbours_where_they_lie() {
    // AVX-512: 16 lanes of 4 bytes are a line.
    let w = walked(&op_model("map:100003:f32:add").unwrap(), "zen4-2core", true);
    whole(&w);
    let all = requests(&w);
    let roles: Vec<&str> = all.iter().map(|r| r.role).collect();
    assert_eq!(roles, ["load", "load", "store"]);
    for r in all {
        assert_eq!(
            (r.space, r.unit, r.bytes, r.lanes.len()),
            ("cache", 64, 4, 16)
        );
        assert_eq!((r.way, r.stride), ("contiguous", Some(4)));
        assert!(r.moved <= 2 && r.ideal == 1, "{r:?}");
    }
}

#[test]
fn partial_vectors_are_those_of_the_last_elements() {
    // One task, one row of 37: two whole vectors and one of five lanes.
    let mut e = ExprBuilder::new();
    let x = e.input(0, DType::F32);
    let y = e.mul(x, x);
    let f = e.finish(&[y]);
    let m = model("square", &[(DType::F32, &[37])], Op::Map(f));
    let w = walked(&m, "zen4-2core", true);
    whole(&w);
    for r in requests(&w) {
        assert_eq!((r.issued, r.partial), (3, Some(1)), "{r:?}");
    }
    let lanes = w.scene("lanes").unwrap();
    assert_eq!(value(lanes, "tile1"), 3.0);
    // Five channels of a short row: one vector, cut.
    let m = op_model("map:5:f32:relu").unwrap();
    let w = walked(&m, "zen4-2core", true);
    let r = &requests(&w)[0];
    assert_eq!((r.issued, r.partial), (1, Some(1)));
    assert_eq!(r.lanes.iter().flatten().count(), 5);
}

#[test]
fn a_products_factors_are_repeated_and_taken_by_vectors() {
    let w = walked(
        &op_model("matmul:64x256x128:f32").unwrap(),
        "zen4-2core",
        true,
    );
    whole(&w);
    let of = |way: &str| {
        requests(&w)
            .iter()
            .find(|r| r.way == way && r.role == "load")
    };
    let rows = of("one element").expect("rows' factor");
    assert_eq!((rows.moved, rows.stride), (1, Some(0)));
    let columns = of("contiguous").expect("columns' factor");
    assert_eq!((columns.bytes, columns.lanes.len()), (4, 16));
    let c = requests(&w).iter().find(|r| r.role == "store").unwrap();
    assert_eq!(c.way, "contiguous");
}

#[test]
fn elements_that_lie_apart_touch_a_line_each() {
    let m = model(
        "transpose",
        &[(DType::F32, &[512, 256])],
        Op::View(View::Permute(vec![1, 0])),
    );
    let w = walked(&m, "zen4-2core", true);
    whole(&w);
    let all = requests(&w);
    let apart = all.iter().find(|r| r.way == "strided").expect("strided");
    assert_eq!(apart.moved, apart.lanes.len() as u64, "{apart:?}");
    assert!(all.iter().any(|r| r.way == "contiguous"));
}

#[test]
fn invocations_are_counted_from_the_threads() {
    for machine in ["apple-m1-8c", "mi100"] {
        let m = op_model("map:4096:f32:relu").unwrap();
        let w = walked(&m, machine, true);
        let code = &w.scene("code").unwrap().picture;
        let Picture::Code { panes, .. } = code else {
            panic!("{code:?}")
        };
        assert_eq!(panes[0].language, "WGSL", "{machine}");
        whole(&w);
        let all = requests(&w);
        assert_eq!(all.len(), 2, "{machine}");
        for r in all {
            let line = &panes[0].lines[r.line as usize - 1];
            assert_eq!(line.number, r.line);
            assert_eq!(line.text.trim(), r.text);
            assert!(
                r.text
                    .contains(if r.role == "load" { "read_" } else { "write_" })
            );
            assert_eq!(r.way, "contiguous", "{machine} {r:?}");
            let held: usize = r.lanes.iter().flatten().count();
            assert_eq!(held, r.lanes.len(), "{machine}");
        }
        // Loads and stores of a map are as many.
        assert_eq!(
            all[0].issued * u64::from(all[0].bytes),
            all[1].issued * u64::from(all[1].bytes)
        );
        let shown = w.scene("lanes").unwrap();
        assert_eq!(
            value(shown, "asked"),
            (all[0].issued + all[1].issued) as f64
        );
        let p = walked(&op_model("matmul:128x128x64:f32").unwrap(), machine, true);
        whole(&p);
        assert!(
            value(p.scene("lanes").unwrap(), "shared") > 0.0,
            "{machine}"
        );
    }
}

/// The calls and the machine code that a step's walk shows, and what is missing.
fn code(w: &Walk) -> (String, String, String) {
    let Picture::Code { panes, note } = &w.scene("code").unwrap().picture else {
        panic!()
    };
    let text = |name: &str| {
        let pane = panes.iter().find(|p| p.language == name);
        let lines = pane.map_or(vec![], |p| {
            p.lines.iter().map(|l| l.text.as_str()).collect()
        });
        lines.join("\n")
    };
    (text("calls"), text("x86-64"), note.clone())
}

#[test]
fn every_family_names_the_functions_that_it_calls() {
    let pool = PoolSpec {
        kind: PoolKind::Max,
        kernel: vec![3, 3],
        strides: vec![2, 2],
        dilations: vec![1, 1],
        before: dims(&[1, 1]),
        after: dims(&[1, 1]),
    };
    let sum = Op::Reduce {
        monoid: Monoid::sum(DType::F32, DType::F32),
        axes: vec![1],
        keep: true,
    };
    let transpose = Op::View(View::Permute(vec![1, 0]));
    let f = DType::F32;
    let cases: [(&str, Model, &str); 8] = [
        ("map", op_model("map:4096:f32:gelu").unwrap(), "gelu"),
        ("row", model("sum", &[(f, &[64, 300])], sum), "row_sum"),
        (
            "pool",
            model("pool", &[(f, &[1, 8, 32, 32])], Op::Pool(pool)),
            "max",
        ),
        (
            "move",
            model("turn", &[(f, &[64, 96])], transpose),
            "copy of rows of 4-byte",
        ),
        (
            "f32",
            op_model("matmul:64x64x64:f32").unwrap(),
            "product of f32 in tiles",
        ),
        ("f16", op_model("matmul:64x64x64:f16").unwrap(), "f16"),
        ("bf16", op_model("matmul:64x64x64:bf16").unwrap(), "bf16"),
        (
            "8 bits",
            product(DType::I32, 8, 8, 8),
            "product of i32 element by element",
        ),
    ];
    for (name, m, expected) in cases {
        let w = walked(&m, "zen4-2core", true);
        whole(&w);
        for r in requests(&w) {
            assert!(r.lanes.iter().any(Option::is_some), "{name}: {r:?}");
        }
        let (calls, _, note) = code(&w);
        assert!(calls.contains(expected), "{name}: {calls}");
        assert!(note.contains("left out"), "{name}: {note}");
    }
}

#[test]
fn functions_are_shown_with_their_machine_code() {
    if !testing::turn("functions_are_shown_with_their_machine_code") {
        return;
    }
    let here = cfg!(all(target_arch = "x86_64", target_os = "linux"));
    let objdump = std::process::Command::new("objdump")
        .arg("--version")
        .output();
    let cases = [
        ("map:4096:f32:relu", "vmax"),
        ("matmul:64x64x64:f32", "vfmadd"),
        ("map:4096:f16:add", "vadd"),
    ];
    for (op, opcode) in cases {
        let w = walked(&op_model(op).unwrap(), "zen4-2core", false);
        let (calls, x86, note) = code(&w);
        assert!(calls.contains('['), "{op}: {calls}");
        if !here || objdump.is_err() {
            // What cannot be shown says why.
            assert!(x86.is_empty() && !note.is_empty(), "{op}: {note}");
            continue;
        }
        assert!(note.is_empty(), "{op}: {note}");
        assert!(x86.starts_with("; "), "{op}");
        assert!(x86.contains(opcode), "{op}: no {opcode} in\n{x86}");
    }
}
