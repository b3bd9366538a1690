//! Kernels as text: those of plans are read back, those written by hand run, and bad ones are refused.
use kernel::{Kernel, Stmt};
use plan::{ItemWork, Program, Segment};
use shopfloor::{DType, Dim, DimBox, Model, ModelOptions, Session, Tensor, inputs};
use std::path::{Path, PathBuf};

fn bundled(model: &str) -> PathBuf {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    models.join(model).join("model.onnx")
}

/// `k` as a text gives it: programs in their order, and nothing of what has no meaning (the value outside
/// bounds that there are none of, the extent of a stride that is not taken apart).
fn ordered(k: &Kernel) -> Kernel {
    let mut k = k.clone();
    for s in &mut k.body {
        if let Stmt::Map { expr, .. } = s {
            *expr = expr.in_order();
        }
    }
    for o in &mut k.operands {
        if o.access.bounds.is_empty() {
            o.access.outside = 0.0;
        }
        for t in &mut o.access.terms {
            if let [l] = t.leaves.as_mut_slice() {
                l.extent = k.axes[t.axis as usize].extent.clone();
            }
        }
    }
    k
}

fn round_trip(k: &Kernel) {
    let text = k.to_string();
    let back = Kernel::parse(&text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    assert_eq!(ordered(&back), ordered(k), "{text}");
    back.verify().unwrap_or_else(|e| panic!("{e} in\n{text}"));
}

/// Kernels of a program, branches included.
fn kernels(p: &Program, out: &mut Vec<Kernel>) {
    let mut items: Vec<_> = p.init.iter().collect();
    for s in &p.segments {
        match s {
            Segment::Straight(all) => items.extend(all),
            Segment::Late(i) => items.push(i),
            Segment::If {
                then_branch,
                else_branch,
                ..
            } => {
                kernels(then_branch, out);
                kernels(else_branch, out);
            }
            Segment::Loop { body, .. } => kernels(body, out),
        }
    }
    out.extend(items.iter().filter_map(|i| match &i.work {
        ItemWork::Kernel { kernel, .. } => Some(Kernel::clone(kernel)),
        ItemWork::Host { .. } => None,
    }));
}

#[test]
fn kernels_of_bundled_models_are_read_back() {
    let mut count = 0;
    for name in ["digits_cnn", "magika", "ppocr_cls", "ppocr_rec"] {
        let model = Model::open(bundled(name), &ModelOptions::default()).unwrap();
        let mut all = vec![];
        kernels(model.program(), &mut all);
        all.iter().for_each(round_trip);
        count += all.len();
    }
    assert!(count > 20, "{count}");
}

const MEAN: &str = "
    kernel window_mean (row)
    space  s: sensors  w: window
    read   x f32 = s*(window) + w*(1)
    write  mean f32 = s*(1)
    v : f32 [s,w] = load x
    sum : f32 [s] = 0
    sum = fold sum of v over w
    m : f32 [s] = sum/f32({window})
    store mean = m";

fn of(text: &str) -> Result<Model, shopfloor::Error> {
    let x = vec![Dim::sym("sensors"), Dim::sym("window")];
    Model::from_kernel(text, &[("x", x)], &ModelOptions::default())
}

#[test]
fn a_kernel_written_by_hand_runs_for_any_size() {
    let session = Session::builder()
        .with_threads(2)
        .with_dim("sensors", 1, 64)
        .commit(of(MEAN).unwrap())
        .unwrap();
    for (sensors, window) in [(1, 1), (5, 7), (64, 33)] {
        let values: Vec<f32> = (0..sensors * window).map(|i| (i % 13) as f32).collect();
        let x = Tensor::from_f32(&[sensors, window], &values).unwrap();
        let out = session.run(inputs!["x" => &x]).unwrap();
        let got = out["mean"].to_f32().unwrap();
        for (s, g) in got.iter().enumerate() {
            let row = &values[s * window..(s + 1) * window];
            let want = row.iter().sum::<f32>() / window as f32;
            assert!((g - want).abs() < 1e-5, "{g} {want}");
        }
    }
}

/// The sentence with which a kernel is refused, at the latest when it is run.
fn refused(text: &str) -> String {
    let run = |m: Model| -> Result<(), shopfloor::Error> {
        let session = Session::builder().with_threads(1).commit(m)?;
        let x = Tensor::zeros(DType::F32, &[4, 6])?;
        session.run(inputs!["x" => &x]).map(drop)
    };
    match of(text).and_then(run) {
        Ok(()) => panic!("this ran:\n{text}"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn a_bad_kernel_is_refused_with_a_reason() {
    // Behind the end of what it reads.
    let e = refused(&MEAN.replace("read   x f32 = s*", "read   x f32 = 1 + s*"));
    assert!(e.contains("elements") || e.contains("bound"), "{e}");
    let e = refused(&MEAN.replace("w*(1)", "w*(2) of sensors*window"));
    assert!(e.contains("not proved to stay inside"), "{e}");
    // All sensors' means in one element.
    let e = refused(&MEAN.replace("mean f32 = s*(1)", "mean f32 = 0"));
    assert!(e.contains("rule store"), "{e}");
    // A reduction that begins with nothing, a tile that is not there, a type that is another's.
    let e = refused(&MEAN.replace("    sum : f32 [s] = 0\n", ""));
    assert!(e.contains("'sum'") && e.contains("line 7"), "{e}");
    let e = refused(&MEAN.replace("sum/f32({window})", "sum/{window}"));
    assert!(e.contains("f32") && e.contains("i64"), "{e}");
    // A size that no input gives.
    let e = refused(&MEAN.replace("{window}", "{other}"));
    assert!(e.contains("'other'"), "{e}");
}

/// Element [r, c] goes to r + c: tasks that share out the rows write the same places.
const RACE: &str = "
    kernel diagonals (map)
    space  r: sensors  c: window
    read   x f32 = r*(window) + c*(1)
    write  y f32 = r*(1) + c*(1)
    v : f32 [r,c] = load x
    store y = v";

#[test]
fn tasks_that_write_one_element_are_refused() {
    let session = Session::builder().with_threads(2);
    let plan = |text: &str| {
        let mut dims = DimBox::new();
        dims.insert("sensors", 1, 4096);
        dims.insert("window", 1, 4096);
        let session = session.clone().commit(of(text).unwrap()).unwrap();
        session.plan(&dims).unwrap().verify().map(drop)
    };
    let e = plan(RACE).unwrap_err().to_string();
    let what = "tasks may write the same elements of operand 'y'";
    assert!(e.contains("race") && e.contains(what), "{e}");
    // Each in a place of its own.
    plan(&RACE.replace("y f32 = r*(1)", "y f32 = r*(window)")).unwrap();
}
