//! What is kept on disk between processes: used when it is sound, made anew when it is not, never
//! the reason of a wrong answer.

use shopfloor::{Cache, Engine, Model, ModelOptions, Session, Tensor, default_engine, inputs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models/digits_cnn/model.onnx")
}

fn session(engine: &Arc<Engine>, cache: &Path) -> Session {
    Session::builder()
        .with_engine(engine.clone())
        .with_cache(Cache::new(cache))
        .commit_from_file(model())
        .unwrap()
}

fn answer(s: &Session) -> Vec<(String, Tensor)> {
    let (sizes, _) = inputs::sizes(s.model());
    let named = inputs::random_inputs(s.model(), &sizes).unwrap();
    s.run(&inputs::borrowed(&named)).unwrap().into_vec()
}

/// Files of the cache by name, with contents and times.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>, SystemTime)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(f) = open.pop() {
        for e in std::fs::read_dir(f).unwrap().flatten() {
            let path = e.path();
            if path.is_dir() {
                open.push(path);
            } else {
                let time = path.metadata().unwrap().modified().unwrap();
                found.push((path.clone(), std::fs::read(&path).unwrap(), time));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_second_session_finds_what_the_first_left() {
    let dir = tempfile::tempdir().unwrap();
    let engine = default_engine(Some(1), None, None).unwrap();
    let plain = Session::builder()
        .with_engine(engine.clone())
        .commit_from_file(model())
        .unwrap();
    let want = answer(&plain);
    drop(plain);
    assert_eq!(answer(&session(&engine, dir.path())), want);
    let first = files(dir.path());
    let kinds = ["plan", "pack", "digest", "program"];
    for k in kinds {
        assert!(
            first
                .iter()
                .any(|f| f.0.extension().is_some_and(|e| e == k)),
            "{k}"
        );
    }
    assert_eq!(answer(&session(&engine, dir.path())), want);
    // Nothing was written again.
    assert_eq!(files(dir.path()), first);
}

#[test]
fn damage_is_noticed_and_mended() {
    if !testing::turn("damage_is_noticed_and_mended") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let engine = default_engine(Some(1), None, None).unwrap();
    let want = answer(&session(&engine, dir.path()));
    let good = files(dir.path());
    let contents = |files: &[(PathBuf, Vec<u8>, SystemTime)]| -> Vec<(PathBuf, Vec<u8>)> {
        files.iter().map(|f| (f.0.clone(), f.1.clone())).collect()
    };
    for (path, bytes, _) in &good {
        let n = bytes.len();
        // Headers and tables byte by byte as far as that goes, contents here and there.
        let step = (n / 40).max(1);
        let mut places: Vec<usize> = (0..n.min(64)).step_by(7).collect();
        places.extend((0..n).step_by(step));
        places.push(n - 1);
        for at in places {
            let mut bad = bytes.clone();
            bad[at] ^= 0x20;
            std::fs::write(path, &bad).unwrap();
            assert_eq!(
                answer(&session(&engine, dir.path())),
                want,
                "{path:?} byte {at}"
            );
            std::fs::write(path, &bytes[..at]).unwrap();
            assert_eq!(
                answer(&session(&engine, dir.path())),
                want,
                "{path:?} cut at {at}"
            );
            // What was cut has been made anew, the same.
            assert_eq!(
                contents(&files(dir.path())),
                contents(&good),
                "{path:?} {at}"
            );
        }
    }
}

#[test]
fn a_program_that_was_kept_is_that_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path().join("cache"));
    let path = dir.path().join("model.onnx");
    std::fs::copy(model(), &path).unwrap();
    let open = || Model::open_with(&path, &ModelOptions::default(), Some(&cache));
    let plain = Model::open(&path, &ModelOptions::default()).unwrap();
    let text = |m: &Model| format!("{:?} {:?}", m.program(), m.report());
    assert_eq!(text(&open().unwrap()), text(&plain));
    let again = open().unwrap();
    assert_eq!(text(&again), text(&plain));
    for (a, b) in again
        .program()
        .weights
        .iter()
        .zip(plain.program().weights.iter())
    {
        assert_eq!(a.bytes, b.bytes, "{}", a.name);
    }
    // The graph is not kept: it is made when somebody asks.
    assert_eq!(again.graph().unwrap(), plain.graph().unwrap());
    // Other options, another program.
    let mut one = ModelOptions::default();
    one.dims.insert("batch", 1, 1);
    let bound = Model::open_with(&path, &one, Some(&cache)).unwrap();
    assert!(bound.program().symbols.is_empty());
    // A file that is another one by now is read again.
    let bytes = std::fs::read(&path).unwrap();
    drop((again, plain, bound));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(open().is_err());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    assert!(open().is_ok());
}

