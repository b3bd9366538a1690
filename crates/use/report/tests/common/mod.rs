//! Pages to test with: a small model's saved plan with made-up measurements, and large ones made of it.
#![allow(dead_code)]

use plan::{Plan, Span, Timeline};
use shopfloor_report::page::{PageData, PageInput};
use shopfloor_report::{
    Advice, AdviceView, Computed, HowRun, PlanView, Profile, ProfileInput, StepView,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a model's author might call a node to get at the page.
pub const HOSTILE: &str = "</script><script>window.pwned=1</script><!-- <img src=x onerror=window.pwned=1> \u{2028}\u{2029}\"'&amp; %DATA%";

fn saved() -> Plan {
    Plan::from_json_unchecked(include_str!("../data/plan.json")).unwrap()
}

/// The plan of `models/digits_cnn` for a machine of the catalog, as saved once.
pub fn plan() -> Plan {
    let mut p = saved();
    p.model = "digits".into();
    p
}

/// A profile of `plan` in which step `i` took `1 + i % 5 / 4` times what was predicted.
pub fn measured(plan: &Plan) -> (Profile, Timeline) {
    let steps: Vec<StepView> = plan
        .blocks()
        .flat_map(|b| &b.steps)
        .enumerate()
        .map(|(i, s)| StepView::new(i as u32, s, &plan.dims, &plan::Decisions::of(&plan.whys)))
        .collect();
    let mut t = Timeline::default();
    let mut at = 1000;
    for (i, s) in steps.iter().enumerate() {
        let ns = (s.predicted_us * 1000.0 * (1.0 + (i % 5) as f64 / 4.0)) as u64 + 1;
        for worker in 0..2 {
            t.spans.push(Span {
                step: i as u32,
                worker,
                first_task: worker,
                tasks: 1,
                start_ns: at,
                end_ns: at + ns,
            });
        }
        t.steps.push(s.name.clone());
        at += ns + 50;
    }
    t.total_ns = at + 1000;
    let profile = Profile::new(ProfileInput {
        model: &plan.model,
        device: "cpu (cpu-avx512)",
        machine: &plan.devices[0].machine,
        threads: 2,
        warmup: 5,
        steps: steps.into_iter().map(|s| (s, None)).collect(),
        timelines: std::slice::from_ref(&t),
        fates: &[],
        dims: String::new(),
    });
    (profile, t)
}

/// The page of `plan`, measured or not.
pub fn page(plan: &Plan, measured: Option<&(Profile, Timeline)>) -> PageData {
    let machine = machine::lookup("zen5-2core").unwrap();
    let advice = AdviceView {
        model: plan.model.clone(),
        dims: "batch=1".into(),
        machine: machine.name.clone(),
        how: HowRun::default(),
        kernels: "ours".into(),
        unvalidated: false,
        target: "cpu-avx512".into(),
        now_s: 2e-5,
        bounds: vec![("launch".into(), 1.0)],
        advice: vec![
            Advice {
                kind: "batch".into(),
                what: "batches of 64 (--dim batch=64), per item".into(),
                new_s: Some(4e-6),
                gain: 5.0,
                computed: Computed::Replanned,
                reason: "weights are read once for all of them.".into(),
            },
            Advice {
                kind: "layout".into(),
                what: String::new(),
                new_s: None,
                gain: 1.0,
                computed: Computed::Repredicted,
                reason: "no step moves data into another order.".into(),
            },
        ],
        notes: vec![],
    };
    let fates: Vec<plan::NodeFate> = plan
        .blocks()
        .flat_map(|b| &b.steps)
        .flat_map(|s| s.nodes.iter().map(move |n| (n, &s.name)))
        .map(|(n, s)| plan::NodeFate {
            node: n.clone(),
            op_type: "Op".into(),
            fate: plan::Fate::Items(vec![s.clone()]),
        })
        .collect();
    PageData::new(PageInput {
        plans: &[plan],
        machines: &[machine],
        view: &PlanView::new(plan, None, 1),
        fates: &fates,
        measured: measured.map(|m| (&m.0, &m.1)),
        works: BTreeMap::new(),
        modules: BTreeMap::new(),
        advice: Some(advice),
        tool: "shopfloor test",
    })
}

/// A plan of `n` steps: the small model's, over and over, in modules.
pub fn large(n: usize) -> Plan {
    let mut plan = plan();
    plan.model = "large".into();
    let own = plan.whys.clone();
    let mut whys = Vec::new();
    for s in &mut plan.segments {
        let plan::PlanSegment::Block(b) = s else {
            continue;
        };
        let steps = std::mem::take(&mut b.steps);
        let each = steps.len();
        for i in 0..n {
            let mut s = steps[i % each].clone();
            let layer = i / each;
            let module = |n: &String| format!("/blocks/blocks.{layer}/part.{}{n}", i % 3);
            for w in own
                .iter()
                .filter(|w| w.subject == s.name || s.nodes.contains(&w.subject))
            {
                let mut w = w.clone();
                w.subject = module(&w.subject);
                whys.push(w);
            }
            s.name = module(&s.name);
            s.nodes = s.nodes.iter().map(module).collect();
            s.waits.clear();
            b.steps.push(s);
        }
    }
    plan.whys = whys;
    plan
}

/// The small plan with a name that wants out in every place that a model names.
pub fn hostile() -> Plan {
    let mut plan = plan();
    plan.model = HOSTILE.into();
    for s in &mut plan.segments {
        let plan::PlanSegment::Block(b) = s else {
            continue;
        };
        for buffer in &mut b.buffers {
            buffer.name = format!("{HOSTILE}{}", buffer.name);
        }
        for s in &mut b.steps {
            s.name = format!("{HOSTILE}{}", s.name);
            for n in &mut s.nodes {
                *n = format!("{HOSTILE}/{n}");
            }
        }
    }
    for w in &mut plan.whys {
        w.subject = format!("{HOSTILE}{}", w.subject);
        w.reason = format!("{HOSTILE}{}", w.reason);
    }
    plan
}

/// The scripts of a page, those that both pages have among them.
pub fn scripts(page: &str) -> Vec<String> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let own = std::fs::read_dir(src.join(page)).unwrap();
    let own = own.map(|f| f.unwrap().path());
    let own = own.filter(|p| p.extension().is_some_and(|e| e == "js"));
    let all: BTreeSet<PathBuf> = own.chain([src.join("page/shared.js")]).collect();
    let read = |p: &PathBuf| std::fs::read_to_string(p).unwrap();
    all.iter().map(read).collect()
}

/// The style of a page, and its script that is no data. There is one of each, and nothing in them ends it early.
pub fn style_and_code(page: &str) -> (&str, &str) {
    let (before, style) = page.split_once("<style").unwrap();
    assert_eq!(page.matches("</style").count(), 1);
    assert!(!before.contains("<script"));
    let style = style.split_once("</style").unwrap().0;
    let code = page.rsplit_once("<script").unwrap().1;
    assert_eq!(code.matches("</script").count(), 1);
    (style, code.split_once("</script").unwrap().0)
}
