//! Operators of the table on cases computed by hand.
use layout::DType;
use shopfloor_hostops::run;
use tensor::{Attr, Attrs, HostValue, Tensor};

fn f(shape: &[usize], v: &[f32]) -> Tensor {
    Tensor::from_f32(shape, v).unwrap()
}

fn i(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_i64(shape, v).unwrap()
}

fn call(name: &str, attrs: &[(&str, Attr)], inputs: &[&Tensor]) -> Vec<Tensor> {
    let attrs: Attrs = attrs
        .iter()
        .map(|(n, a)| (n.to_string(), a.clone()))
        .collect();
    let inputs: Vec<Option<&Tensor>> = inputs.iter().map(|t| Some(*t)).collect();
    run(name, &attrs, &inputs).unwrap()
}

fn count(n: usize) -> Vec<f32> {
    (0..n).map(|x| x as f32).collect()
}

#[test]
fn the_table_is_sorted_and_refuses_strangers() {
    let names = shopfloor_hostops::host_names();
    assert!(names.windows(2).all(|w| w[0] < w[1]));
    let e = run("Nothing", &Attrs::new(), &[]).unwrap_err().to_string();
    assert!(e.contains("'Nothing'"), "{e}");
    // Every operator says so when it gets nothing at all, but those that need nothing.
    let free = ["Optional", "SequenceEmpty", "text.constant"];
    for n in names.into_iter().filter(|n| !free.contains(n)) {
        assert!(run(n, &Attrs::new(), &[]).is_err(), "{n}");
    }
}

#[test]
fn shapes_from_data() {
    let x = f(&[2, 3], &count(6));
    let y = call(
        "Slice",
        &[],
        &[
            &x,
            &i(&[2], &[-1, i64::MAX]),
            &i(&[2], &[i64::MIN, -9]),
            &i(&[2], &[0, 1]),
            &i(&[2], &[-1, -2]),
        ],
    );
    assert_eq!(y[0], f(&[2, 2], &[5., 3., 2., 0.]));
    let y = call(
        "Slice",
        &[],
        &[&x, &i(&[1], &[2]), &i(&[1], &[1]), &i(&[1], &[1])],
    );
    assert_eq!(y[0].shape(), [2, 0]);
    let y = call("Reshape", &[], &[&x, &i(&[3], &[0, -1, 1])]);
    assert_eq!(y[0].shape(), [2, 3, 1]);
    let y = call(
        "Expand",
        &[],
        &[&f(&[2, 1], &[1., 2.]), &i(&[3], &[2, 1, 2])],
    );
    assert_eq!(y[0], f(&[2, 2, 2], &[1., 1., 2., 2., 1., 1., 2., 2.]));
    let y = call(
        "Range",
        &[],
        &[&i(&[], &[5]), &i(&[], &[-2]), &i(&[], &[-3])],
    );
    assert_eq!(y[0], i(&[3], &[5, 2, -1]));
    let y = call(
        "Range",
        &[],
        &[&f(&[], &[0.0]), &f(&[], &[1.0]), &f(&[], &[0.4])],
    );
    assert_eq!(y[0].shape(), [3]);
    let y = call(
        "ConstantOfShape",
        &[("value", Attr::Tensor(i(&[1], &[7])))],
        &[&i(&[2], &[1, 2])],
    );
    assert_eq!(y[0], i(&[1, 2], &[7, 7]));
    let y = call("Tile", &[], &[&f(&[1, 2], &[1., 2.]), &i(&[2], &[2, 2])]);
    assert_eq!(y[0], f(&[2, 4], &[1., 2., 1., 2., 1., 2., 1., 2.]));
    let y = call(
        "EyeLike",
        &[("k", Attr::Int(1)), ("dtype", Attr::Int(7))],
        &[&x],
    );
    assert_eq!(y[0], i(&[2, 3], &[0, 1, 0, 0, 0, 1]));
}

#[test]
fn padding_modes() {
    let x = f(&[3], &[1., 2., 3.]);
    let pad = |mode: &str, pads: &[i64]| {
        call(
            "Pad",
            &[("mode", Attr::Str(mode.into()))],
            &[&x, &i(&[2], pads)],
        )[0]
        .to_f32()
        .unwrap()
    };
    assert_eq!(pad("constant", &[1, 2]), [0., 1., 2., 3., 0., 0.]);
    assert_eq!(pad("constant", &[-1, 1]), [2., 3., 0.]);
    assert_eq!(pad("edge", &[2, 1]), [1., 1., 1., 2., 3., 3.]);
    assert_eq!(pad("reflect", &[2, 2]), [3., 2., 1., 2., 3., 2., 1.]);
    assert_eq!(pad("wrap", &[1, 2]), [3., 1., 2., 3., 1., 2.]);
}

