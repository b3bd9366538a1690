//! Requests of many lanes at once: how they lie, and the captions that speak of them. What counts them is
//! elsewhere: the emulator, the threads of `emit::simt`, or a CPU's vectors.
use super::narration::{Build, NumberFormat};
use layout::Inserted;
use report::walk::{LaneRequest, Picture, Scene};
use std::collections::BTreeSet;

/// Keys of a request's figures.
type Keys = [&'static str; 9];

/// Requests that are drawn.
pub(super) const REQUESTS: usize = 6;
/// What captions light them by.
pub(super) const LIT: [&str; REQUESTS] = ["r1", "r2", "r3", "r4", "r5", "r6"];
/// Keys of a request's figures: operand, lanes, how they lie, what is touched, what would do, vectors, those
/// that leave lanes out, what the whole tile touches and what would hold it.
const KEYS: [Keys; REQUESTS] = [
    [
        "name1", "lanes1", "way1", "moved1", "ideal1", "vectors1", "partial1", "tile1", "least1",
    ],
    [
        "name2", "lanes2", "way2", "moved2", "ideal2", "vectors2", "partial2", "tile2", "least2",
    ],
    [
        "name3", "lanes3", "way3", "moved3", "ideal3", "vectors3", "partial3", "tile3", "least3",
    ],
    [
        "name4", "lanes4", "way4", "moved4", "ideal4", "vectors4", "partial4", "tile4", "least4",
    ],
    [
        "name5", "lanes5", "way5", "moved5", "ideal5", "vectors5", "partial5", "tile5", "least5",
    ],
    [
        "name6", "lanes6", "way6", "moved6", "ideal6", "vectors6", "partial6", "tile6", "least6",
    ],
];

/// How lanes lie that take `bytes` each from these addresses, and the distance from lane to lane where it is
/// one.
pub fn way(lanes: &[Option<u64>], bytes: u64) -> (&'static str, Option<i64>) {
    let all: Vec<(usize, u64)> = (0..lanes.len())
        .filter_map(|i| Some((i, lanes[i]?)))
        .collect();
    let mut steps = all.windows(2).map(|w| {
        let (apart, from) = (w[1].0 - w[0].0, w[1].1 as i64 - w[0].1 as i64);
        (from % apart as i64 == 0).then_some(from / apart as i64)
    });
    let Some(first) = steps.next() else {
        return ("contiguous", None);
    };
    match first.filter(|d| steps.all(|s| s == Some(*d))) {
        Some(0) => ("one element", Some(0)),
        Some(d) if d == bytes as i64 => ("contiguous", Some(d)),
        Some(d) => ("strided", Some(d)),
        None => {
            let next = |w: &&[(usize, u64)]| {
                w[1].0 - w[0].0 == 1 && w[1].1 as i64 - w[0].1 as i64 == bytes as i64
            };
            let joined = all.windows(2).filter(next).count();
            match joined * 2 >= all.len() {
                true => ("in rows", None),
                false => ("scattered", None),
            }
        }
    }
}

/// Units of `unit` bytes that lanes of `bytes` each touch, and the fewest that would hold what they ask for.
pub fn touched(lanes: &[Option<u64>], bytes: u64, unit: u64) -> (u64, u64) {
    let (bytes, unit) = (bytes.max(1), unit.max(1));
    let mut units = BTreeSet::new();
    let starts: BTreeSet<u64> = lanes.iter().flatten().copied().inserted();
    for &a in &starts {
        units.extend(a / unit..=(a + bytes - 1) / unit);
    }
    let wanted = (starts.len() as u64).saturating_mul(bytes);
    (units.len() as u64, wanted.div_ceil(unit))
}

/// A request with all that its captions say.
pub(super) struct Narrated {
    pub request: LaneRequest,
    /// The operand.
    pub name: String,
    /// Units that the whole tile touches, and the fewest that would hold it; `None` where it was not counted.
    pub tile: Option<(u64, u64)>,
    /// What a tile is here: `tile of a task`, or `request of the workgroup`.
    pub of: &'static str,
}

/// What a scene's units, lanes and sources are called.
pub(super) struct Words {
    /// `cache line`.
    pub unit: &'static str,
    /// `lane`.
    pub lane: &'static str,
    /// Who counted.
    pub source: String,
}

/// What all requests like one touch together, in a sentence; empty where that is not known.
fn of_all(t: &Narrated, keys: &Keys, words: &Words, b: &mut Build) -> String {
    let Some((lines, least)) = t.tile else {
        return String::new();
    };
    let from = words.source.as_str();
    let name = |what: &str| format!("{}, {}: {what}", t.name, t.request.role);
    let k = |i: usize| format!("{{{}}}", keys[i]);
    b.number(
        keys[7],
        &name("what all of them touch"),
        (lines as f64, NumberFormat::Of(words.unit)),
        "each counted once",
        from,
    );
    b.number(
        keys[8],
        &name("the fewest for all of them"),
        (least as f64, NumberFormat::Whole),
        "",
        from,
    );
    format!(
        " Together they touch {}, where {} would be the least.",
        k(7),
        k(8)
    )
}

/// Caption and figures of one request.
fn told(t: &Narrated, keys: &Keys, words: &Words, b: &mut Build) {
    let r = &t.request;
    let active = r.lanes.iter().flatten().count();
    let from = words.source.as_str();
    b.name(keys[0], "operand", &t.name, from);
    let how = match (r.way, r.stride) {
        ("strided", Some(d)) => format!("strided by {d} bytes"),
        (way, _) => way.to_string(),
    };
    let name = |what: &str| format!("{}, {}: {what}", t.name, r.role);
    b.name(keys[2], &name("how lanes lie"), &how, from);
    let taking = if r.way == "by data" {
        r.lanes.len()
    } else {
        active
    };
    b.number(
        keys[1],
        &name("lanes that take part"),
        (taking as f64, NumberFormat::Of(words.lane)),
        "",
        from,
    );
    b.number(
        keys[3],
        &name("what they touch"),
        (r.moved as f64, NumberFormat::Of(words.unit)),
        "",
        from,
    );
    b.number(
        keys[4],
        &name("the fewest for as many bytes"),
        (r.ideal as f64, NumberFormat::Of(words.unit)),
        format!("{taking} x {} bytes / {}", r.bytes, r.unit),
        from,
    );
    b.number(
        keys[5],
        &name(&format!("for a {}", t.of)),
        (r.issued as f64, NumberFormat::Count),
        "",
        from,
    );
    let k = |i: usize| format!("{{{}}}", keys[i]);
    let verb = if r.role == "store" { "write" } else { "take" };
    let lie = match r.way {
        "one element" => "the same for all of them, read once and repeated",
        "contiguous" => "neighbours in memory",
        "strided" => "apart in memory by the same distance, so each is brought by itself",
        "by data" => "each where the data says",
        "in rows" => "neighbours in rows, the rows apart",
        _ => "here and there",
    };
    let mut text = format!(
        "Of {}, {} {verb} their elements ({}: {lie}). They touch {} where {} would hold them.",
        k(0),
        k(1),
        k(2),
        k(3),
        k(4)
    );
    if let Some(n) = r.partial {
        b.number(
            keys[6],
            &name("vectors that leave lanes out"),
            (n as f64, NumberFormat::Whole),
            format!("of {}", r.issued),
            from,
        );
        text += &format!(
            " {} such vectors cover the {}, {} of them with lanes masked out.",
            k(5),
            t.of,
            k(6)
        );
    } else {
        text += &format!(" The {} makes {} of them.", t.of, k(5));
    }
    text += &of_all(t, keys, words, b);
    let analogy = match r.way {
        "one element" => "Everybody looks at the same sheet.",
        "contiguous" => "Neighbours want what lies on one pallet: few pallets for many hands.",
        "strided" => "Everybody's part lies on a pallet of its own.",
        _ => "The order says which pallet, hand by hand.",
    };
    b.beat(r.lit, text, analogy);
}

/// Captions and figures of `all`, which are drawn.
pub(super) fn scene(mut b: Build, all: Vec<Narrated>, words: &Words) -> Scene {
    for (t, keys) in all.iter().zip(&KEYS).take(REQUESTS) {
        told(t, keys, words, &mut b);
    }
    let requests = all.into_iter().take(REQUESTS).map(|t| t.request);
    b.done(Picture::Lanes {
        requests: requests.collect(),
    })
}
