//! Rates of a GPU's warps.
use shopfloor_machine::{Machine, Pipe, Work};

#[test]
fn a_gpu_has_rates_and_a_cpu_none() {
    let gpu = Machine::load("a100").unwrap();
    let r = gpu.warp_rates().unwrap();
    // 64 lanes of an SM over four schedulers: a warp's 32 take two cycles.
    assert_eq!((r.schedulers, r.turn(Pipe::Fma)), (4.0, 2.0));
    assert!((r.line - 128.0).abs() < 1.0 && r.memory > r.l1);
    let mut turns = [0.0; Pipe::ALL.len()];
    turns[Pipe::Fma as usize] = 100.0;
    assert_eq!(r.issue(&turns), 50.0);
    turns[Pipe::Slot as usize] = 300.0;
    assert_eq!(r.issue(&turns), 100.0);
    // A wave of 64 is two of 32, for each of which a SIMD of 16 lanes takes two cycles.
    let wide = Machine::load("mi300x").unwrap().warp_rates().unwrap();
    assert_eq!(wide.turn(Pipe::Alu), 2.0);
    assert!(Machine::load("zen5-2core").unwrap().warp_rates().is_none());
}

#[test]
fn loads_are_answered_as_far_away_as_their_bytes_are() {
    let gpu = Machine::load("a100").unwrap();
    let r = gpu.warp_rates().unwrap();
    let mut work = Work::default();
    let mean = |work: &Work, asked: f64| {
        let all = r.answers(&gpu, work, asked);
        assert!((all.iter().map(|a| a.0).sum::<f64>() - 1.0).abs() < 1e-9);
        all.iter()
            .map(|(share, cycles)| share * cycles)
            .sum::<f64>()
    };
    assert_eq!(mean(&work, 1e6), r.l1);
    for i in gpu
        .level_index("L2")
        .into_iter()
        .chain([gpu.memory_index()])
    {
        work.add_traffic(i, 1e6, 0.0);
    }
    assert!((mean(&work, 1e6) - r.memory).abs() < 1e-6);
    assert!((mean(&work, 2e6) - (r.l1 + r.memory) / 2.0).abs() < 1e-6);
    assert_eq!(r.answers(&gpu, &work, 2e6)[0], (0.5, r.memory));
}
