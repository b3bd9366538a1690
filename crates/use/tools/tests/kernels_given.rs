//! Kernels whose text says how they run: schedules that are taken or left, and PTX of their own.
//! `SHOPFLOOR_SEED` draws other sizes and values.
use shopfloor::{Dim, DimBox, Launch, Model, ModelOptions, Plan, Session, Tensor, inputs};
use shopfloor_tools::emitted::kernel_text;

const MEAN: &str = "
    kernel window_mean (row)
    space  s: sensors  w: window
    read   x f32 = s*(window) + w*(1)
    write  mean f32 = s*(1)
    v : f32 [s,w] = load x
    sum : f32 [s] = 0
    sum = fold sum of v over w
    m : f32 [s] = sum/f32({window})
    store mean = m
";

/// One thread per sensor.
const PTX: &str = "
    ptx window_mean
    grid  ceildiv(sensors, 64)
    threads  64
    sizes  sensors, window
    text
// One thread per sensor: a comment with .entry other() in it.
.version 7.0
.target sm_75
.address_size 64
.visible .entry window_mean(
    .param .u64 x, .param .u64 mean,
    .param .s64 sensors, .param .s64 window
)
{
    .reg .pred %p<3>;
    .reg .b32 %r<5>;
    .reg .f32 %f<4>;
    .reg .b64 %d<10>;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [mean];
    ld.param.s64 %d3, [sensors];
    ld.param.s64 %d4, [window];
    cvta.to.global.u64 %d1, %d1;
    cvta.to.global.u64 %d2, %d2;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    cvt.u64.u32 %d5, %r4;
    setp.ge.s64 %p1, %d5, %d3;
    @%p1 bra $L_end;
    mul.lo.s64 %d6, %d5, %d4;
    shl.b64 %d6, %d6, 2;
    add.s64 %d1, %d1, %d6;
    mov.f32 %f1, 0f00000000;
    mov.u64 %d7, 0;
$L_next:
    setp.ge.s64 %p2, %d7, %d4;
    @%p2 bra $L_done;
    ld.global.f32 %f2, [%d1];
    add.rn.f32 %f1, %f1, %f2;
    add.s64 %d1, %d1, 4;
    add.s64 %d7, %d7, 1;
    bra $L_next;
$L_done:
    cvt.rn.f32.s64 %f3, %d4;
    div.rn.f32 %f1, %f1, %f3;
    shl.b64 %d8, %d5, 2;
    add.s64 %d2, %d2, %d8;
    st.global.f32 [%d2], %f1;
$L_end:
    ret;
}
    end
";

fn of(text: &str) -> Result<Model, shopfloor::Error> {
    let x = vec![Dim::sym("sensors"), Dim::sym("window")];
    Model::from_kernel(text, &[("x", x)], &ModelOptions::default())
}

fn session(text: &str, device: &str) -> Session {
    launched(text, device, Launch::Steps)
}

fn launched(text: &str, device: &str, launch: Launch) -> Session {
    Session::builder()
        .with_device(device)
        .with_launch(launch)
        .with_dim("sensors", 1, 200)
        .with_dim("window", 1, 64)
        .commit(of(text).unwrap())
        .unwrap()
}

fn plan(session: &Session) -> Plan {
    let mut dims = DimBox::new();
    dims.insert("sensors", 1, 200);
    dims.insert("window", 1, 64);
    session.plan(&dims).unwrap()
}

/// Numbers of a generator.
struct Draw(fastrand::Rng);

impl Draw {
    fn new() -> Draw {
        let seed = std::env::var("SHOPFLOOR_SEED").ok();
        let seed = seed.and_then(|s| s.parse().ok()).unwrap_or(11);
        println!("SHOPFLOOR_SEED={seed}");
        Draw(fastrand::Rng::with_seed(seed))
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0.u64(..n)
    }
}

/// Means of drawn windows, against sums in f64.
fn check(session: &Session) {
    let mut draw = Draw::new();
    for _ in 0..4 {
        let (sensors, window) = (1 + draw.below(200) as usize, 1 + draw.below(64) as usize);
        let values: Vec<f32> = (0..sensors * window)
            .map(|_| draw.below(1000) as f32 / 100.0 - 5.0)
            .collect();
        let x = Tensor::from_f32(&[sensors, window], &values).unwrap();
        let out = session.run(inputs!["x" => &x]).unwrap();
        let got = out["mean"].to_f32().unwrap();
        assert_eq!(got.len(), sensors);
        for (s, g) in got.iter().enumerate() {
            let row = &values[s * window..(s + 1) * window];
            let want = row.iter().map(|&v| f64::from(v)).sum::<f64>() / window as f64;
            let off = (f64::from(*g) - want).abs();
            assert!(off < 1e-4, "{sensors}x{window}, sensor {s}: {g} {want}");
        }
    }
}

/// Choice and reason of the whys about the kernel's schedule.
fn said(plan: &Plan) -> Vec<String> {
    let all = plan.whys.iter().filter(|w| w.pass == "schedule");
    all.map(|w| format!("{}: {}", w.choice, w.reason)).collect()
}