#[test]
fn choosing() {
    let y = call("NonZero", &[], &[&f(&[2, 2], &[1., 0., 0., 3.])]);
    assert_eq!(y[0], i(&[2, 2], &[0, 1, 0, 1]));
    let c = Tensor::from_bytes(DType::Bool, &[2], vec![0, 1]).unwrap();
    let y = call(
        "Compress",
        &[("axis", Attr::Int(0))],
        &[&f(&[3, 2], &count(6)), &c],
    );
    assert_eq!(y[0], f(&[1, 2], &[2., 3.]));
    let y = call("Unique", &[], &[&f(&[6], &[2., 1., 1., 3., 4., 3.])]);
    assert_eq!(y[0], f(&[4], &[1., 2., 3., 4.]));
    assert_eq!(y[1], i(&[4], &[1, 0, 3, 4]));
    assert_eq!(y[2], i(&[6], &[1, 0, 0, 2, 3, 2]));
    assert_eq!(y[3], i(&[4], &[2, 1, 2, 1]));
    let y = call(
        "Unique",
        &[("sorted", Attr::Int(0))],
        &[&f(&[3], &[2., 1., 2.])],
    );
    assert_eq!(y[0], f(&[2], &[2., 1.]));
    let y = call(
        "TopK",
        &[],
        &[&f(&[1, 4], &[1., 3., f32::NAN, 3.]), &i(&[1], &[3])],
    );
    assert_eq!(y[1], i(&[1, 3], &[2, 1, 3]));
    let y = call(
        "ml.ArrayFeatureExtractor",
        &[],
        &[&f(&[3], &[5., 6., 7.]), &i(&[2], &[2, 0])],
    );
    assert_eq!(y[0], f(&[1, 2], &[7., 5.]));
    let y = call(
        "OneHot",
        &[("axis", Attr::Int(0))],
        &[&i(&[2], &[-1, 5]), &i(&[], &[3]), &f(&[2], &[0., 9.])],
    );
    assert_eq!(y[0], f(&[3, 2], &[0., 0., 0., 0., 9., 0.]));
}

#[test]
fn moving_elements() {
    let x = f(&[2, 2], &[1., 2., 3., 4.]);
    let y = call(
        "GatherElements",
        &[("axis", Attr::Int(1))],
        &[&x, &i(&[2, 2], &[0, 0, -1, 0])],
    );
    assert_eq!(y[0], f(&[2, 2], &[1., 1., 4., 3.]));
    let y = call(
        "ScatterElements",
        &[
            ("axis", Attr::Int(1)),
            ("reduction", Attr::Str("add".into())),
        ],
        &[&x, &i(&[1, 2], &[1, 1]), &f(&[1, 2], &[10., 20.])],
    );
    assert_eq!(y[0], f(&[2, 2], &[1., 32., 3., 4.]));
    let y = call(
        "GatherND",
        &[("batch_dims", Attr::Int(1))],
        &[&x, &i(&[2, 1], &[1, 0])],
    );
    assert_eq!(y[0], f(&[2], &[2., 3.]));
    let y = call(
        "ReverseSequence",
        &[],
        &[&f(&[3, 2], &count(6)), &i(&[2], &[2, 3])],
    );
    assert_eq!(y[0], f(&[3, 2], &[2., 5., 0., 3., 4., 1.]));
    let y = call(
        "CumSum",
        &[("exclusive", Attr::Int(1)), ("reverse", Attr::Int(1))],
        &[&f(&[3], &[1., 2., 3.]), &i(&[], &[0])],
    );
    assert_eq!(y[0], f(&[3], &[5., 3., 0.]));
    // Nibbles move like any other element.
    let mut n = Tensor::zeros(DType::I4, &[3]).unwrap();
    [1, -2, 3]
        .iter()
        .enumerate()
        .for_each(|(k, v)| n.set_i64(k, *v));
    let y = call("Tile", &[], &[&n, &i(&[1], &[2])]);
    assert_eq!(
        (0..6).map(|k| y[0].get_i64(k)).collect::<Vec<_>>(),
        [1, -2, 3, 1, -2, 3]
    );
}

