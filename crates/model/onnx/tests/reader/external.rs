//! Data in other files, and paths that a model must not use.

use std::fs;
use std::path::Path;

use shopfloor_onnx::{Error, ModelFile};

use crate::reader::encode::*;

fn external(entries: &[(&str, &str)]) -> Msg {
    entries
        .iter()
        .fold(tensor("w", 1, &[2]).int(14, 1), |t, (k, v)| {
            t.sub(13, entry(k, v))
        })
}

fn file_with(tensors: Vec<Msg>, dir: Option<&Path>) -> Result<ModelFile, Error> {
    let graph = tensors.into_iter().fold(msg(), |g, t| g.sub(5, t));
    ModelFile::from_bytes(model(graph).0, dir.map(Path::to_path_buf))
}

fn bytes_of(entries: &[(&str, &str)], dir: Option<&Path>) -> Result<Vec<u8>, String> {
    let file = file_with(vec![external(entries)], dir).map_err(|e| e.to_string())?;
    let bytes = file.tensor_bytes(&file.model.graph.initializers[0]);
    bytes.map(|b| b.to_vec()).map_err(|e| e.to_string())
}

#[test]
fn ranges_are_mapped_once_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..32).collect();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("w.bin"), &data).unwrap();
    fs::write(dir.path().join("sub/w.bin"), &data[16..]).unwrap();
    let at = |entries: &[(&str, &str)]| bytes_of(entries, Some(dir.path()));
    assert_eq!(at(&[("location", "w.bin")]).unwrap(), data[..8]);
    assert_eq!(
        at(&[("location", "./w.bin"), ("offset", "3"), ("length", "8")]).unwrap(),
        data[3..11]
    );
    assert_eq!(
        at(&[("location", "w.bin"), ("offset", "24"), ("checksum", "0")]).unwrap(),
        data[24..]
    );
    assert_eq!(at(&[("location", "sub/w.bin")]).unwrap(), data[16..24]);
    for (entries, part) in [
        (
            &[("location", "w.bin"), ("offset", "25")][..],
            "8 B at offset 25 reach past its end at 32 B",
        ),
        (
            &[("location", "w.bin"), ("offset", "18446744073709551615")],
            "reach past its end",
        ),
        (
            &[("location", "w.bin"), ("length", "12")],
            "states 12 B, but FLOAT [2] takes 8 B",
        ),
        (
            &[("location", "none.bin")],
            "none.bin does not exist; put the file there",
        ),
        (&[("location", "sub")], "not a regular file"),
        (&[("location", "w.bin/x")], "w.bin/x"),
        (
            &[("location", "w.bin"), ("offset", "-1")],
            "offset '-1' is no byte count",
        ),
        (
            &[("location", "w.bin"), ("length", "")],
            "length '' is no byte count",
        ),
        (
            &[("location", "w.bin"), ("location", "x")],
            "location is there twice",
        ),
        (&[("offset", "0")], "there is no location"),
    ] {
        let error = at(entries).unwrap_err();
        assert!(error.contains(part) && error.contains("'w'"), "{error}");
    }

    let tensors =
        (0..4).map(|i| external(&[("location", "w.bin"), ("offset", &(i * 8).to_string())]));
    let file = file_with(tensors.collect(), Some(dir.path())).unwrap();
    assert_eq!(file.external.mapped_files(), 0);
    let all: Vec<_> = file
        .model
        .graph
        .initializers
        .iter()
        .map(|t| file.tensor_bytes(t).unwrap())
        .collect();
    assert!(all.iter().all(|b| b.same_owner(&all[0])));
    assert_eq!(file.external.mapped_files(), 1);
    assert_eq!(
        all.iter().flat_map(|b| b.to_vec()).collect::<Vec<_>>(),
        data
    );
}

#[test]
fn paths_out_of_the_folder_are_refused() {
    let top = tempfile::tempdir().unwrap();
    let dir = top.path().join("model");
    fs::create_dir(&dir).unwrap();
    fs::write(top.path().join("secret"), [7; 8]).unwrap();
    fs::write(dir.join("w.bin"), [1; 8]).unwrap();
    let secret = top.path().join("secret").display().to_string();
    for (location, part) in [
        (secret.as_str(), "absolute path"),
        ("/etc/hostname", "absolute path"),
        ("\\\\server\\share", "absolute path"),
        ("C:\\secret", "absolute path"),
        ("../secret", "contains '..'"),
        ("..\\secret", "contains '..'"),
        ("a/../../secret", "contains '..'"),
        ("w.bin/..", "contains '..'"),
        ("w.bin\0.txt", "NUL"),
        ("", "empty"),
    ] {
        let error = bytes_of(&[("location", location)], Some(&dir)).unwrap_err();
        assert!(
            error.contains(part) && error.contains("tensor 'w'"),
            "{location}: {error}"
        );
    }
    let error = bytes_of(&[("location", "w.bin")], None).unwrap_err();
    assert!(error.contains("without a folder"), "{error}");
}

