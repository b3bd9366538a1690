//! Programs cut before sizes that only the data gives.
use layout::{DType, Dim, Layout, Sym};
use shopfloor_plan::{
    HostOp, Item, ItemWork, Precision, Program, ProgramSymbol, ProgramValue, Segment, SymbolOrigin,
    ValueIx, ValueOrigin,
};

fn host(name: &str, inputs: &[ValueIx], outputs: &[ValueIx]) -> Item {
    Item {
        name: name.into(),
        work: ItemWork::Host {
            op: HostOp {
                name: name.into(),
                attrs: Default::default(),
                reason: String::new(),
                made: Default::default(),
            }
            .into(),
            inputs: inputs.iter().map(|&v| Some(v)).collect(),
            outputs: outputs.to_vec(),
        },
        nodes: vec![name.into()],
        given: None,
    }
}

/// Input 0; then for each of `n` classes: a late item picks some, a straight one works on them.
fn classes(n: u32) -> Program {
    let value = |name: String, shape: Vec<Dim>, origin| ProgramValue {
        name,
        dtype: DType::F32,
        layout: Layout::ordered(&shape, &[0], 1),
        storage: Dim::product(&shape),
        shape,
        origin,
    };
    let mut p = Program {
        name: "classes".into(),
        symbols: vec![],
        values: vec![value(
            "x".into(),
            vec![Dim::Known(64)],
            ValueOrigin::Input(0),
        )],
        inputs: vec![0],
        outputs: vec![],
        init: vec![],
        segments: vec![],
        states: vec![],
        constraints: vec![],
        batches: vec![],
        savings: vec![],
        precision: Precision::default(),
        passed: vec![],
        fates: vec![],
        whys: vec![],
        weights: Default::default(),
    };
    for c in 0..n {
        let sym: Sym = format!("n{c}").into();
        let picked = p.values.len() as u32;
        let size = vec![Dim::sym(&sym)];
        p.values
            .push(value(format!("p{c}"), size.clone(), ValueOrigin::Made));
        p.values
            .push(value(format!("y{c}"), size, ValueOrigin::Made));
        p.symbols.push(ProgramSymbol {
            name: sym,
            origin: SymbolOrigin::Late {
                value: picked,
                axis: 0,
            },
        });
        let name = |s: &str| format!("{s}{c}");
        p.segments
            .push(Segment::Late(host(&name("pick"), &[0], &[picked])));
        let work = host(&name("work"), &[picked], &[picked + 1]);
        p.segments.push(Segment::Straight(vec![work]));
        p.outputs.push((format!("y{c}"), picked + 1));
    }
    p
}

#[test]
fn a_value_is_handed_on_for_its_size_alone() {
    let mut p = classes(2);
    // The work of the second class takes the size of the first one's choice, and not its elements.
    let size = p.value(1).shape.clone();
    p.values[4].shape.clone_from(&size);
    p.values[4].storage = Dim::product(&size);
    let work = host("work1", &[0], &[4]);
    p.segments[3] = Segment::Straight(vec![work]);
    p.segments[1] = Segment::Straight(vec![host("work0", &[0], &[2])]);
    p.values[2].shape = vec![Dim::Known(1)];
    p.values[2].storage = Dim::ONE;
    let s = p.subprogram(&p.cuts(), 0);
    assert_eq!(s.end, 3, "the next one needs a size");
    assert!(s.outputs.contains(&1), "{:?}", s.outputs);
    assert!(s.spent.contains(&1), "its size is known by then");
    let s = p.subprogram(&p.cuts(), 3);
    assert!(!s.inputs.contains(&1));
    let n0 = s.program.symbols.iter().find(|s| &*s.name == "n0");
    assert_eq!(n0.unwrap().origin, SymbolOrigin::Outer);
    // Where nobody asks for it, it stays inside.
    p.values[4].shape = vec![Dim::Known(1)];
    p.values[4].storage = Dim::ONE;
    let s = p.subprogram(&p.cuts(), 0);
    assert!(!s.outputs.contains(&1), "{:?}", s.outputs);
}

#[test]
fn subprograms_cover_the_program_once_and_hold_only_their_own() {
    let n = 50;
    let p = classes(n);
    // The first late item runs before the first cut.
    let (mut at, mut known, mut covered) = (1, vec![0, 1], 1);
    while at < p.segments.len() {
        let s = p.subprogram(&p.cuts(), at);
        assert!(s.end > at);
        assert_eq!(s.program.segments.len(), s.end - at);
        assert!(s.program.values.len() <= 4, "{:?}", s.program.values);
        assert!(s.program.symbols.len() <= 2);
        assert!(s.inputs.iter().all(|v| known.contains(v)), "{:?}", s.inputs);
        for (i, v) in s.program.inputs.iter().enumerate() {
            let value = s.program.value(*v);
            assert_eq!(value.origin, ValueOrigin::Input(i as u32));
            assert_eq!(value.name, p.value(s.inputs[i]).name);
        }
        for (v, o) in s.outputs.iter().zip(&s.program.outputs) {
            assert_eq!(p.value(*v).name, s.program.value(o.1).name);
        }
        known.extend(&s.outputs);
        known.retain(|v| !s.spent.contains(v));
        covered += s.end - at;
        at = s.end;
    }
    assert_eq!(covered, p.segments.len());
    // Every output is there at the end, and nothing else but what nobody asked to drop.
    assert!(p.outputs.iter().all(|o| known.contains(&o.1)));
    assert_eq!(known.len(), n as usize);
}