#[test]
fn detection() {
    let boxes = f(
        &[1, 4, 4],
        &[
            0., 0., 1., 1., 0., 0.1, 1., 1.1, 0., 10., 1., 11., 1., 1., 0., 0.,
        ],
    );
    let scores = f(&[1, 1, 4], &[0.9, 0.75, 0.6, 0.95]);
    let y = call(
        "NonMaxSuppression",
        &[],
        &[
            &boxes,
            &scores,
            &i(&[1], &[3]),
            &f(&[1], &[0.5]),
            &f(&[1], &[0.0]),
        ],
    );
    assert_eq!(y[0], i(&[2, 3], &[0, 0, 3, 0, 0, 2]));
    let x = f(&[1, 1, 4, 4], &count(16));
    // One bin over the inner 2x2 square: the mean of samples at its quarters.
    let y = call(
        "RoiAlign",
        &[
            ("output_height", Attr::Int(1)),
            ("output_width", Attr::Int(1)),
            ("sampling_ratio", Attr::Int(2)),
        ],
        &[&x, &f(&[1, 4], &[1., 1., 3., 3.]), &i(&[1], &[0])],
    );
    assert_eq!(y[0], f(&[1, 1, 1, 1], &[7.5]));
    let y = call(
        "MaxPool",
        &[
            ("kernel_shape", Attr::Ints(vec![2, 2])),
            ("strides", Attr::Ints(vec![2, 2])),
        ],
        &[&x],
    );
    assert_eq!(y[0], f(&[1, 1, 2, 2], &[5., 7., 13., 15.]));
    assert_eq!(y[1], i(&[1, 1, 2, 2], &[5, 7, 13, 15]));
    let y = call(
        "MaxPool",
        &[
            ("kernel_shape", Attr::Ints(vec![2, 2])),
            ("strides", Attr::Ints(vec![2, 2])),
            ("storage_order", Attr::Int(1)),
        ],
        &[&x],
    );
    assert_eq!(y[1], i(&[1, 1, 2, 2], &[5, 13, 7, 15]));
    // The identity grid with aligned corners gives the image back.
    let mut g = Vec::new();
    for r in 0..4 {
        for c in 0..4 {
            g.extend([c as f32 / 1.5 - 1.0, r as f32 / 1.5 - 1.0]);
        }
    }
    for mode in ["linear", "cubic", "nearest"] {
        let y = call(
            "GridSample",
            &[
                ("align_corners", Attr::Int(1)),
                ("mode", Attr::Str(mode.into())),
                ("padding_mode", Attr::Str("border".into())),
            ],
            &[&x, &f(&[1, 4, 4, 2], &g)],
        );
        for (a, b) in y[0].to_f32().unwrap().iter().zip(count(16)) {
            assert!((a - b).abs() < 1e-5, "{mode}: {a} {b}");
        }
    }
}

#[test]
fn outrageous_sizes_are_errors() {
    let big = i(&[2], &[1 << 40, 1 << 40]);
    let attrs = Attrs::new();
    let none = run("ConstantOfShape", &attrs, &[Some(&big)])
        .unwrap_err()
        .to_string();
    assert!(none.contains("ConstantOfShape"), "{none}");
    let x = f(&[1], &[1.0]);
    assert!(run("Expand", &attrs, &[Some(&x), Some(&big)]).is_err());
    assert!(run("Tile", &attrs, &[Some(&x), Some(&i(&[1], &[1 << 50]))]).is_err());
    assert!(
        run(
            "Pad",
            &attrs,
            &[Some(&x), Some(&i(&[2], &[1 << 60, 1 << 62]))]
        )
        .is_err()
    );
    assert!(
        run(
            "Range",
            &attrs,
            &[
                Some(&i(&[], &[i64::MIN])),
                Some(&i(&[], &[i64::MAX])),
                Some(&i(&[], &[1]))
            ]
        )
        .is_err()
    );
    assert!(
        run(
            "OneHot",
            &attrs,
            &[
                Some(&i(&[1], &[0])),
                Some(&i(&[], &[1 << 50])),
                Some(&f(&[2], &[0., 1.]))
            ]
        )
        .is_err()
    );
    let one = i(&[1], &[9]);
    assert!(run("GatherElements", &attrs, &[Some(&x), Some(&one)]).is_err());
    assert!(run("GatherND", &attrs, &[Some(&x), Some(&one)]).is_err());
    let bad = |name: &str, n: i64| {
        run(
            name,
            &Attrs::from([("axis".to_string(), Attr::Int(n))]),
            &[Some(&x), Some(&one), Some(&x)],
        )
    };
    for name in [
        "GatherElements",
        "ScatterElements",
        "Compress",
        "Unique",
        "TopK",
        "OneHot",
    ] {
        assert!(
            bad(name, 7).is_err() && bad(name, i64::MIN).is_err(),
            "{name}"
        );
    }
}