#[cfg(unix)]
#[test]
fn links_that_leave_the_folder_are_refused() {
    use std::os::unix::fs::symlink;
    let top = tempfile::tempdir().unwrap();
    let dir = top.path().join("model");
    fs::create_dir(&dir).unwrap();
    fs::create_dir(top.path().join("model-two")).unwrap();
    fs::write(top.path().join("model-two/secret"), [7; 8]).unwrap();
    fs::write(dir.join("w.bin"), [1; 8]).unwrap();
    symlink("../model-two/secret", dir.join("out.bin")).unwrap();
    symlink("../model-two", dir.join("out")).unwrap();
    symlink("w.bin", dir.join("in.bin")).unwrap();
    symlink("nowhere", dir.join("dangling")).unwrap();
    symlink("self", dir.join("self")).unwrap();
    symlink("model", top.path().join("linked")).unwrap();
    for location in ["out.bin", "out/secret"] {
        let error = bytes_of(&[("location", location)], Some(&dir)).unwrap_err();
        assert!(error.contains("leaves the model's folder"), "{error}");
        assert!(error.contains(location) && error.contains("'w'"), "{error}");
    }
    assert!(
        bytes_of(&[("location", "dangling")], Some(&dir))
            .unwrap_err()
            .contains("does not exist")
    );
    assert!(
        bytes_of(&[("location", "self")], Some(&dir))
            .unwrap_err()
            .contains("cannot be reached")
    );
    assert_eq!(
        bytes_of(&[("location", "in.bin")], Some(&dir)).unwrap(),
        [1; 8]
    );
    // The folder itself may be reached through a link.
    let linked = top.path().join("linked");
    assert_eq!(
        bytes_of(&[("location", "w.bin")], Some(&linked)).unwrap(),
        [1; 8]
    );
}

/// A folder as the Hugging Face hub's cache lays a model out: links in `snapshots/REV`, files
/// by their hashes in `blobs`.
#[cfg(unix)]
#[test]
fn data_beside_the_file_that_a_linked_model_leads_to_loads_and_nothing_else_does() {
    use std::os::unix::fs::symlink;
    let top = tempfile::tempdir().unwrap();
    let cache = top.path().join("models--a--b");
    let snapshot = cache.join("snapshots/rev");
    let blobs = cache.join("blobs");
    fs::create_dir_all(snapshot.join("onnx")).unwrap();
    fs::create_dir(&blobs).unwrap();
    fs::write(top.path().join("secret"), [7; 8]).unwrap();
    fs::write(cache.join("beside"), [7; 8]).unwrap();
    fs::write(blobs.join("0a1b"), [1; 8]).unwrap();
    symlink("../../secret", blobs.join("out")).unwrap();
    for (folder, up) in [
        (snapshot.clone(), "../.."),
        (snapshot.join("onnx"), "../../.."),
    ] {
        let link = |to: &str, from: &str| symlink(format!("{up}/{to}"), folder.join(from));
        link("blobs/0a1b", "model.onnx_data").unwrap();
        link("beside", "beside").unwrap();
        link("blobs/out", "out").unwrap();
        link("blobs/none", "none").unwrap();
        for (location, want) in [
            ("model.onnx_data", Ok(())),
            ("beside", Err("leaves the model's folder")),
            ("out", Err("leaves the model's folder")),
            ("none", Err("does not exist")),
        ] {
            let graph = msg().sub(5, external(&[("location", location)]));
            fs::write(blobs.join("2c3d"), model(graph).0).unwrap();
            let path = folder.join("model.onnx");
            let _ = fs::remove_file(&path);
            symlink(format!("{up}/blobs/2c3d"), &path).unwrap();
            let file = ModelFile::open(&path).unwrap();
            let bytes = file.tensor_bytes(&file.model.graph.initializers[0]);
            match (bytes.map_err(|e| e.to_string()), want) {
                (Ok(b), Ok(())) => assert_eq!(&b[..], [1; 8]),
                (Err(e), Err(part)) => assert!(e.contains(part) && e.contains("'w'"), "{e}"),
                (got, want) => panic!("{location}: {got:?}, not {want:?}"),
            }
        }
    }
}

#[test]
fn offsets_beyond_four_gigabytes_work() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("big.bin");
    let offset = 5u64 << 30;
    {
        use std::io::{Seek, SeekFrom, Write};
        let mut file = fs::File::create(&path).unwrap();
        file.seek(SeekFrom::Start(offset)).unwrap();
        // A hole before it: the file takes a few KiB on disk.
        file.write_all(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    }
    let text = offset.to_string();
    let bytes = bytes_of(
        &[("location", "big.bin"), ("offset", &text)],
        Some(dir.path()),
    );
    assert_eq!(bytes.unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
}
