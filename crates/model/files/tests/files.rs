//! Files that are read up to a limit and replaced whole.
use shopfloor_files::{open, read, replace, text, write};
use std::io::{Error, Write};
use std::path::Path;

#[test]
fn files_of_other_kinds_and_longer_ones_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    std::fs::write(&path, "12345").unwrap();
    assert_eq!(text(&path, 5).unwrap(), "12345");
    assert!(read(&path, 4).unwrap_err().to_string().contains("5 B"));
    for other in [dir.path(), Path::new("/dev/zero"), Path::new("/dev/null")] {
        assert!(read(other, 5).is_err() && open(other).is_err(), "{other:?}");
    }
    std::fs::write(&path, [0xFF]).unwrap();
    assert!(text(&path, 5).is_err());
    assert!(read(&dir.path().join("none"), 5).is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_is_longer_than_it_says_is_read_up_to_the_limit() {
    assert!(read(Path::new("/proc/self/maps"), 10).is_err());
}

#[test]
fn other_names_of_a_replaced_file_keep_its_contents() {
    let dir = tempfile::tempdir().unwrap();
    let at = |n: &str| dir.path().join(n);
    std::fs::write(at("a"), "old").unwrap();
    std::fs::hard_link(at("a"), at("b")).unwrap();
    write(&at("b"), "new").unwrap();
    let read = |n: &str| std::fs::read_to_string(at(n)).unwrap();
    assert_eq!((read("a").as_str(), read("b").as_str()), ("old", "new"));
    let failed = replace(&at("b"), |to| {
        to.write_all(b"half")?;
        Err::<(), _>(Error::other("no more"))
    });
    assert!(failed.is_err() && read("b") == "new");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    write(&at("c"), "first").unwrap();
    assert_eq!(read("c"), "first");
    assert!(write(&at("none/c"), "x").is_err());
}

#[cfg(unix)]
#[test]
fn links_pipes_and_permissions_stay_what_they_are() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let at = |n: &str| dir.path().join(n);
    std::fs::write(at("a"), "old").unwrap();
    std::fs::set_permissions(at("a"), PermissionsExt::from_mode(0o640)).unwrap();
    symlink("a", at("l")).unwrap();
    write(&at("l"), "new").unwrap();
    assert!(at("l").is_symlink());
    assert_eq!(std::fs::read_to_string(at("a")).unwrap(), "new");
    let mode = std::fs::metadata(at("a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    write(Path::new("/dev/null"), "gone").unwrap();
}