#[test]
fn inputs_that_are_left_out() {
    // As import writes it: only the inputs that are there, and which those are.
    let x = f(&[1, 1, 2, 2], &[1., 2., 3., 4.]);
    let present = ("present", Attr::Ints(vec![1, 0, 0, 1]));
    let y = call(
        "Resize",
        std::slice::from_ref(&present),
        &[&x, &i(&[4], &[1, 1, 4, 2])],
    );
    assert_eq!(y[0], f(&[1, 1, 4, 2], &[1., 2., 1., 2., 3., 4., 3., 4.]));
    let attrs = Attrs::from([(present.0.to_string(), present.1)]);
    assert!(run("Resize", &attrs, &[Some(&x)]).is_err());
    let old = [
        ("opset", Attr::Int(10)),
        ("mode", Attr::Str("nearest".into())),
    ];
    let y = call("Resize", &old, &[&x, &f(&[4], &[1., 1., 1., 2.])]);
    assert_eq!(y[0], f(&[1, 1, 2, 4], &[1., 1., 2., 2., 3., 3., 4., 4.]));
}

#[test]
fn small_operators() {
    let y = call(
        "Split",
        &[("axis", Attr::Int(1))],
        &[&f(&[1, 3], &[1., 2., 3.]), &i(&[2], &[1, 2])],
    );
    assert_eq!(y, [f(&[1, 1], &[1.]), f(&[1, 2], &[2., 3.])]);
    let y = call(
        "Det",
        &[],
        &[&f(&[2, 2, 2], &[1., 2., 3., 4., 0., 2., 3., 0.])],
    );
    assert_eq!(y[0], f(&[2], &[-2., -6.]));
    let y = call("HannWindow", &[], &[&i(&[], &[4])]);
    assert_eq!(y[0], f(&[4], &[0., 0.5, 1., 0.5]));
}

#[test]
fn classical_models() {
    let x = f(&[2, 2], &[1., 2., 3., 8.]);
    let floats = |v: &[f64]| Attr::Floats(v.to_vec());
    // One tree: column 1 <= 5 gives class 0, else class 1.
    let tree = |kind: &str| {
        vec![
            ("nodes_treeids".to_string(), Attr::Ints(vec![0, 0, 0])),
            ("nodes_nodeids".into(), Attr::Ints(vec![0, 1, 2])),
            ("nodes_featureids".into(), Attr::Ints(vec![1, 0, 0])),
            ("nodes_values".into(), floats(&[5., 0., 0.])),
            (
                "nodes_modes".into(),
                Attr::Strs(["BRANCH_LEQ", "LEAF", "LEAF"].map(String::from).to_vec()),
            ),
            ("nodes_truenodeids".into(), Attr::Ints(vec![1, 0, 0])),
            ("nodes_falsenodeids".into(), Attr::Ints(vec![2, 0, 0])),
            (format!("{kind}_treeids"), Attr::Ints(vec![0, 0])),
            (format!("{kind}_nodeids"), Attr::Ints(vec![1, 2])),
        ]
    };
    let mut attrs: Attrs = tree("class").into_iter().collect();
    attrs.insert("class_ids".into(), Attr::Ints(vec![0, 1]));
    attrs.insert("class_weights".into(), floats(&[1., 1.]));
    attrs.insert("classlabels_int64s".into(), Attr::Ints(vec![3, 4]));
    let y = run("ml.TreeEnsembleClassifier", &attrs, &[Some(&x)]).unwrap();
    assert_eq!(y[0], i(&[2], &[3, 4]));
    assert_eq!(y[1], f(&[2, 2], &[1., 0., 0., 1.]));
    let mut attrs: Attrs = tree("target").into_iter().collect();
    attrs.insert("target_ids".into(), Attr::Ints(vec![0, 0]));
    attrs.insert("target_weights".into(), floats(&[10., 20.]));
    attrs.insert("base_values".into(), floats(&[0.5]));
    let y = run("ml.TreeEnsembleRegressor", &attrs, &[Some(&x)]).unwrap();
    assert_eq!(y[0], f(&[2, 1], &[10.5, 20.5]));
    // A tree that leads back to its root ends in an error.
    attrs.insert(
        "nodes_modes".into(),
        Attr::Strs(vec!["BRANCH_LEQ".into(); 3]),
    );
    assert!(run("ml.TreeEnsembleRegressor", &attrs, &[Some(&x)]).is_err());
}