#[test]
fn a_shape_inside_the_box_makes_no_plan() {
    let engine = default_engine(Some(1), None, None).unwrap();
    let s = Session::builder()
        .with_engine(engine)
        .with_dim("batch", 1, 8)
        .commit_from_file(model())
        .unwrap();
    let run = |batch: i64| {
        let sizes = [("batch".to_string(), batch)].into_iter().collect();
        let named = inputs::random_inputs(s.model(), &sizes).unwrap();
        s.run(&inputs::borrowed(&named)).unwrap();
        s.runtime().plans().len()
    };
    for batch in [8, 1, 3, 8] {
        assert_eq!(run(batch), 1);
    }
    assert_eq!(run(9), 2);
    assert_eq!(run(2), 2);
}

#[test]
fn sessions_at_once_share_a_cache() {
    let dir = tempfile::tempdir().unwrap();
    let engine = default_engine(Some(1), None, None).unwrap();
    let want = answer(&session(&engine, dir.path()));
    std::fs::remove_dir_all(dir.path()).unwrap();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                // Engines of their own, like processes of their own.
                let engine = default_engine(Some(1), None, None).unwrap();
                for _ in 0..5 {
                    assert_eq!(answer(&session(&engine, dir.path())), want);
                }
            });
        }
    });
}

#[test]
fn a_folder_that_cannot_be_used_costs_nothing_but_speed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let engine = default_engine(Some(1), None, None).unwrap();
    let s = session(&engine, &file.join("below"));
    assert!(!answer(&s).is_empty());
    let why = s.cache_problem().expect("a reason");
    assert!(why.contains("could not be written to"), "{why}");
    // A limit that is too small is told as well.
    let s = Session::builder()
        .with_engine(engine)
        .with_cache(Cache::new(dir.path().join("small")).with_limit(2000))
        .commit_from_file(model())
        .unwrap();
    assert!(!answer(&s).is_empty());
    let why = s.cache_problem().expect("a reason");
    assert!(why.contains("allow it more"), "{why}");
}

#[test]
fn a_cache_never_takes_more_than_it_may() {
    // The plans of all sizes together take more, and the largest file, packed weights of 174 KB, less than half.
    const LIMIT: u64 = 512 << 10;
    let dir = tempfile::tempdir().unwrap();
    let bytes = || -> u64 { files(dir.path()).iter().map(|f| f.1.len() as u64).sum() };
    let engine = default_engine(Some(1), None, None).unwrap();
    let want = answer(&session(&engine, dir.path()));
    assert!(bytes() < LIMIT);
    // Several sessions with caches of their own, as processes would have them.
    std::thread::scope(|s| {
        for t in 0..3 {
            let (want, folder) = (&want, dir.path());
            s.spawn(move || {
                let engine = default_engine(Some(1), None, None).unwrap();
                for i in 0..4 {
                    // Every size has a plan of its own, which is kept: none follows another's.
                    let s = Session::builder()
                        .deterministic()
                        .with_engine(engine.clone())
                        .with_cache(Cache::new(folder).with_limit(LIMIT))
                        .commit_from_file(model())
                        .unwrap();
                    assert_eq!(&answer(&s), want);
                    for n in 0..6 {
                        let batch = 2 + n + 6 * (4 * t + i);
                        let sizes = [("batch".to_string(), batch)].into_iter().collect();
                        let named = inputs::random_inputs(s.model(), &sizes).unwrap();
                        s.run(&inputs::borrowed(&named)).unwrap();
                    }
                    assert_eq!(s.cache_problem(), None);
                }
            });
        }
    });
    let left = bytes();
    // Those that were used least recently went, and no more than had to.
    assert!(left > LIMIT / 2, "{left}");
    assert!(left <= LIMIT + 3 * LIMIT / 32, "{left}");
}

#[test]
fn sessions_of_one_model_share_its_weights() {
    let engine = default_engine(Some(1), None, None).unwrap();
    let make = || {
        Session::builder()
            .with_engine(engine.clone())
            .commit_from_file(model())
            .unwrap()
    };
    let one = make();
    let first = answer(&one);
    let packed = engine.memory().packed;
    assert!(packed > 0);
    let two = make();
    assert_eq!(answer(&two), first);
    assert_eq!(engine.memory().packed, packed);
    drop((one, two));
    assert_eq!(engine.memory().packed, 0);
}

