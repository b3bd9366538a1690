//! Kernels as text: those written by hand run, and bad ones are refused.
use shopfloor::{DType, Dim, DimBox, Model, ModelOptions, Session, Tensor, inputs};

pub const MEAN: &str = "
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

fn over(text: &str, window: i64) -> Result<Model, shopfloor::Error> {
    let x = vec![Dim::sym("sensors"), Dim::sym("window")];
    let mut options = ModelOptions::default();
    options.dims.insert("window", 1, window);
    Model::from_kernel(text, &[("x", x)], &options)
}

#[test]
fn positions_that_write_one_element_are_refused_before_there_is_a_plan() {
    // A request of 4 x 6 would be one task.
    let e = of(RACE).unwrap_err().to_string();
    for part in [
        "'diagonals'",
        "positions along 'r'",
        "operand 'y'",
        "stride",
    ] {
        assert!(e.contains(part), "'{part}' is not in: {e}");
    }
    assert!(!e.contains('\n'), "{e}");
    // Each in a place of its own, in either order.
    of(&RACE.replace("y f32 = r*(1)", "y f32 = r*(window)")).unwrap();
    of(&RACE.replace("y f32 = r*(1) + c*(1)", "y f32 = r*(1) + c*(sensors)")).unwrap();
    // Rows of 64 are long enough for some sizes, and may be said to be only those.
    let padded = RACE.replace(
        "y f32 = r*(1) + c*(1)",
        "y f32 = r*(64) + c*(1) of sensors*64",
    );
    let e = of(&padded).unwrap_err().to_string();
    assert!(e.contains("positions along"), "{e}");
    assert!(over(&padded, 65).is_err());
    over(&padded, 64).unwrap();
}

#[test]
fn tasks_that_write_one_element_are_refused_by_the_verifier() {
    let mut dims = DimBox::new();
    dims.insert("sensors", 1, 4096);
    dims.insert("window", 1, 4096);
    // Registered for rows of one element, and planned for longer ones.
    let model = over(RACE, 1).unwrap();
    let session = Session::builder().with_threads(2).commit(model).unwrap();
    let plan = session.plan(&dims).unwrap();
    let e = plan.verify().map(drop).unwrap_err().to_string();
    let what = "tasks may write the same elements of operand 'y'";
    assert!(e.contains("race") && e.contains(what), "{e}");
}
