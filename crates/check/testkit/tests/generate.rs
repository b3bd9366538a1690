//! The zoo's generator of weights and inputs.
use half::f16;
use layout::DType;
use testkit::generate::{Source, bits};

/// The worked example of the zoo's description.
#[test]
fn the_worked_example() {
    let seed = 2_593_965_085;
    let source = Source::new(seed, -0.471_329_391_002_655_03, 0.471_251_964_569_091_8);
    let want = [
        (0x6748_9553_a904_b423u64, 6_768_789u64, 0xbdba_7524u32),
        (0x44fa_fad1_15eb_60d9, 4_520_698, 0xbe5e_9016),
        (0x38c1_cc95_c6f3_d02e, 3_719_628, 0xbe86_530e),
        (0x11cf_2158_027a_8857, 1_167_137, 0xbecf_bf63),
    ];
    for (i, (z, top, v)) in want.into_iter().enumerate() {
        let got = bits(seed, i as u64);
        assert_eq!(
            (got, got >> 40, source.value(i as u64).to_bits()),
            (z, top, v)
        );
    }
}

/// Every type holds what the description says of the f32 value.
#[test]
fn all_types_agree_with_the_value() {
    for (lo, hi) in [
        (-300.0, 300.0),
        (-1.0, 2.0),
        (-70_000.0, 70_000.0),
        (-1e20, 1e20),
    ] {
        let source = Source::new(7, lo, hi);
        for dtype in DType::ALL {
            let n = 101;
            let t = source.tensor(dtype, &[n]).unwrap();
            for i in 0..n {
                let v = source.value(i as u64);
                let down = f64::from(v.floor());
                let clamp = |a: f64, b: f64| down.clamp(a, b) as i64;
                match dtype {
                    DType::F32 | DType::F64 => assert_eq!(t.get_f64(i), f64::from(v)),
                    DType::F16 => assert_eq!(t.get_f64(i), f16::from_f32(v).to_f64()),
                    DType::BF16 => {
                        let b = v.to_bits();
                        let even = (b + 0x7FFF + (b >> 16 & 1)) & 0xFFFF_0000;
                        assert_eq!(t.get_f64(i), f64::from(f32::from_bits(even)));
                    }
                    DType::Bool => assert_eq!(t.get_i64(i), i64::from(down != 0.0)),
                    DType::Str | DType::Host => panic!("{dtype} has no numbers"),
                    DType::I4 => assert_eq!(t.get_i64(i), clamp(-8.0, 7.0)),
                    DType::U4 => assert_eq!(t.get_i64(i), clamp(0.0, 15.0)),
                    DType::I8 => assert_eq!(t.get_i64(i), clamp(-128.0, 127.0)),
                    DType::U8 => assert_eq!(t.get_i64(i), clamp(0.0, 255.0)),
                    DType::I16 => assert_eq!(t.get_i64(i), clamp(-32768.0, 32767.0)),
                    DType::U16 => assert_eq!(t.get_i64(i), clamp(0.0, 65535.0)),
                    DType::I32 => {
                        assert_eq!(t.get_i64(i), clamp(-2_147_483_648.0, 2_147_483_647.0))
                    }
                    DType::U32 => assert_eq!(t.get_i64(i), clamp(0.0, 4_294_967_295.0)),
                    DType::I64 => assert_eq!(t.get_i64(i), down as i64),
                    DType::U64 => assert_eq!(t.get_i64(i) as u64, down as u64),
                }
            }
        }
    }
}

#[test]
fn an_odd_last_nibble_is_zero_and_blocks_join() {
    let source = Source::new(3, -8.0, 8.0);
    let whole = source.tensor(DType::I4, &[7]).unwrap();
    assert_eq!(whole.bytes()[3] >> 4, 0);
    let mut parts = Vec::new();
    source.append(DType::I4, 0, 4, &mut parts);
    source.append(DType::I4, 4, 7, &mut parts);
    assert_eq!(parts, whole.bytes());
}
