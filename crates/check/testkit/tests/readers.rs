//! Readers of files and damaged copies of their seeds.
use std::path::Path;
use testkit::random::Rng;
use testkit::readers::{Bench, READERS};

/// Every reader has its target for cargo-fuzz.
#[test]
fn there_is_a_target_per_reader() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for r in READERS {
        let target = folder.join(format!("fuzz_targets/{}.rs", r.name));
        let text = std::fs::read_to_string(target).unwrap();
        assert!(text.contains(&format!("{:?}", r.name)), "{}", r.name);
        assert!(
            manifest.contains(&format!("name = {:?}", r.name)),
            "{}",
            r.name
        );
    }
}

/// Every reader takes its own seeds, and a few damaged copies do no harm.
#[test]
fn seeds_are_sound_and_damage_is_harmless() {
    if !testing::turn("seeds_are_sound_and_damage_is_harmless") {
        return;
    }
    let bench = Bench::new().unwrap();
    for r in READERS {
        let seeds = (r.seeds)(&bench).unwrap();
        if seeds.is_empty() && r.name == "model" {
            testing::skip("zoo: damaged models", "there is no ../shared/zoo");
            continue;
        }
        assert!(!seeds.is_empty(), "{}", r.name);
        for s in &seeds {
            assert_eq!((r.read)(&bench, s), Ok(true), "{}: a seed", r.name);
        }
        for n in 1..40 {
            let mut rng = Rng::new(n);
            let seed = rng.of(&seeds);
            let bad = (r.damage)(&seed, &mut rng);
            (r.read)(&bench, &bad).unwrap_or_else(|e| panic!("{} {n}: {e}", r.name));
        }
    }
}