#[test]
fn parameters_out_of_range_are_refused() {
    let x = f(&[1, 4], &count(4));
    let i32s = |v: &[i32]| Tensor::from_i32(&[v.len()], v).unwrap();
    let text = |s: &str| Attr::Str(s.into());
    let refused = |name: &str, attrs: &[(&str, Attr)], inputs: &[Option<&Tensor>], part: &str| {
        let attrs: Attrs = attrs
            .iter()
            .map(|(n, a)| (n.to_string(), a.clone()))
            .collect();
        let e = run(name, &attrs, inputs).unwrap_err().to_string();
        assert!(e.contains(part), "{name}: {e}");
    };
    for scale in [f32::NAN, 0.0, -1.0, f32::INFINITY] {
        let scales = f(&[2], &[1.0, scale]);
        let by = [Some(&x), None, Some(&scales)];
        refused("Resize", &[], &by, "is not positive");
    }
    let limit = i(&[], &[7]);
    for length in [-1, 8] {
        let lengths = i32s(&[7, length]);
        refused(
            "Lengths",
            &[],
            &[Some(&lengths), Some(&limit)],
            "is outside 0 to 7",
        );
    }
    assert_eq!(
        call("Lengths", &[], &[&i32s(&[0, 7]), &limit])[0],
        i32s(&[0, 7])
    );
    for (mode, extent, pads, least) in [
        ("reflect", 4, [0, 0, 0, 4], "5 or more"),
        ("reflect", 4, [0, 4, 0, 0], "5 or more"),
        ("reflect", 4, [0, -2, 0, 2], "3 or more"),
        ("edge", 0, [0, 1, 0, 0], "1 or more"),
        ("wrap", 0, [0, 0, 0, 1], "1 or more"),
    ] {
        let (x, pads) = (f(&[1, extent], &count(extent)), i(&[4], &pads));
        refused(
            "Pad",
            &[("mode", text(mode))],
            &[Some(&x), Some(&pads)],
            least,
        );
    }
    let nan = f(&[], &[f32::NAN]);
    refused("Range", &[], &[Some(&nan); 3], "has no length");
}

#[cfg(feature = "fft")]
#[test]
fn transforms_of_any_length_are_by_definition() {
    for n in [1, 2, 3, 5, 8, 97, 360, 509] {
        let x: Vec<f32> = (0..n).map(|k| ((k * k + 3) % 11) as f32 - 5.0).collect();
        let y = call("DFT", &[], &[&f(&[1, n, 1], &x)]);
        assert_eq!(y[0].shape(), [1, n, 2]);
        for k in 0..n {
            let turn = |t: usize| std::f64::consts::TAU * ((k * t) % n) as f64 / n as f64;
            let parts = x.iter().enumerate().map(|(t, v)| (f64::from(*v), turn(t)));
            let (re, im) = parts.fold((0.0, 0.0), |(re, im), (v, a)| {
                (re + v * a.cos(), im - v * a.sin())
            });
            let (a, b) = (y[0].get_f64(2 * k), y[0].get_f64(2 * k + 1));
            assert!(
                (a - re).abs() < 1e-3 && (b - im).abs() < 1e-3,
                "{n}: bin {k} is {a} {b}, not {re} {im}"
            );
        }
    }
}

