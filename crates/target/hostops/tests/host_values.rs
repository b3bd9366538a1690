//! Operators on texts, sequences and optional values.
use layout::DType;
use shopfloor_hostops::run;
use tensor::{Attr, Attrs, HostValue, Tensor};

fn call(name: &str, attrs: &[(&str, Attr)], inputs: &[&Tensor]) -> Result<Vec<Tensor>, String> {
    let attrs: Attrs = attrs
        .iter()
        .map(|(k, v)| (k.to_string(), v.clone()))
        .collect();
    let inputs: Vec<Option<&Tensor>> = inputs.iter().map(|t| Some(*t)).collect();
    run(name, &attrs, &inputs).map_err(|e| e.to_string())
}

fn one(name: &str, attrs: &[(&str, Attr)], inputs: &[&Tensor]) -> Tensor {
    call(name, attrs, inputs).unwrap().remove(0)
}

fn texts(shape: &[usize], t: &[&str]) -> Tensor {
    Tensor::from_text(shape, t.iter().map(|s| s.to_string()).collect()).unwrap()
}

fn f(shape: &[usize], v: &[f32]) -> Tensor {
    Tensor::from_f32(shape, v).unwrap()
}

fn i(v: i64) -> Tensor {
    Tensor::from_i64(&[], &[v]).unwrap()
}

#[test]
fn sequences() {
    let (a, b, c) = (f(&[2], &[1., 2.]), f(&[1], &[3.]), f(&[2], &[4., 5.]));
    let s = one("SequenceConstruct", &[], &[&a, &b]);
    assert_eq!(one("SequenceLength", &[], &[&s]), i(2));
    let s = one("SequenceInsert", &[], &[&s, &c, &i(-1)]);
    assert_eq!(one("SequenceAt", &[], &[&s, &i(1)]), c);
    assert_eq!(one("SequenceAt", &[], &[&s, &i(-1)]), b);
    let joined = one("ConcatFromSequence", &[("axis", Attr::Int(0))], &[&s]);
    assert_eq!(joined, f(&[5], &[1., 2., 4., 5., 3.]));
    let s = one("SequenceErase", &[], &[&s]);
    let stacked = [("axis", Attr::Int(1)), ("new_axis", Attr::Int(1))];
    let y = one("ConcatFromSequence", &stacked, &[&s]);
    assert_eq!(y, f(&[2, 2], &[1., 4., 2., 5.]));
    for bad in [i(2), i(-3)] {
        assert!(call("SequenceAt", &[], &[&s, &bad]).is_err());
    }
    let none = one("SequenceEmpty", &[], &[]);
    assert!(call("SequenceErase", &[], &[&none]).is_err());
    assert!(call("SequenceAt", &[], &[&none, &i(0)]).is_err());
    assert!(call("SequenceInsert", &[], &[&a, &b]).is_err());
    let x = f(&[2, 3], &[1., 2., 3., 4., 5., 6.]);
    let axis = ("axis", Attr::Int(1));
    let s = one("SplitToSequence", std::slice::from_ref(&axis), &[&x, &i(2)]);
    assert_eq!(*s.items().unwrap()[1], f(&[2, 1], &[3., 6.]));
    let s = one(
        "SplitToSequence",
        &[axis, ("keepdims", Attr::Int(0))],
        &[&x],
    );
    assert_eq!(*s.items().unwrap()[2], f(&[2], &[3., 6.]));
    assert!(call("SplitToSequence", &[], &[&x, &i(0)]).is_err());
}

#[test]
fn optional_values() {
    let x = f(&[1], &[1.]);
    let some = one("Optional", &[], &[&x]);
    let none = one("Optional", &[], &[]);
    let there = |t: &Tensor| one("OptionalHasElement", &[], &[t]).get_i64(0);
    assert_eq!((there(&some), there(&none), there(&x)), (1, 0, 1));
    assert_eq!(one("OptionalGetElement", &[], &[&some]), x);
    assert!(call("OptionalGetElement", &[], &[&none]).is_err());
    assert!(matches!(none.host_value(), Some(HostValue::Optional(None))));
}

