//! The files of `machines/`, as `build.rs` put them into one.
use std::sync::OnceLock;

/// Names and texts, in file-name order.
pub(crate) fn files() -> &'static [(&'static str, &'static str)] {
    static FILES: OnceLock<Vec<(&str, &str)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let files = text().split('\0');
        files.filter_map(|f| f.split_once('\n')).collect()
    })
}

#[cfg(not(feature = "packed"))]
fn text() -> &'static str {
    include_str!(concat!(env!("OUT_DIR"), "/machines"))
}

/// The compressed files take an eighth of their size.
#[cfg(feature = "packed")]
fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let packed = include_bytes!(concat!(env!("OUT_DIR"), "/machines"));
        let text = lz4_flex::block::decompress_size_prepended(packed).unwrap_or_default();
        String::from_utf8(text).unwrap_or_default()
    })
}
