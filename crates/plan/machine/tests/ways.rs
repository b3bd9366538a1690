//! The prices of the ways from step to step, held to requests that were measured.

use serde::Deserialize;
use shopfloor_machine::{KernelSpan, Leg, Machine, RequestSteps, Source, Way};

/// Share of the measured time by which half of the predictions may be off.
const NEAR: f64 = 0.25;

#[derive(Deserialize)]
struct Fixture {
    models: Vec<Measured>,
}

#[derive(Deserialize)]
struct Measured {
    model: String,
    steps_us: f64,
    stays_us: Option<f64>,
    inputs: Vec<f64>,
    outputs: Vec<f64>,
    kernels: Vec<Vec<f64>>,
    order: Vec<usize>,
}

impl Measured {
    fn request(&self) -> RequestSteps {
        let leg = |row: &[f64]| match *row {
            [us] => Leg::Host(us * 1e-6),
            [us, tasks, threads, held, warps, alone, in_step] => Leg::Kernel(KernelSpan {
                body_s: us * 1e-6,
                tasks: tasks as u64,
                threads: threads as u64,
                held: held as u64,
                warps: warps as u64,
                alone,
                in_step,
                ..KernelSpan::default()
            }),
            _ => panic!("{}: a row of {} figures", self.model, row.len()),
        };
        RequestSteps {
            legs: self.order.iter().map(|&i| leg(&self.kernels[i])).collect(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            may_stay: true,
        }
    }
}

fn measured() -> Vec<Measured> {
    let text = include_str!("h100-ways.json");
    serde_json::from_str::<Fixture>(text).unwrap().models
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

/// Shares by which `way` is off for the models that `of` has a time for, in microseconds.
fn errors(way: Way, of: impl Fn(&Measured) -> Option<f64>) -> Vec<f64> {
    let m = Machine::load("h100").unwrap();
    let mut out = vec![];
    for x in measured() {
        let Some(us) = of(&x) else { continue };
        let t = m.request(&x.request(), way).unwrap();
        let said = t.with_copies_s() * 1e6;
        println!(
            "{:22} {way:8} measured {us:8.0} predicted {said:8.0} {:+.2}",
            x.model,
            said / us - 1.0
        );
        out.push((said / us - 1.0).abs());
    }
    out
}

#[test]
fn launched_requests_take_what_is_predicted() {
    let off = errors(Way::Steps, |x| Some(x.steps_us));
    assert!(off.len() >= 19);
    let median = median(off);
    println!("median {median:.3}");
    assert!(median < NEAR, "{median}");
}

#[test]
fn requests_of_a_kernel_that_stays_take_what_is_predicted() {
    let off = errors(Way::Resident, |x| x.stays_us);
    assert!(off.len() >= 18);
    let median = median(off);
    println!("median {median:.3}");
    assert!(median < NEAR, "{median}");
}

/// What bodies are predicted wrongly by is in both ways: their difference is of the prices alone.
#[test]
fn what_staying_adds_is_what_the_prices_say() {
    let m = Machine::load("h100").unwrap();
    let mut off = vec![];
    for x in measured() {
        let Some(stays) = x.stays_us else { continue };
        let us = |way| m.request(&x.request(), way).unwrap().with_copies_s() * 1e6;
        let said = x.steps_us + us(Way::Resident) - us(Way::Steps);
        println!("{:22} stays {stays:8.0} said {said:8.0}", x.model);
        off.push((said / stays - 1.0).abs());
    }
    let median = median(off);
    println!("median {median:.3}");
    assert!(median < 0.15, "{median}");
}

#[test]
fn no_way_is_preferred_that_was_slower() {
    let m = Machine::load("h100").unwrap();
    for x in measured() {
        let Some(stays) = x.stays_us else { continue };
        let us = |way| m.request(&x.request(), way).unwrap().with_copies_s() * 1e6;
        let preferred = us(Way::Resident) < us(Way::Steps);
        assert!(
            !preferred || stays <= x.steps_us,
            "{}: staying is preferred, and took {stays} us beside {}",
            x.model,
            x.steps_us
        );
    }
}

#[test]
fn other_nvidia_gpus_have_the_prices_as_assumptions_and_others_none() {
    let ways = Machine::load("h100").unwrap().way_costs().unwrap();
    // One is what measured chains leave.
    for (name, price) in ways.all() {
        let source = match name {
            "fetched_s" => Source::Fitted,
            _ => Source::Measured,
        };
        assert_eq!(price.source, source, "{name}");
    }
    let like = Machine::load("l4").unwrap().way_costs().unwrap();
    assert!(like.all().iter().all(|w| w.1.source == Source::Assumed));
    assert_eq!(like.graph_node_s.value, ways.graph_node_s.value);
    for none in ["mi300x", "zen4-2core"] {
        assert!(Machine::load(none).unwrap().way_costs().is_none());
    }
}

#[test]
fn a_long_chain_is_a_graph_and_one_step_about_even() {
    let m = Machine::load("h100").unwrap();
    let kernel = Leg::Kernel(KernelSpan {
        body_s: 1e-6,
        tasks: 64,
        threads: 128,
        held: 16,
        warps: 4,
        alone: 1000.0,
        in_step: 1200.0,
        ..KernelSpan::default()
    });
    let seconds = |n: usize, way: Way| {
        let r = RequestSteps {
            legs: vec![kernel; n],
            may_stay: true,
            ..RequestSteps::default()
        };
        m.request(&r, way).unwrap().seconds
    };
    // Requests of 6 and 7 steps took 27 and 29 us as graphs on an H100, and 34 and 44 by a kernel that stays.
    let more = |n: usize| seconds(n, Way::Resident) - seconds(n, Way::Graph);
    assert!(more(1).abs() < 0.5e-6, "{}", more(1));
    assert!(more(40) > 20e-6, "{}", more(40));
}

#[test]
fn a_step_in_the_launch_before_it_takes_a_hand_over() {
    let m = Machine::load("h100").unwrap();
    let kernel = |handovers: Option<u64>| {
        Leg::Kernel(KernelSpan {
            body_s: 1e-6,
            tasks: 64,
            threads: 128,
            handovers,
            ..KernelSpan::default()
        })
    };
    let seconds = |handovers: Option<u64>, way: Way| {
        let r = RequestSteps {
            legs: [None, handovers, None].map(kernel).into(),
            may_stay: true,
            ..RequestSteps::default()
        };
        m.request(&r, way).unwrap().seconds
    };
    let ways = m.way_costs().unwrap();
    let less = |way| seconds(None, way) - seconds(Some(1), way);
    let begin = ways.graph_node_s.value + ways.begin_s.value;
    let want = begin - m.costs.handoff_s.value;
    assert!((less(Way::Graph) - want).abs() < 1e-12);
    for times in [0, 1] {
        let more = seconds(Some(times + 1), Way::Graph) - seconds(Some(times), Way::Graph);
        assert!((more - m.costs.handoff_s.value).abs() < 1e-12);
    }
    // A launch less is a call of the host less.
    assert!(less(Way::Steps) > want);
    // A kernel that stays has no launches.
    assert_eq!(less(Way::Resident), 0.0);
}

/// A kernel whose CTAs copy constants before they wait has done so while the one before ends, in a graph alone, and no
/// further than the edge is long.
#[test]
fn constants_that_are_copied_before_the_wait_cost_nothing_beside_an_edge() {
    let m = Machine::load("h100").unwrap();
    let ways = m.way_costs().unwrap();
    let (node, over) = (ways.graph_node_s.value, ways.graph_dependent_s.value);
    let fetched = ways.fetched_s.value;
    let seconds = |way: Way, (ahead, triggers, body_s): (f64, bool, f64)| {
        let kernel = KernelSpan {
            body_s,
            tasks: 132,
            threads: 256,
            held: 1,
            read: 132.0 * 48e3,
            ahead,
            triggers,
            ..KernelSpan::default()
        };
        let r = RequestSteps {
            legs: vec![Leg::Kernel(kernel); 2],
            may_stay: true,
            ..RequestSteps::default()
        };
        m.request(&r, way).unwrap().seconds
    };
    // All bytes of such a body are those of constants.
    let plain = (0.0, false, 2.5e-6);
    let less =
        |way, with: (f64, bool, f64)| seconds(way, (0.0, false, with.2)) - seconds(way, with);
    let beside = 2.0 * over - node;
    assert!((less(Way::Graph, (48e3, false, plain.2)) - beside).abs() < 1e-12);
    assert!((less(Way::Graph, (48e3, true, plain.2)) - node - fetched).abs() < 1e-12);
    let early = node - over + fetched;
    assert!((less(Way::Graph, (0.0, true, plain.2)) - early).abs() < 1e-12);
    for way in [Way::Steps, Way::Resident] {
        assert_eq!(less(way, (48e3, true, plain.2)), 0.0);
    }
    // A body that computes for long waits for memory's latency alone.
    let few = less(Way::Graph, (48e3, true, 50e-6)) - early;
    assert!(few > 0.0 && few < over, "{few}");
}

#[test]
fn large_values_cross_the_link_while_the_host_brings_more_of_them() {
    let m = Machine::load("h100").unwrap();
    let copies = |bytes: f64| {
        let r = RequestSteps {
            legs: vec![Leg::Kernel(KernelSpan::default())],
            inputs: vec![bytes],
            outputs: vec![bytes],
            ..RequestSteps::default()
        };
        m.request(&r, Way::Graph).unwrap().copies_s
    };
    let link = m.links.iter().find(|l| l.to == "host").unwrap();
    let cross = |bytes: f64| bytes / link.bandwidth.value;
    let bring = |bytes: f64| bytes / m.way_costs().unwrap().staged.value;
    let more = copies(64e6);
    // By one thread, one after the other, it took 16.6 ms on an H100.
    let before = 2.0 * (cross(64e6) + bring(64e6));
    assert!((15e-3..18e-3).contains(&before), "{before}");
    assert!(more > 2.0 * cross(64e6) && more < before / 3.0, "{more}");
    // A piece is brought, then sent.
    // Calls of the host lie beside what the GPU does, a few microseconds.
    let few = copies(1e6) - copies(1e3);
    let want = 2.0 * (cross(999e3) + bring(999e3));
    assert!((few / want - 1.0).abs() < 2e-2, "{few} {want}");
}

/// Behind a launch that lets the next one begin, constants are also copied beside the steps that are part of the launch, on
/// the multiprocessors that have none of their tasks.
#[test]
fn constants_are_copied_beside_the_steps_of_the_launch_before() {
    let m = Machine::load("h100").unwrap();
    let kernel = KernelSpan {
        body_s: 10e-6,
        tasks: 132,
        threads: 256,
        held: 1,
        read: 132.0 * 200e3,
        ahead: 150e3,
        triggers: true,
        ..KernelSpan::default()
    };
    let seconds = |tasks: u64, ahead: f64, triggers: bool| {
        let step = KernelSpan {
            body_s: 2e-6,
            tasks,
            threads: 256,
            handovers: Some(1),
            ..KernelSpan::default()
        };
        let launch = KernelSpan {
            ahead,
            triggers,
            ..kernel
        };
        let r = RequestSteps {
            legs: vec![Leg::Kernel(launch), Leg::Kernel(step), Leg::Kernel(launch)],
            may_stay: true,
            ..RequestSteps::default()
        };
        m.request(&r, Way::Graph).unwrap().seconds
    };
    let hidden = |tasks| seconds(tasks, 0.0, true) - seconds(tasks, kernel.ahead, true);
    let none = seconds(1, 0.0, false) - seconds(1, kernel.ahead, false);
    assert!(
        hidden(1) > hidden(66) && hidden(66) > hidden(132),
        "{} {} {}",
        hidden(1),
        hidden(66),
        hidden(132)
    );
    // All multiprocessors are busy until the launch is over.
    let over = m.way_costs().unwrap().graph_dependent_s.value;
    assert!((hidden(132) - over).abs() < 1e-12);
    assert!(none < over, "{none}");
}