/// The mapping that the plan's only step runs with, as the text says it.
#[cfg(feature = "cuda")]
fn mapping(plan: &Plan) -> String {
    let text = kernel_text(plan, "0").unwrap();
    let line = text.lines().find(|l| l.trim().starts_with("mapping"));
    line.expect("a mapping").trim().to_string()
}

const CPU: &str = "
    schedule
    grid  s by 3, chunk 2
    mapping  rows by vectors, rows s, lanes w
    in place  v, m
";

#[test]
fn a_schedule_in_the_text_is_taken_where_it_is_legal() {
    let session = session(&format!("{MEAN}{CPU}"), "cpu");
    check(&session);
    let plan = plan(&session);
    let text = kernel_text(&plan, "0").unwrap();
    for line in [
        "grid  s by 3, chunk 2, raster 1",
        "mapping  rows by vectors, rows s, lanes w",
        "in place  v, m",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    let said = said(&plan);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("as the kernel's text says: predicted "));
}

#[test]
fn what_the_planner_chose_is_given_back_as_a_text_and_taken() {
    let first = plan(&session(MEAN, "cpu"));
    let text = kernel_text(&first, "0").unwrap();
    let session = session(&text, "cpu");
    check(&session);
    let second = plan(&session);
    assert_eq!(kernel_text(&second, "0").unwrap(), text);
    assert!(said(&second)[0].starts_with("as the kernel's text says"));
}

#[test]
fn a_schedule_that_is_not_legal_there_is_left_and_the_plan_says_why() {
    let strange = "
    schedule
    grid  s by 3
    mapping  micro-kernel 7x13, rows s, lanes w
";
    let other = session(&format!("{MEAN}{strange}"), "cpu");
    check(&other);
    let all = said(&plan(&other));
    assert!(
        all[0].starts_with("the planner's own: ") && all[0].contains("no micro-kernel 7x13"),
        "{all:?}"
    );
    // One that breaks a rule on every device is refused when it is registered.
    let broken = CPU.replace("grid  s by 3", "grid  w by 3");
    let e = of(&format!("{MEAN}{broken}")).unwrap_err().to_string();
    assert!(e.contains("rule grid") && e.contains("'w'"), "{e}");
    let unread = CPU.replace("s by 3", "q by 3");
    let e = of(&format!("{MEAN}{unread}")).unwrap_err().to_string();
    assert!(e.contains("line 13") && e.contains("'q'"), "{e}");
}

#[test]
fn ptx_that_does_not_fit_its_kernel_is_refused_when_it_is_registered() {
    for (from, to, parts) in [
        (
            "ptx window_mean",
            "ptx mean",
            vec!["no entry 'mean'", "window_mean"],
        ),
        (
            "sizes  sensors, window",
            "sizes  sensors",
            vec!["4 parameters", "2 addresses (x, mean) and 1 sizes"],
        ),
        (
            ".param .s64 window",
            ".param .u32 window",
            vec!["parameter 3", "8 bytes", ".s64"],
        ),
        (".version 7.0", "", vec![".version"]),
        (
            "sizes  sensors, window",
            "sizes  sensors, other",
            vec!["'other'"],
        ),
        ("threads  64", "", vec!["'threads'"]),
    ] {
        let text = format!("{MEAN}{}", PTX.replace(from, to));
        let e = of(&text).expect_err(to).to_string();
        for p in &parts {
            assert!(e.contains(p), "'{p}' is not in: {e}");
        }
        assert!(!e.contains('\n'), "{e}");
    }
}

#[test]
fn a_cpu_runs_what_the_ptx_is_said_to_compute() {
    let session = session(&format!("{MEAN}{PTX}"), "cpu");
    check(&session);
    assert!(said(&plan(&session)).iter().all(|w| !w.contains("PTX")));
}

#[cfg(feature = "cuda")]
#[test]
fn a_schedule_for_a_gpu_is_taken_there_and_the_other_one_on_the_cpu() {
    let gpu = kernel_text(&plan(&session(MEAN, "emulated:t4")), "0").unwrap();
    assert!(gpu.contains("mapping  cta "), "{gpu}");
    let text = format!("{gpu}{CPU}");
    for (device, start) in [
        ("cpu", "mapping  rows by"),
        ("emulated:t4", "mapping  cta "),
    ] {
        let session = session(&text, device);
        check(&session);
        let plan = plan(&session);
        assert!(mapping(&plan).starts_with(start), "{device}");
        assert!(said(&plan)[0].starts_with("as the kernel's text says"));
    }
    // More threads than it may have.
    let most = gpu.lines().find(|l| l.contains("cta ")).unwrap();
    let text = gpu.replace(
        most,
        "mapping  cta 1024 threads, warps 32x1, rows s, columns , fma, loads of 4 B, 255 registers",
    );
    let session = session(&text, "emulated:t4");
    check(&session);
    let all = said(&plan(&session));
    assert!(
        all[0].starts_with("the planner's own: ") && all[0].contains("ptx-sm_75"),
        "{all:?}"
    );
}

