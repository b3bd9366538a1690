//! What a request takes beside its steps.
use plan::{Span, Timeline};
use shopfloor_report::Overhead;

fn request(spans: &[(u32, u64, u64)], total_ns: u64, descheduled_ns: &[u64]) -> Timeline {
    let span = |&(worker, start_ns, end_ns): &(u32, u64, u64)| Span {
        step: 0,
        worker,
        first_task: worker,
        tasks: 1,
        start_ns,
        end_ns,
    };
    Timeline {
        steps: vec!["a".into()],
        spans: spans.iter().map(span).collect(),
        total_ns,
        descheduled_ns: descheduled_ns.to_vec(),
        ..Timeline::default()
    }
}

#[test]
fn every_part_of_a_request_is_found() {
    // 1 us of the host before, two workers abreast for 3 us, 2 us nobody, 1 us more, 1 us of the host.
    let steady = request(
        &[(0, 1000, 3000), (1, 2000, 4000), (0, 6000, 7000)],
        8000,
        &[0, 0],
    );
    let o = Overhead::of(&[steady.clone(), steady.clone(), steady.clone()]).expect("timed");
    let m = o.median;
    assert_eq!((m.request_us, m.steps_us), (8.0, 4.0));
    assert_eq!((m.waited_us, m.host_us), (2.0, 2.0));
    assert_eq!((m.descheduled_us, o.descheduled), (Some(0.0), 0));
    assert_eq!(
        o.sentence(),
        "beside its steps a request takes 2.00 us before the first and after the last, and 2.00 us between them"
    );
    // A worker loses its processor for 3 ms in the middle of a step.
    let lost = request(
        &[
            (0, 1000, 3000),
            (1, 2000, 3_004_000),
            (0, 3_006_000, 3_007_000),
        ],
        3_008_000,
        &[0, 3_000_000],
    );
    let o = Overhead::of(&[steady.clone(), steady.clone(), lost]).expect("timed");
    assert_eq!((o.median, o.descheduled), (m, 1));
    let said = o.sentence();
    assert!(
        said.contains("in 1 of 3 a worker had no processor for a while"),
        "{said}"
    );
    let slowest = "the slowest took 3.01 ms, 3.00 ms without a processor for a worker";
    assert!(said.ends_with(slowest), "{said}");
    // The host took long, and nobody says who had the processor.
    let host = request(&[(0, 90_000, 94_000)], 100_000, &[]);
    let o = Overhead::of(&[steady.clone(), steady, host]).expect("timed");
    let said = o.sentence();
    assert!(
        said.ends_with("the slowest took 100 us, 94.0 us more before the first and after the last"),
        "{said}"
    );
    assert!(Overhead::of(&[Timeline::default()]).is_none());
}