#[test]
fn texts_and_numbers() {
    let x = texts(&[2, 1], &["b", "a"]);
    let y = texts(&[2], &["1", "22"]);
    assert_eq!(
        one("StringConcat", &[], &[&x, &y]),
        texts(&[2, 2], &["b1", "b22", "a1", "a22"])
    );
    let ids = call("text.ids", &[], &[&x, &y]).unwrap();
    assert_eq!(ids[0], Tensor::from_i64(&[2, 1], &[3, 2]).unwrap());
    assert_eq!(one("text.pick", &[], &[&ids[0], &x, &y]), x);
    let s = call(
        "StringSplit",
        &[("delimiter", Attr::Str(",".into()))],
        &[&texts(&[2], &["a,b,", ""])],
    )
    .unwrap();
    assert_eq!(s[0], texts(&[2, 3], &["a", "b", "", "", "", ""]));
    assert_eq!(s[1], Tensor::from_i64(&[2], &[3, 0]).unwrap());
    let s = one("StringSplit", &[], &[&texts(&[1], &["  one two "])]);
    assert_eq!(s, texts(&[1, 2], &["one", "two"]));
    let to = |t: &str| [("to", Attr::Str(t.into()))];
    let v = f(&[4], &[1.5, -0.25, 1e10, f32::NAN]);
    let shown = one("text.cast", &to("str"), &[&v]);
    assert_eq!(shown, texts(&[4], &["1.5", "-0.25", "1e+10", "NaN"]));
    let back = one("text.cast", &to("f32"), &[&shown]);
    assert_eq!(back.get_f64(2), 1e10);
    assert!(back.get_f64(3).is_nan());
    assert!(call("text.cast", &to("f32"), &[&texts(&[1], &["x"])]).is_err());
    let stop = ("stopwords", Attr::Strs(vec!["the".into()]));
    let up = ("case_change_action", Attr::Str("UPPER".into()));
    let n = one(
        "StringNormalizer",
        &[stop.clone(), up],
        &[&texts(&[2], &["The", "end"])],
    );
    assert_eq!(n, texts(&[1], &["END"]));
    let n = one("StringNormalizer", &[stop], &[&texts(&[1], &["the"])]);
    assert_eq!(n, texts(&[1], &[""]));
    assert_eq!(
        Tensor::zeros(DType::Str, &[2]).unwrap(),
        texts(&[2], &["", ""])
    );
    assert!(Tensor::from_text(&[2], vec!["one".into()]).is_err());
}

#[cfg(feature = "patterns")]
#[test]
fn tokens() {
    let x = texts(&[2], &["ab, c", "d"]);
    let rule = |name: &str, v: &str, more: &[(&str, Attr)]| {
        let v = match name {
            "separators" => Attr::Strs(v.split('|').map(String::from).collect()),
            _ => Attr::Str(v.into()),
        };
        let pad = ("pad_value", Attr::Str("#".into()));
        let mut attrs = vec![(name, v), pad, ("mincharnum", Attr::Int(1))];
        attrs.extend(more.iter().cloned());
        call("ms.Tokenizer", &attrs, &[&x]).map(|mut y| y.remove(0))
    };
    let y = rule("tokenexp", "[a-z]+", &[]).unwrap();
    assert_eq!(y, texts(&[2, 2], &["ab", "c", "d", "#"]));
    let y = rule("separators", ",| ", &[("mark", Attr::Int(1))]).unwrap();
    let (a, z) = ("\u{2}", "\u{3}");
    assert_eq!(y, texts(&[2, 4], &[a, "ab", "c", z, a, "d", z, "#"]));
    let y = rule("tokenexp", ".", &[]).unwrap();
    assert_eq!(y.shape(), [2, 5]);
    let y = rule("tokenexp", "[0-9]", &[("mark", Attr::Int(1))]).unwrap();
    assert_eq!(y.shape(), [2, 0]);
    assert!(rule("tokenexp", "", &[]).is_err());
    assert!(rule("tokenexp", "(", &[]).is_err());
    assert!(rule("separators", "[", &[]).is_err());
}

#[test]
fn texts_are_counted_before_they_are_made() {
    let refused = |name: &str, attrs: &[(&str, Attr)], inputs: &[&Tensor]| {
        let e = call(name, attrs, inputs).expect_err(name);
        assert!(e.contains("more than a host operator may make"), "{e}");
    };
    let long = "x".repeat(1 << 20);
    let column = texts(&[1024, 1], &["y"; 1024]);
    let one = Tensor::from_text(&[1], vec![long.clone()]).unwrap();
    refused("StringConcat", &[], &[&column, &one]);
    // One row of many pieces makes every row as wide.
    let mut rows = vec![""; 1024];
    rows[0] = &long;
    let rows = texts(&[1024], &rows);
    refused(
        "StringSplit",
        &[("delimiter", Attr::Str("x".into()))],
        &[&rows],
    );
}