#[cfg(feature = "cuda")]
#[test]
fn ptx_of_its_own_runs_step_by_step_on_a_gpu() {
    use shopfloor_tools::emitted::{emitted, machine, sass};
    // Its mean is one higher than the statements say, so that nothing else can have run.
    let marked = PTX.replace(
        "    shl.b64 %d8, %d5, 2;",
        "    add.rn.f32 %f1, %f1, 0f3F800000;\n    shl.b64 %d8, %d5, 2;",
    );
    let one_higher = session(&format!("{MEAN}{marked}"), "emulated:a100,checks");
    let x = Tensor::from_f32(&[2, 3], &[1.0, 2.0, 6.0, 0.0, 0.0, 0.0]).unwrap();
    let out = one_higher.run(inputs!["x" => &x]).unwrap();
    assert_eq!(out["mean"].to_f32().unwrap().as_slice(), [4.0, 1.0]);

    for (device, launch) in [
        ("emulated:a100,checks", Launch::Steps),
        ("emulated:t4", Launch::Steps),
        ("emulated:a100", Launch::Resident),
    ] {
        let session = launched(&format!("{MEAN}{PTX}"), device, launch);
        check(&session);
        let plan = plan(&session);
        let said = said(&plan);
        let own = said.iter().find(|w| w.contains("entry 'window_mean'"));
        assert!(own.expect("a why").contains("step by step"), "{said:?}");
        // The tile program is there still, and what is printed is the text.
        let e = emitted(&plan, "0", &machine("a100").unwrap()).unwrap();
        assert!(e.program.contains("fold sum of v over w"), "{}", e.program);
        assert!(e.text.contains("One thread per sensor"), "{}", e.text);
        let dir = tempfile::tempdir().unwrap();
        match sass(&e, dir.path()) {
            Ok(code) => assert!(code.contains("window_mean"), "{code}"),
            Err(e) if e.to_string().contains("cannot be started") => {
                testing::skip("nvdisasm: machine code of a given kernel", &e.to_string());
            }
            Err(e) => panic!("{e}"),
        }
    }
}

#[cfg(feature = "cuda")]
#[test]
fn the_step_that_no_kernel_which_stays_can_take_is_named() {
    use shopfloor_tools::{emitted::machine, planview, targets::Planning};
    let model = Model::from_kernel(
        &format!("{MEAN}{PTX}"),
        &[("x", vec![Dim::sym("sensors"), Dim::sym("window")])],
        &ModelOptions::default(),
    );
    let planning = Planning {
        launch: Some(Launch::Resident),
        ..Planning::default()
    };
    let mut dims = DimBox::new();
    dims.insert("sensors", 1, 200);
    dims.insert("window", 1, 64);
    let e = planview::plan_for(&model.unwrap(), &machine("a100").unwrap(), &planning, &dims);
    let e = e.unwrap_err().to_string();
    assert!(
        e.contains("step 0 'window_mean'") && e.contains("--launch steps or graph"),
        "{e}"
    );
    // A device says the same of what it ran by another way.
    let session = launched(&format!("{MEAN}{PTX}"), "emulated:a100", Launch::Resident);
    check(&session);
    let e = planview::took(&session, Launch::Resident)
        .unwrap_err()
        .to_string();
    assert!(e.contains("step 0 'window_mean'"), "{e}");
    planview::took(&session, Launch::Steps).unwrap();
}

/// A plan may come from a file; PTX may not.
#[cfg(feature = "cuda")]
#[test]
fn ptx_that_the_model_was_not_written_with_is_not_run() {
    let session = session(&format!("{MEAN}{PTX}"), "emulated:a100");
    let served = session.runtime().handle().clone();
    served.prepare(plan(&session)).unwrap();
    let mut other = plan(&session);
    let plan::PlanSegment::Block(block) = &mut other.segments[0] else {
        panic!("a block");
    };
    let plan::StepWork::Kernel { schedule, .. } = &mut block.steps[0].work else {
        panic!("a kernel");
    };
    let kernel::Mapping::Gpu(g) = &mut std::sync::Arc::make_mut(schedule).mapping else {
        panic!("for a GPU");
    };
    std::sync::Arc::make_mut(g.code.as_mut().expect("its PTX")).text += "// More.";
    let e = served.prepare(other).map(drop).unwrap_err().to_string();
    assert!(
        e.contains("rule code") || e.contains("was written with"),
        "{e}"
    );
}

#[cfg(feature = "cuda")]
#[test]
fn what_its_ptx_does_wrong_on_a_gpu_is_an_error_of_the_request() {
    // Ten sensors too far.
    let wild = PTX.replace(
        "setp.ge.s64 %p1, %d5, %d3;",
        "setp.ge.s64 %p1, %d5, 1000000;",
    );
    let session = session(&format!("{MEAN}{wild}"), "emulated:a100,checks");
    let x = Tensor::from_f32(&[190, 64], &vec![1.0; 190 * 64]).unwrap();
    let e = session.run(inputs!["x" => &x]).unwrap_err().to_string();
    assert!(e.contains("window_mean"), "{e}");
}
