//! Every family on emulated GPUs through their device.
use cuda::{CudaDevice, CudaOptions};
use cuda_emulated::{Checks, EmulatedDriver, EmulatedGpu};
use machine::Way;
use shopfloor_conformance::{OnDevice, copied_ahead, in_clusters, run, seeds};

fn device(name: &str, launch: Option<Way>) -> CudaDevice {
    let gpu = EmulatedGpu::named(name).expect("a name of the catalog");
    // Words at a buffer's end may be read whole, of which a request fills a part.
    let checks = Checks {
        uninitialised: false,
        ..Checks::default()
    };
    let driver = EmulatedDriver::new(vec![gpu.with_sms(4).with_checks(checks)]);
    let machine = machine::Machine::load(name).expect("a machine of the catalog");
    let on = format!("emulated:{name}");
    let options = CudaOptions {
        launch,
        ..CudaOptions::default()
    };
    CudaDevice::open(&on, &driver, 0, machine, options).expect("a device")
}

/// A third of the cases of one of the architectures per run.
#[test]
fn every_family_agrees() {
    let share = testing::Share::of_run(18);
    let first = [("a100", 7000), ("t4", 7100), ("h100", 7200)];
    let all = first.into_iter().chain(first.map(|(n, s)| (n, s + 1)));
    let thirds = all.flat_map(|own| [0, 1, 2].map(|third| (own, third)));
    for (case, ((name, seed), third)) in (0..).zip(thirds) {
        if !share.picks(case) {
            continue;
        }
        let d = device(name, None);
        let out = run(&OnDevice(&d), &|n| n % 3 == third, seed, seeds(1));
        let out = out.unwrap_or_else(|e| panic!("{name}: {e}"));
        println!("{name}: {:?}, refused {:?}", out.agreed, out.refused);
        assert!(out.total() > 3, "{out:?}");
        assert!(out.agreed.len() >= 2, "{:?}", out.agreed);
        // What ran is let go of: nothing is held but what the pool keeps for later.
        assert_eq!(d.memory().allocated, 0, "{:?}", d.memory());
    }
}

/// Launched, in graphs and in a kernel that stays, where CTAs take tasks by rules of their own.
#[test]
fn tasks_that_ctas_walk_agree_with_the_reference_however_they_are_launched() {
    if !testing::turn("tasks_that_ctas_walk_agree_with_the_reference_however_they_are_launched") {
        return;
    }
    for way in Way::ALL {
        let d = device("h100", Some(way));
        let last = copied_ahead(&OnDevice(&d), 9400, seeds(8));
        let last = last.unwrap_or_else(|e| panic!("{way}: {e}"));
        println!("{way}: up to seed {last}");
    }
}

/// Launched and in graphs, and in a kernel that stays, where each CTA copies for itself.
#[test]
fn clusters_agree_with_the_reference_however_they_are_launched() {
    if !testing::turn("clusters_agree_with_the_reference_however_they_are_launched") {
        return;
    }
    for way in Way::ALL {
        let d = device("h100", Some(way));
        let last = in_clusters(&OnDevice(&d), 600_000, seeds(8));
        let last = last.unwrap_or_else(|e| panic!("{way}: {e}"));
        println!("{way}: up to seed {last}");
    }
}