/// A picture of 2 x 1 pixels as PPM.
#[cfg(feature = "pictures")]
#[test]
fn pictures_are_decoded_and_large_ones_refused() {
    let file = |text: &[u8]| Tensor::from_bytes(DType::U8, &[text.len()], text.to_vec()).unwrap();
    let ppm = file(b"P6 2 1 255\n\x01\x02\x03\xff\x80\x00");
    let decode = |format: &str| {
        call(
            "ImageDecoder",
            &[("pixel_format", Attr::Str(format.into()))],
            &[&ppm],
        )
    };
    assert_eq!(decode("RGB")[0].bytes(), [1, 2, 3, 255, 128, 0]);
    assert_eq!(decode("BGR")[0].bytes(), [3, 2, 1, 0, 128, 255]);
    assert_eq!(decode("Grayscale")[0].bytes(), [2, 151]);
    for (text, part) in [
        (&b"P6 100000 100000 255\n"[..], "at most 1073741824"),
        (b"P6 20 20 255\nshort", "cannot be decoded"),
        (b"", "cannot be decoded"),
    ] {
        let e = run("ImageDecoder", &Attrs::new(), &[Some(&file(text))])
            .unwrap_err()
            .to_string();
        assert!(e.contains(part), "{e}");
    }
}

#[test]
fn every_operator_has_a_reason() {
    for name in shopfloor_hostops::host_names() {
        assert!(!shopfloor_hostops::reason(name).is_empty(), "{name}");
    }
    assert_eq!(shopfloor_hostops::reason("Add"), "");
}

/// A map of keys to values.
fn map(keys: &[i64], values: Tensor) -> Tensor {
    Tensor::from_host_value(HostValue::Map {
        keys: Box::new(i(&[keys.len()], keys)),
        values: Box::new(values),
    })
}

#[test]
fn maps_are_cast_as_by_onnxruntime() {
    let cast = |to: &str, form: &[(&str, Attr)], m: &Tensor| {
        let attrs = [&[("cast_to", Attr::Str(to.into()))], form].concat();
        let attrs: Attrs = attrs
            .iter()
            .map(|(n, a)| (n.to_string(), a.clone()))
            .collect();
        run("ml.CastMap", &attrs, &[Some(m)]).map(|all| all[0].clone())
    };
    let sparse = |count| {
        [
            ("map_form", Attr::Str("SPARSE".into())),
            ("max_map", Attr::Int(count)),
        ]
    };
    let m = map(&[3, -1, 2], f(&[3], &[1.7, -2.5, 1e-7]));
    assert_eq!(
        cast("TO_FLOAT", &[], &m).unwrap(),
        f(&[1, 3], &[-2.5, 1e-7, 1.7])
    );
    assert_eq!(cast("TO_INT64", &[], &m).unwrap(), i(&[1, 3], &[-2, 0, 1]));
    let texts = cast("TO_STRING", &[], &m).unwrap();
    assert_eq!(texts.text().unwrap(), ["-2.500000", "0.000000", "1.700000"]);
    let e = cast("TO_FLOAT", &sparse(4), &m).unwrap_err().to_string();
    assert!(e.contains("key -1"), "{e}");
    let m = map(&[3, 1], f(&[2], &[1.5, 2.5]));
    assert_eq!(
        cast("TO_FLOAT", &sparse(5), &m).unwrap(),
        f(&[1, 5], &[0.0, 2.5, 0.0, 1.5, 0.0])
    );
    assert_eq!(
        cast("TO_INT64", &sparse(2), &m).unwrap(),
        i(&[1, 2], &[0, 2])
    );
    let texts = cast("TO_STRING", &sparse(2), &m).unwrap();
    assert_eq!(texts.text().unwrap(), ["0.f", "2.500000"]);
    assert!(cast("TO_FLOAT", &sparse(i64::MAX), &m).is_err());
    let m = map(
        &[2, 1],
        Tensor::from_text(&[2], vec!["3.5".into(), "4".into()]).unwrap(),
    );
    assert_eq!(cast("TO_FLOAT", &[], &m).unwrap(), f(&[1, 2], &[4.0, 3.5]));
    assert_eq!(
        cast("TO_STRING", &sparse(3), &m).unwrap().text().unwrap(),
        ["0.f", "4", "3.5"]
    );
    let m = map(&[1], Tensor::from_text(&[1], vec!["x".into()]).unwrap());
    assert!(
        cast("TO_INT64", &[], &m)
            .unwrap_err()
            .to_string()
            .contains("'x'")
    );
    let none = map(&[], f(&[0], &[]));
    assert_eq!(cast("TO_FLOAT", &[], &none).unwrap().shape(), [1, 0]);
}
