//! The file of constants.
use shopfloor_predict::Constants;
use shopfloor_predict::measurements::{DECODE, KERNELS, MODELS};

#[test]
fn the_file_reads_and_says_what_each_means() {
    let c = Constants::parse(Constants::TEXT).unwrap();
    assert!(c.all.values().all(|c| c.meaning.len() > 20));
    assert!(c.tables.meanings().iter().all(|t| t.1.len() > 20));
    // Writing it loses nothing.
    assert_eq!(Constants::parse(&c.text()).unwrap(), c);
    assert_eq!(c.text(), Constants::TEXT);
}

/// Every name that the sources ask for is in the file, and every name of the file is asked for.
#[test]
fn names_agree_with_the_sources() {
    let c = Constants::parse(Constants::TEXT).unwrap();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = String::new();
    for f in std::fs::read_dir(folder).unwrap() {
        let path = f.unwrap().path();
        if path.extension().is_some_and(|e| e == "rs") {
            sources += &std::fs::read_to_string(path).unwrap();
        }
    }
    for name in c.all.keys() {
        assert!(
            sources.contains(&format!("\"{name}\"")),
            "{name} is not used"
        );
    }
    for part in sources.split(concat!(".get", "(\"")).skip(1) {
        let name = part.split('"').next().unwrap();
        let like = name.contains('_') && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let column = KERNELS.iter().chain(MODELS).chain(DECODE);
        if like && !column.clone().any(|c| *c == name) {
            assert!(c.all.contains_key(name), "{name} is not in constants.toml");
        }
    }
}
