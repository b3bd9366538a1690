//! The suite's choices: drawn from a seed, or gone through one after the other.
/// Numbers that are the same in every run: drawn, or every choice in turn ([`Rng::in_turn`]).
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
    turn: Option<Turn>,
}

/// Choices that are gone through one after the other.
#[derive(Clone, Debug, Default)]
struct Turn {
    /// What was taken, of how many.
    taken: Vec<(usize, usize)>,
    /// How many of them the present case has made.
    at: usize,
    /// What extents are, in the order in which they are asked for.
    extents: Vec<i64>,
    /// How many were asked for.
    asked: usize,
}

/// An extent that nobody gave.
const PLAIN: i64 = 3;

impl Rng {
    /// A sequence of its own per seed.
    pub fn new(seed: u64) -> Rng {
        Rng {
            state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            turn: None,
        }
    }

    /// Every choice in turn: between [`Rng::begin`] and the next it makes the same ones, [`Rng::advance`] goes on
    /// to others. Extents are no choices but those that `begin` is given.
    pub fn in_turn() -> Rng {
        Rng {
            turn: Some(Turn::default()),
            ..Rng::new(0)
        }
    }

    /// Makes the present choices again, with these extents.
    pub fn begin(&mut self, extents: &[i64]) {
        if let Some(t) = &mut self.turn {
            (t.at, t.asked) = (0, 0);
            t.extents = extents.to_vec();
        }
    }

    /// How many extents were asked for since [`Rng::begin`].
    pub fn extents(&self) -> usize {
        self.turn.as_ref().map_or(0, |t| t.asked)
    }

    /// Goes on to the next choices; false when all were made.
    pub fn advance(&mut self) -> bool {
        let Some(t) = &mut self.turn else {
            return false;
        };
        t.taken.truncate(t.at);
        while let Some((i, n)) = t.taken.pop() {
            if i + 1 < n {
                t.taken.push((i + 1, n));
                return true;
            }
        }
        false
    }

    /// 64 bits, by xorshift64*.
    pub fn bits(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// In `0..n`, which is at least 1.
    pub fn below(&mut self, n: usize) -> usize {
        let Some(t) = &mut self.turn else {
            return ((self.bits() >> 33) % n.max(1) as u64) as usize;
        };
        if t.at == t.taken.len() {
            t.taken.push((0, n));
        }
        t.at += 1;
        t.taken[t.at - 1].0
    }

    /// One of `list`.
    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// In -1..1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// True once in `n`.
    pub fn once_in(&mut self, n: usize) -> bool {
        match self.turn {
            Some(_) => self.below(2) == 0,
            None => self.below(n) == 0,
        }
    }

    /// An extent: often 1, a prime, odd or a power of two, now and then 0. In turn: that which [`Rng::begin`] gave.
    pub fn extent(&mut self, most: i64) -> i64 {
        if let Some(t) = &mut self.turn {
            t.asked += 1;
            return t.extents.get(t.asked - 1).copied().unwrap_or(PLAIN);
        }
        let n = self.of(&[
            0i64, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 37, 64, 67,
        ]);
        n.min(most)
    }

    /// As [`Rng::extent`], at least 1 where it is drawn.
    pub fn some(&mut self, most: i64) -> i64 {
        match self.turn {
            Some(_) => self.extent(most),
            None => self.extent(most).max(1),
        }
    }

    /// A factor of an extent: `n` where it is drawn, 1 in turn, so that the extent is the one given.
    pub(crate) fn times(&self, n: i64) -> i64 {
        if self.turn.is_some() { 1 } else { n }
    }
}
