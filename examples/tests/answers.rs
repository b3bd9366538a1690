//! The examples give the answers that their models are known for.
use shopfloor_examples::complete_tokens::Answer;
use shopfloor_examples::{
    classify_digit, complete_tokens, detect_speech, hear_many, read_line, sensor_windows,
};

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
    let prompt = [11, 42, 7, 99];
    match (
        complete_tokens::run(&prompt, 8).unwrap(),
        complete_tokens::run(&prompt, 8).unwrap(),
    ) {
        (Answer::Tokens(a, bytes), Answer::Tokens(b, _)) => {
            assert_eq!(a, b);
            assert_eq!(a.len(), 8);
            assert!(bytes > 0);
        }
        (Answer::LeftOut(why), _) => println!("{why}"),
        _ => panic!("the model went away"),
    }
}
