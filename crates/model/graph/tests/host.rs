//! What steps of the host read of a core op is what was written of it.
use layout::Dim;
use shopfloor_graph::*;

fn read(op: &Op) -> Option<HostSpec> {
    serde_json::from_str(&serde_json::to_string(op).unwrap()).ok()
}

#[test]
fn core_ops_of_the_host_are_read_back() {
    let n = Dim::sym("n");
    let (before, after) = (
        vec![n.clone(), Dim::from(0usize)],
        vec![Dim::from(1usize), n.clone()],
    );
    let mode = PadMode::Reflect;
    assert_eq!(
        read(&Op::Pad {
            before: before.clone(),
            after: after.clone(),
            mode
        }),
        Some(HostSpec::Pad {
            before,
            after,
            mode
        })
    );
    assert_eq!(
        read(&Op::ScatterNd(ScatterReduce::Max)),
        Some(HostSpec::ScatterNd(ScatterReduce::Max))
    );
    let monoid = expr::Monoid::sum(layout::DType::F32, layout::DType::F32);
    assert_eq!(
        read(&Op::Scan {
            monoid: monoid.clone(),
            axis: 2,
            exclusive: true,
            reverse: false
        }),
        Some(HostSpec::Scan {
            monoid,
            axis: 2,
            exclusive: true,
            reverse: false
        })
    );
    assert_eq!(
        read(&Op::Sort {
            axis: 1,
            k: n.clone(),
            descending: true
        }),
        Some(HostSpec::Sort {
            axis: 1,
            k: n,
            descending: true
        })
    );
    assert_eq!(read(&Op::Concat { axis: 0 }), None);
}
