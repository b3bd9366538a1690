//! Walks' figures against what they are taken from: the plan, the calculators, the emitter, the emulator.

use shopfloor::{Model, ModelOptions, inputs, machines};
use shopfloor_tools::report::walk::{Picture, Scene, Walk};
use shopfloor_tools::targets::Planning;
use shopfloor_tools::walk::{WalkOptions, tour, walk};
use shopfloor_tools::{calc, emitted, planview, stalls};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../../models/{name}/model.onnx"))
}

#[test]
fn the_bundled_model_is_the_one_among_the_models() {
    let bundled = include_bytes!("../src/walk/two_layers.onnx");
    assert!(bundled[..] == std::fs::read(model("two_layers")).unwrap());
}

fn on(name: &str) -> WalkOptions {
    WalkOptions {
        on: name.into(),
        quick: true,
        ..WalkOptions::default()
    }
}

fn rows(n: i64) -> ModelOptions {
    let mut o = ModelOptions::default();
    o.dims.insert("rows", n, n);
    o
}

fn value(s: &Scene, key: &str) -> f64 {
    let f = s
        .figure(key)
        .unwrap_or_else(|| panic!("{} has no {key}", s.id));
    f.value
        .unwrap_or_else(|| panic!("{key} of {} is no number", s.id))
}

/// The plan that `walk` makes for `machine`.
fn plan_of(m: &Model, machine: &str) -> shopfloor::Plan {
    let machine = machines::find(machine).unwrap();
    let dims = inputs::box_of(m, &inputs::sizes(m).0);
    planview::plan_for(m, &machine, &Planning::default(), &dims).unwrap()
}

#[test]
fn figures_are_those_of_plan_calculators_emitter_and_emulator() {
    if !testing::turn("figures_are_those_of_plan_calculators_emitter_and_emulator") {
        return;
    }
    for (machine, n) in [("a100", 8192), ("h100", 4096), ("t4", 1024)] {
        let w = walk(model("two_layers"), &rows(n), &on(machine)).unwrap();
        let m = Model::open(model("two_layers"), &rows(n)).unwrap();
        let plan = plan_of(&m, machine);
        let gpu = machines::find(machine).unwrap();
        let steps: Vec<_> = plan.blocks().flat_map(|b| &b.steps).collect();
        let step = steps[w.step.number as usize];
        assert_eq!(step.name, w.step.name);
        // The costliest on the machine itself.
        let own = steps
            .iter()
            .filter(|s| s.device == 1 && !s.nodes.is_empty());
        let most = own.map(|s| s.predicted.time_s).fold(0.0, f64::max);
        assert_eq!(step.predicted.time_s, most);
        let bill = w.scene("bill").unwrap();
        assert_eq!(value(bill, "predicted"), step.predicted.time_s);
        let parts = value(bill, "busy") + value(bill, "latency") + value(bill, "fixed");
        assert!((parts / step.predicted.time_s - 1.0).abs() < 1e-9);
        let Picture::Bill { parts, .. } = &bill.picture else {
            panic!()
        };
        let sum: f64 = parts.iter().map(|p| p.us).sum();
        assert!((sum / step.predicted.time_s / 1e6 - 1.0).abs() < 1e-9);
        alternatives(&w, &plan);
        // The code is what `emit` prints.
        let e = emitted::emitted(&plan, &w.step.number.to_string(), &gpu).unwrap();
        let Picture::Code { panes, .. } = &w.scene("code").unwrap().picture else {
            panic!()
        };
        assert_eq!(panes[0].language, "PTX");
        let lines: Vec<&str> = e.text.lines().collect();
        assert_eq!(panes[0].of as usize, lines.len());
        for (a, b) in panes[0].lines.iter().zip(&lines) {
            assert_eq!(a.text, b.replace('\t', "    "));
        }
        let Picture::Code { panes, .. } = &w.scene("program").unwrap().picture else {
            panic!()
        };
        let told: Vec<&str> = panes[0].lines.iter().map(|l| l.text.as_str()).collect();
        assert_eq!(told, e.program.lines().collect::<Vec<_>>());
        // Waves are the prediction's.
        let grid = w.scene("grid").unwrap();
        let work = &step.cost_work;
        let slots = gpu.workers.count.value * work.ctas_per_worker.max(1);
        assert_eq!(value(grid, "tasks") as u64, work.tasks);
        assert_eq!(value(grid, "slots") as u64, slots);
        assert_eq!(value(grid, "waves") as u64, work.tasks.div_ceil(slots));
        // Occupancy is the calculator's.
        let warps = w.scene("warps").unwrap();
        let held = calc::occupancy(
            &gpu.limits,
            calc::Block {
                threads: value(warps, "threads") as u64,
                registers: value(warps, "registers") as u64,
                shared: value(warps, "shared") as u64,
            },
        )
        .unwrap();
        assert_eq!(value(warps, "ctas") as u64, held.ctas);
        assert_eq!(value(warps, "occupancy"), held.share);
        assert_eq!(
            value(warps, "ctas") as u64,
            work.ctas_per_worker,
            "as planned"
        );
        lanes(&w);
        waiting(&w, &plan, &gpu);
        // Bytes are the prediction's.
        let Picture::Levels { levels } = &w.scene("levels").unwrap().picture else {
            panic!()
        };
        for t in levels {
            let i = gpu.level_index(&t.level).unwrap();
            let known = work.traffic_at(i);
            assert_eq!(
                (t.loaded, t.stored),
                (known.loaded, known.stored),
                "{}",
                t.level
            );
        }
    }
}

