//! How far away a value lies that is read again.
use shopfloor_planner::internals::Recency;

#[test]
fn a_value_just_made_is_near_and_a_weight_is_a_request_away() {
    let steps = [
        vec![(0, 1000.0, false), (1, 10.0, true)],
        vec![(2, 2000.0, false), (1, 10.0, true), (3, 20.0, true)],
    ];
    let mut r = Recency::of(&steps, None);
    assert_eq!((r.arena, r.everything), (30.0, 3030.0));
    assert_eq!(r.distance(0, 1000.0, false), 4030.0);
    r.touch(&[(0, 1000.0), (1, 10.0)]);
    assert_eq!(r.distance(1, 10.0, false), 10.0);
    assert_eq!(r.distance(3, 20.0, true), 50.0);
}
