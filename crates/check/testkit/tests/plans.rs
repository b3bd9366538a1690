//! Plans of real models: the same in every process, read back equal, refused when changed.
use shopfloor::{DimBox, Session};
use std::process::Command;
use testkit::zoo;

const MODELS: &[&str] = &["digits_cnn", "ppocr_rec", "magika"];

/// Plan of a bundled model as text, with every symbol at one value.
fn plan_text(name: &str) -> String {
    let model = zoo::find(name).expect("the model is bundled");
    let prepared = model.prepare_temporary().expect("model");
    let session = Session::builder()
        .with_threads(2)
        .commit_from_file(&prepared.model)
        .expect("session");
    let inputs = model.inputs().expect("inputs");
    let mut dims = DimBox::new();
    for s in &session.model().program().symbols {
        if let plan::SymbolOrigin::Input { input, axis } = s.origin {
            let v = session
                .model()
                .program()
                .value(session.model().program().inputs[input as usize]);
            let (_, t) = inputs.iter().find(|(n, _)| *n == v.name).expect("input");
            let n = t.shape()[axis as usize] as i64;
            dims.insert(s.name.clone(), n, n);
        }
    }
    session.plan(&dims).expect("plan").to_json().expect("JSON")
}

#[test]
fn same_bytes_in_every_process() {
    // The child prints its plans' hashes; hash seeds, addresses and clocks differ there.
    let hashes = || {
        MODELS
            .iter()
            .map(|m| blake3::hash(plan_text(m).as_bytes()).to_hex().to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    if std::env::var_os("SHOPFLOOR_PLAN_CHILD").is_some() {
        println!("plans: {}", hashes());
        return;
    }
    let out = Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "plans::same_bytes_in_every_process",
            "--nocapture",
        ])
        .env("SHOPFLOOR_PLAN_CHILD", "1")
        .output()
        .expect("child");
    let text = String::from_utf8_lossy(&out.stdout);
    let child = text
        .lines()
        .find_map(|l| l.split("plans: ").nth(1))
        .expect("the child's hashes");
    assert_eq!(child, hashes());
}

#[test]
fn plans_read_back_and_verify() {
    for m in MODELS {
        let text = plan_text(m);
        let plan = plan::Plan::from_json(&text).expect("the plan reads back");
        assert_eq!(plan.to_json().expect("JSON"), text);
        plan.verify().expect("the plan verifies");
    }
}

#[test]
fn only_host_steps_have_no_tile_program() {
    for m in MODELS {
        let plan = plan::Plan::from_json(&plan_text(m))
            .expect("plan")
            .verify()
            .expect("valid");
        for (b, block) in plan.plan().blocks().enumerate() {
            for (step, program) in block.steps.iter().zip(plan.step_programs(b)) {
                let host = matches!(step.work, plan::StepWork::Host { .. });
                assert_eq!(host, program.is_none(), "{m}: step '{}'", step.name);
            }
            for (step, program) in block.init.iter().zip(plan.init_programs(b)) {
                assert!(program.is_some(), "{m}: init step '{}'", step.name);
            }
        }
    }
}

#[test]
fn changed_plan_files_are_refused_or_harmless() {
    let share = testing::Share::of_run(9);
    println!("{share}");
    // Digits of a real plan are changed one at a time: each change is refused with a sentence, or
    // leaves a plan that keeps every rule. None may panic.
    let text = plan_text("digits_cnn");
    let digits: Vec<usize> = text
        .char_indices()
        .filter(|(_, c)| c.is_ascii_digit())
        .map(|(i, _)| i)
        .collect();
    let (mut refused, mut kept) = (0, 0);
    for (k, &at) in digits
        .iter()
        .enumerate()
        .skip(share.number as usize)
        .step_by(share.of as usize * (digits.len() / 600 + 1))
    {
        let mut bytes = text.clone().into_bytes();
        bytes[at] = b'0' + (bytes[at] - b'0' + 1 + (k % 8) as u8) % 10;
        let changed = String::from_utf8(bytes).expect("still text");
        // A change that the reader does not see is none.
        if let Ok(p) = plan::Plan::from_json(&changed) {
            assert_eq!(p.to_json().expect("JSON"), text, "at {at}");
        }
        match plan::Plan::from_json_unchecked(&changed)
            .map_err(|e| e.to_string())
            .and_then(|p| p.verify().map_err(|e| e.to_string()))
        {
            Ok(_) => kept += 1,
            Err(e) => {
                assert!(!e.is_empty());
                refused += 1;
            }
        }
    }
    println!("{refused} changed plans refused, {kept} still valid");
    assert!(refused > 0);
}

#[test]
fn plans_of_another_model_are_refused() {
    let model = zoo::find("digits_cnn").expect("the model is bundled");
    let prepared = model.prepare_temporary().expect("model");
    let session = Session::builder()
        .with_threads(1)
        .commit_from_file(&prepared.model)
        .expect("session");
    let changes: [fn(&mut plan::Port); 2] = [|p| p.value = 9999, |p| p.dtype = layout::DType::U32];
    for change in changes {
        let mut p = plan::Plan::from_json(&plan_text("digits_cnn")).expect("a plan");
        let Some(plan::PlanSegment::Block(b)) = p.segments.first_mut() else {
            panic!("digits_cnn is one block");
        };
        for i in 0..b.inputs.len() {
            change(&mut b.inputs[i]);
            let buffer = b.inputs[i].buffer as usize;
            b.buffers[buffer].dtype = b.inputs[i].dtype;
        }
        let refused = session
            .runtime()
            .swap(p)
            .expect_err("it is of another model");
        let text = refused.to_string();
        assert!(
            text.contains("the model has") || text.contains("operand"),
            "{text}"
        );
    }
}

/// How planning grows with the number of nodes is measured by `cargo xtask scale`.
#[test]
fn models_of_many_nodes_are_planned() {
    if !testing::turn("models_of_many_nodes_are_planned") {
        return;
    }
    for kind in testkit::scale::KINDS {
        let nodes = match kind.name {
            "relu" | "matmul" | "one-name" | "diamonds" => 4_000,
            "made-and-joined" => 600,
            "branches" => 256,
            _ => 100,
        };
        let folder = tempfile::tempdir().expect("a folder");
        let cost = testkit::scale::cost(&(kind.file)(nodes), folder.path());
        cost.unwrap_or_else(|e| panic!("{}: {e}", kind.name));
    }
}

#[test]
fn a_plan_runs_its_own_program_and_no_other() {
    let session = |text: &str| {
        let model = shopfloor_tools::op_model(text).expect("an operator");
        let builder = Session::builder().with_threads(1);
        builder.commit(model).expect("session")
    };
    let (exp, other) = (session("map:64:f32:exp"), session("map:64:f32:sqrt"));
    let plan = exp.plan(&DimBox::new()).expect("a plan");
    let refused = other.swap_plan(plan.clone()).expect_err("of another");
    let text = refused.to_string();
    assert!(
        text.contains("rule program") && text.contains("make the plan anew"),
        "{text}"
    );
    // Its own takes it, also under another name.
    let named = plan::Plan {
        model: "renamed".into(),
        ..plan.clone()
    };
    session("map:64:f32:exp").swap_plan(named).expect("its own");
    exp.swap_plan(plan).expect("its own");
}