/// Alternatives are the plan's own.
fn alternatives(w: &Walk, plan: &shopfloor::Plan) {
    let why = plan
        .whys
        .iter()
        .rfind(|y| y.pass == "schedule" && y.subject == w.step.name);
    let Picture::Bars { bars, .. } = &w.scene("choice").unwrap().picture else {
        panic!()
    };
    let mut told: Vec<(&str, f64)> = bars[1..].iter().map(|b| (b.name.as_str(), b.us)).collect();
    let mut known: Vec<(&str, f64)> = why.map_or(vec![], |y| {
        y.alternatives
            .iter()
            .map(|a| (a.what.as_str(), a.predicted_s * 1e6))
            .collect()
    });
    told.sort_by(|a, b| a.0.cmp(b.0));
    known.sort_by(|a, b| a.0.cmp(b.0));
    assert_eq!(told, known);
}

/// Requests that are drawn agree with the calculator `access` and with the lines' roles.
fn lanes(w: &Walk) {
    let Picture::Lanes { requests } = &w.scene("lanes").unwrap().picture else {
        panic!()
    };
    assert!(!requests.is_empty(), "{}", w.machine);
    for r in requests {
        assert_eq!(r.lanes.len(), 32);
        let width = u64::from(r.bytes);
        let at: Vec<Option<u64>> = r.lanes.iter().map(|a| a.map(|a| a / width)).collect();
        assert!(r.lanes.iter().flatten().all(|a| a % width == 0), "aligned");
        let known = match r.space {
            "global" => calc::access::global_access(&at, width, 0).sectors,
            _ => calc::access::shared_access(&at, width).passes,
        };
        assert_eq!(r.moved, known, "{} {}", w.machine, r.text);
        assert!(r.issued > 0 && r.ideal <= r.moved, "{}", r.text);
    }
}

/// What warps wait for is what `stalls` gives for as many CTAs of the step.
fn waiting(w: &Walk, plan: &shopfloor::Plan, gpu: &shopfloor::Machine) {
    let s = w.scene("waiting").unwrap();
    let Picture::Stalls {
        rows,
        cycles,
        warps,
        scheduler,
    } = &s.picture
    else {
        panic!("{}: not timed", w.machine)
    };
    let known = stalls::of_step(plan, &w.step.name, gpu, value(s, "ctas") as u64).unwrap();
    assert_eq!(value(s, "seconds"), known.seconds);
    assert_eq!(value(s, "predicted"), known.predicted_s);
    assert_eq!(value(s, "issue"), known.stalls.issue);
    assert_eq!(*cycles, known.stalls.cycles as f64);
    assert_eq!(*warps, known.stalls.warps);
    let told: BTreeSet<(&str, u64)> = rows
        .iter()
        .map(|r| (r.reason.as_str(), r.cycles as u64))
        .collect();
    let all = known.stalls.reasons.iter().filter(|r| r.1 > 0);
    assert_eq!(told, all.map(|r| (r.0.name(), r.1)).collect());
    let sum: u64 = told.iter().map(|r| r.1).sum();
    assert_eq!(sum, known.stalls.warp_cycles);
    assert_eq!(rows[0].reason, stalls::Reason::Issued.name());
    assert!(!scheduler.is_empty(), "{}", w.machine);
    for row in scheduler {
        for (from, to, why) in &row.stretches {
            assert!(from < to && (*why as usize) < rows.len());
        }
        assert!(row.stretches.windows(2).all(|p| p[0].1 <= p[1].0));
    }
}

#[test]
fn what_is_too_large_to_time_is_told_by_littles_law() {
    let w = walk(model("two_layers"), &rows(1 << 21), &on("a100")).unwrap();
    let s = w.scene("waiting").unwrap();
    assert!(matches!(s.picture, Picture::Hiding { .. }), "{:?}", s.title);
    assert!(value(s, "need") > 0.0 && value(s, "have") > 0.0);
}

