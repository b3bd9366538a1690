//! Floats of 8, 6 and 4 bits.
use shopfloor_hostops::internals::{named, power};

#[test]
fn codes_survive_the_way_there_and_back() {
    for name in [
        "float8e4m3fn",
        "float8e4m3fnuz",
        "float8e5m2",
        "float8e5m2fnuz",
        "float6e2m3",
        "float6e3m2",
        "float4e2m1",
    ] {
        let Some(f) = named(name) else {
            panic!("{name} is no float");
        };
        for code in 0..=(f.sign() - 1) | f.sign() {
            let v = f.decode(code);
            if !v.is_nan() {
                assert_eq!(f.encode(v, false), code, "{name} {code} {v}");
            }
        }
    }
}

#[test]
fn values_of_the_standard() {
    let f = |name| named(name).unwrap_or_else(|| panic!("{name} is no float"));
    assert_eq!(f("float8e4m3fn").decode(f("float8e4m3fn").largest()), 448.0);
    assert_eq!(f("float8e4m3fnuz").decode(0x7f), 240.0);
    assert_eq!(f("float8e5m2").decode(f("float8e5m2").largest()), 57344.0);
    assert_eq!(f("float8e5m2fnuz").decode(0x7f), 57344.0);
    assert_eq!(f("float4e2m1").decode(7), 6.0);
    assert_eq!(f("float6e2m3").decode(31), 7.5);
    assert_eq!(f("float6e3m2").decode(31), 28.0);
    assert_eq!(f("float8e4m3fn").encode(1e6, true), 0x7e);
    assert_eq!(f("float8e4m3fn").encode(1e6, false), 0x7f);
    assert_eq!(f("float8e5m2").encode(1e6, false), 0x7c);
    assert_eq!(f("float8e4m3fnuz").encode(-0.0, true), 0);
    assert_eq!(power(1.5, true, "up"), 128);
    assert_eq!(power(1.25, true, "nearest"), 127);
    assert_eq!(power(4.0, true, "up"), 129);
}
