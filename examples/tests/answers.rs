//! The examples give the answers that their models are known for.
use shopfloor_examples::{
    classify_digit, complete_tokens, detect_speech, hear_many, many_at_once, own_operator,
    read_line, sensor_windows,
};
use testkit::zoo;

#[test]
fn digits_are_read() {
    let a = classify_digit::run().unwrap();
    let right = a.read.iter().zip(&a.truth).filter(|(r, t)| r == t).count();
    assert_eq!((a.truth.len(), right), (450, 447));
}

#[test]
fn speech_is_found() {
    let a = detect_speech::run().unwrap();
    // What the model's description states, from the reference run.
    for (chunk, want) in [
        (0, 0.03488),
        (22, 0.00303),
        (25, 0.92372),
        (28, 0.23307),
        (32, 0.99949),
    ] {
        assert!(
            (a.speech[chunk] - want).abs() < 2e-4,
            "chunk {chunk}: {} should be {want}",
            a.speech[chunk]
        );
    }
    let first = a.stretches()[0];
    assert!((first.0 - 0.8).abs() < 1e-6, "{first:?}");
}

#[test]
fn every_microphone_hears_what_one_alone_does() {
    let want = detect_speech::run().unwrap().speech;
    for (m, heard) in hear_many::run(3).unwrap().iter().enumerate() {
        assert_eq!(heard.len(), want.len());
        for (i, (h, w)) in heard.iter().zip(&want).enumerate() {
            assert!((h - w).abs() < 1e-5, "microphone {m}, chunk {i}: {h} {w}");
        }
    }
}

#[test]
fn the_line_is_read() {
    assert_eq!(read_line::run().unwrap(), "Order 4711: 25 bolts");
}

#[test]
fn windows_add_up_on_the_cpu_and_on_an_emulated_gpu() {
    let all = ["cpu", "emulated:t4"].map(|d| (d, sensor_windows::run(d).unwrap()));
    // The same by PTX of its own, which a CPU passes over.
    let own = ["cpu", "emulated:a100,checks"];
    let own = own.map(|d| (d, sensor_windows::run_ptx(d).unwrap()));
    for (device, a) in all.into_iter().chain(own) {
        assert_eq!(a.variance.len(), sensor_windows::SENSORS);
        assert_eq!(a.state_bytes, 3 * 4 * sensor_windows::SENSORS as u64);
        for (s, (got, want)) in a.variance.iter().zip(&a.want).enumerate() {
            assert!(
                (got - want).abs() < 1e-4 * want.abs(),
                "{device}, sensor {s}: {got} {want}"
            );
        }
    }
}

#[test]
fn tokens_are_completed_the_same_twice() {
    const MODEL: &str = "llama_gqa_ts";
    let Some(model) = zoo::find(MODEL) else {
        println!("{}", zoo::left_out(&[MODEL]));
        return;
    };
    let prepared = model.prepare_temporary().unwrap();
    let run = || complete_tokens::run(&prepared.model, &[11, 42, 7, 99], 8).unwrap();
    let (a, b) = (run(), run());
    assert_eq!(a.tokens, b.tokens);
    assert_eq!(a.tokens.len(), 8);
    assert!(a.state_bytes > 0);
}

#[test]
fn digits_are_read_by_many_requests_at_once() {
    let a = many_at_once::run().unwrap();
    assert_eq!((a.all, a.right), (450, 447));
}

#[test]
fn a_closure_runs_as_an_operator() {
    let model = own_operator::model();
    let y = own_operator::run(&model, &[0.5, -0.25, -2.0, 3.0]).unwrap();
    assert_eq!(y, [0.0, 0.0, -2.0, 3.0]);
}