#[test]
fn captions_name_figures_that_are_there() {
    if !testing::turn("captions_name_figures_that_are_there") {
        return;
    }
    let mut walks = vec![tour(&on("a100")).unwrap()];
    for name in ["cpu", "h100", "wgpu", "zen4"] {
        if let Ok(w) = walk(model("two_layers"), &rows(32), &on(name)) {
            walks.push(w);
        }
    }
    for name in ["cpu", "a100", "t4"] {
        let walked = |o: &WalkOptions| walk(model("digits_cnn"), &ModelOptions::default(), o);
        let steps = walked(&on(name)).unwrap().step.of;
        // Copies to a GPU and back are no walks.
        for i in if name == "cpu" {
            0..steps
        } else {
            1..steps - 1
        } {
            let step = WalkOptions {
                step: Some(i.to_string()),
                ..on(name)
            };
            walks.push(walked(&step).unwrap());
        }
    }
    assert!(walks.len() > 16, "{}", walks.len());
    for w in &walks {
        let ids: BTreeSet<&str> = w.scenes.iter().map(|s| s.id).collect();
        assert_eq!(ids.len(), w.scenes.len());
        for s in &w.scenes {
            let what = format!("{} step {} {}", w.machine, w.step.number, s.id);
            assert!(!s.beats.is_empty(), "{what}");
            let keys: BTreeSet<&str> = s.figures.iter().map(|f| f.key).collect();
            assert_eq!(keys.len(), s.figures.len(), "{what}: a key twice");
            for b in &s.beats {
                for text in [&b.text, &b.analogy] {
                    for key in text.split('{').skip(1) {
                        let key = key.split('}').next().unwrap();
                        assert!(keys.contains(key), "{what}: {key} in '{text}'");
                    }
                    assert!(
                        !text.contains("  ") && !text.ends_with(' '),
                        "{what}: '{text}'"
                    );
                }
                assert!(b.text.ends_with('.'), "{what}: '{}'", b.text);
            }
            for f in &s.figures {
                assert!(
                    !f.source.is_empty() || f.value.is_none(),
                    "{what}: {}",
                    f.key
                );
                assert!(!f.text.is_empty() && f.text != "-", "{what}: {}", f.key);
            }
        }
        // Told in 100 columns; names that do not break may be longer.
        let told = w.told(shopfloor_tools::report::Style::default(), true);
        for l in told.lines() {
            let longest = l.split_whitespace().map(|x| x.chars().count()).max();
            assert!(l.chars().count() <= 100 || longest > Some(60), "{l}");
        }
    }
}

#[test]
fn the_same_walk_twice_has_the_same_bytes() {
    if !testing::turn("the_same_walk_twice_has_the_same_bytes") {
        return;
    }
    let of = || tour(&on("a100")).unwrap();
    assert_eq!(of().json().unwrap(), of().json().unwrap());
    assert!(of().html().unwrap().len() < 3_000_000);
}

#[test]
fn measured_where_it_runs() {
    let w = walk(model("two_layers"), &rows(16), &on("cpu")).unwrap();
    assert!(w.device.as_deref().is_some_and(|d| d.starts_with("cpu")));
    assert!(value(w.scene("bill").unwrap(), "measured") > 0.0);
    let w = walk(model("two_layers"), &rows(16), &on("a100")).unwrap();
    assert!(w.device.is_none() && w.scene("bill").unwrap().figure("measured").is_none());
}

#[test]
fn steps_and_nodes_are_found_and_missed_in_words() {
    let at = |step: Option<&str>, node: Option<&str>| {
        let o = WalkOptions {
            step: step.map(Into::into),
            node: node.map(Into::into),
            ..on("a100")
        };
        walk(model("two_layers"), &rows(64), &o).map(|w| w.step.name)
    };
    assert_eq!(
        at(None, Some("/layer2/Add")).unwrap(),
        at(Some("2"), None).unwrap()
    );
    assert_eq!(
        at(None, Some("layer2")).unwrap(),
        at(Some("2"), None).unwrap()
    );
    let no = at(Some("99"), None).unwrap_err().to_string();
    assert!(
        no.contains("no step '99'") && no.contains("shopfloor plan"),
        "{no}"
    );
    let no = at(None, Some("nowhere")).unwrap_err().to_string();
    assert!(
        no.contains("'nowhere'") && no.contains("/layer1/MatMul"),
        "{no}"
    );
    let no = at(Some("1"), Some("x")).unwrap_err().to_string();
    assert!(no.contains("name one of them"), "{no}");
    let no = walk(model("two_layers"), &rows(64), &on("no-such-gpu")).unwrap_err();
    assert!(no.to_string().contains("no-such-gpu"), "{no}");
}

#[test]
fn every_key_is_documented() {
    fn keys(v: &serde_json::Value, out: &mut BTreeSet<String>) {
        match v {
            serde_json::Value::Object(o) => o.iter().for_each(|(k, v)| {
                out.insert(k.clone());
                keys(v, out);
            }),
            serde_json::Value::Array(a) => a.iter().for_each(|v| keys(v, out)),
            _ => {}
        }
    }
    let doc = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/walk.md");
    let doc = std::fs::read_to_string(doc).unwrap();
    let mut all = BTreeSet::new();
    for name in ["a100", "cpu"] {
        let w = walk(model("two_layers"), &rows(2048), &on(name)).unwrap();
        keys(&serde_json::from_str(&w.json().unwrap()).unwrap(), &mut all);
        for s in &w.scenes {
            assert!(doc.contains(&format!("`{}`", s.id)), "{}", s.id);
        }
    }
    let missing: Vec<&String> = all
        .iter()
        .filter(|k| !doc.contains(&format!("`{k}`")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/walk.md does not say what these are: {missing:?}"
    );
    assert!(doc.contains(&format!("version {} of the schema", Walk::VERSION)));
}
