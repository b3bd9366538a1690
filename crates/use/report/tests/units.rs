//! Numbers with units, and texts that fit.
use shopfloor_report::units::{
    byte_rate, bytes, common_path, count, percent, seconds, shortened, signed_percent, wrapped,
};

#[test]
fn three_digits_and_a_unit() {
    assert_eq!(count(23_658.0), "23.7 k");
    assert_eq!(count(7.0), "7");
    assert_eq!(count(999_960.0), "1.00 M");
    assert_eq!(bytes(96_912.0), "94.6 KiB");
    assert_eq!(bytes(0.0), "0 B");
    assert_eq!(seconds(4.2e-5), "42.0 us");
    assert_eq!(seconds(1.5e-7), "150 ns");
    assert_eq!(byte_rate(1.0e11), "100 GB/s");
    assert_eq!(percent(0.1234), "12.3%");
    assert_eq!(signed_percent(-0.5), "-50%");
    assert_eq!(signed_percent(18.0), "19x");
    assert_eq!(signed_percent(f64::INFINITY), "-");
}

#[test]
fn cut_in_the_middle() {
    assert_eq!(shortened("/layer1/conv2/Conv", 9), "/lay…Conv");
    assert_eq!(shortened("abc", 3), "abc");
    assert_eq!(
        common_path(["/a/b/c", "/a/b/d", "/a/bc"].into_iter()),
        "/a/"
    );
    assert_eq!(common_path(["x", "y"].into_iter()), "");
    assert_eq!(wrapped("a bb ccc", 4), ["a bb", "ccc"]);
}