#[test]
fn what_was_kept_under_another_key_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let engine = default_engine(Some(1), None, None).unwrap();
    // Two models of one name, whose weights differ, each with plans for two sizes.
    let files_of = ["a", "b"].map(|f| {
        let path = dir.path().join(f).join("model.onnx");
        std::fs::create_dir(dir.path().join(f)).unwrap();
        let mut bytes = std::fs::read(model()).unwrap();
        if f == "b" {
            // A digit of a weight.
            let at = bytes.len() / 2;
            bytes[at] ^= 1;
        }
        std::fs::write(&path, bytes).unwrap();
        path
    });
    let answers = |cache: &Path| -> Vec<Vec<(String, Tensor)>> {
        let each = files_of.iter().flat_map(|p| [(p, 1), (p, 3)]);
        each.map(|(path, batch)| {
            let s = Session::builder()
                .deterministic()
                .with_engine(engine.clone())
                .with_cache(Cache::new(cache))
                .commit_from_file(path)
                .unwrap();
            let sizes = [("batch".to_string(), batch)].into_iter().collect();
            let named = inputs::random_inputs(s.model(), &sizes).unwrap();
            s.run(&inputs::borrowed(&named)).unwrap().into_vec()
        })
        .collect()
    };
    let want = answers(&cache);
    let good = files(&cache);
    for kind in ["program", "digest", "plan", "pack"] {
        let of = good
            .iter()
            .filter(|f| f.0.extension().is_some_and(|e| e == kind));
        let of: Vec<_> = of.collect();
        assert!(of.len() >= 2, "{kind}");
        // Each gets the contents of the next.
        for (i, f) in of.iter().enumerate() {
            std::fs::write(&f.0, &of[(i + 1) % of.len()].1).unwrap();
        }
        assert_eq!(answers(&cache), want, "{kind}");
        let now = files(&cache);
        let found = |path: &Path| now.iter().find(|f| f.0 == path).map(|f| &f.1);
        if kind != "pack" {
            assert!(
                of.iter().all(|f| found(&f.0) == Some(&f.1)),
                "{kind} made anew"
            );
        }
    }
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_in_a_cache_are_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let engine = default_engine(Some(1), None, None).unwrap();
    let want = answer(&session(&engine, dir.path()));
    for (path, ..) in files(dir.path()) {
        std::fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        if !made.is_ok_and(|s| s.success()) {
            std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        }
        assert_eq!(answer(&session(&engine, dir.path())), want, "{path:?}");
    }
}

/// A table of `rows` rows in the file at `path`, of which a request picks some.
#[cfg(unix)]
fn table(path: &Path, rows: usize) -> Model {
    use graph::{GraphBuilder, Op, Origin};
    use layout::{DType, Dim};
    let bytes = onnx::map_path(path).unwrap();
    let mut weights = tensor::WeightStore::new();
    let w = weights
        .add("table", DType::F32, &[rows, 1024], bytes)
        .unwrap();
    let mut b = GraphBuilder::new("table", Arc::new(weights));
    let which = b.input("which", DType::I64, vec![Dim::sym("n")]);
    let w = b.weight(w).unwrap();
    let origin = Origin {
        name: "pick".into(),
        op_type: "Gather".into(),
    };
    let op = Op::Gather { axis: 0, batch: 0 };
    let y = b.node(op, &[w, which], &["y"], &origin).unwrap();
    Model::from_graph("table", &b.finish(&y), &ModelOptions::default()).unwrap()
}

#[cfg(unix)]
#[test]
fn a_weights_file_that_is_cut_short_fails_requests_and_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights");
    let rows = 64;
    let values: Vec<u8> = (0..rows * 1024)
        .flat_map(|i| (i as f32).to_le_bytes())
        .collect();
    let commit = |m| Session::builder().with_threads(1).commit(m);
    let pick = |s: &Session, row: i64| {
        let which = Tensor::from_i64(&[1], &[row]).unwrap();
        s.run(&[("which", &which)])
            .map(|out| f32::from_le_bytes(out["y"].bytes()[..4].try_into().unwrap()))
    };
    // While requests come: after whole pages are gone.
    std::fs::write(&path, &values).unwrap();
    let session = commit(table(&path, rows)).unwrap();
    assert_eq!(pick(&session, 63).unwrap(), 63.0 * 1024.0);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(4096 * 8).unwrap();
    for row in [63, 40] {
        let e = pick(&session, row).unwrap_err().to_string();
        assert!(e.contains("weights") && e.contains("cut short"), "{e}");
    }
    // While it is loaded: the rest of a page reads as zeros and is no fault.
    std::fs::write(&path, &values).unwrap();
    let model = table(&path, rows);
    file.set_len(values.len() as u64 - 4).unwrap();
    let e = commit(model).map(|s| pick(&s, 0).unwrap_err().to_string());
    let e = e.unwrap_or_else(|e| e.to_string());
    assert!(e.contains("weights") && e.contains("cut short"), "{e}");
    // Whole again, and loaded again.
    std::fs::write(&path, &values).unwrap();
    let session = commit(table(&path, rows)).unwrap();
    assert_eq!(pick(&session, 63).unwrap(), 63.0 * 1024.0);
}
