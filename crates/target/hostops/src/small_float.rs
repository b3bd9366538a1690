//! Floats of 8, 6 and 4 bits as codes in bytes, and powers of two in 8 bits.

/// What stands beyond the largest number of a float type.
#[derive(Clone, Copy, PartialEq)]
pub enum Top {
    /// An infinity, and NaNs behind it.
    Infinity,
    /// One NaN, the largest code.
    Nan,
    /// Nothing: the code of negative zero is the NaN.
    Unsigned,
    /// Nothing at all.
    Finite,
}

/// A small float type: sign, exponent and mantissa, each with its number of bits.
#[derive(Clone, Copy)]
pub struct Float {
    /// Bits of the exponent.
    pub exponent: u32,
    /// Bits of the mantissa.
    pub mantissa: u32,
    bias: i32,
    top: Top,
}

const fn float(exponent: u32, mantissa: u32, bias: i32, top: Top) -> Float {
    Float {
        exponent,
        mantissa,
        bias,
        top,
    }
}

impl Float {
    /// Bit of the sign.
    pub fn sign(self) -> u8 {
        1 << (self.exponent + self.mantissa)
    }

    /// Code of the largest finite number.
    pub fn largest(self) -> u8 {
        match self.top {
            Top::Infinity => (((1 << self.exponent) - 1) << self.mantissa) - 1,
            Top::Nan => self.sign() - 2,
            Top::Unsigned | Top::Finite => self.sign() - 1,
        }
    }

    /// The number of a code without sign, as if there were no special ones.
    fn magnitude(self, code: u8) -> f64 {
        let fraction = (code & ((1 << self.mantissa) - 1)) as f64;
        let e = (code >> self.mantissa) as i32;
        let one = (1u32 << self.mantissa) as f64;
        match e {
            0 => fraction / one * f64::powi(2.0, 1 - self.bias),
            _ => (1.0 + fraction / one) * f64::powi(2.0, e - self.bias),
        }
    }

    /// The number of a code.
    pub fn decode(self, code: u8) -> f64 {
        let (negative, code) = (code & self.sign() != 0, code & (self.sign() - 1));
        if negative && code == 0 && self.top == Top::Unsigned {
            return f64::NAN;
        }
        let v = match self.top {
            Top::Infinity if code == self.largest() + 1 => f64::INFINITY,
            Top::Infinity | Top::Nan if code > self.largest() => f64::NAN,
            _ => self.magnitude(code),
        };
        if negative { -v } else { v }
    }

    fn nan(self, sign: u8) -> u8 {
        match self.top {
            Top::Infinity => sign | (self.sign() - 2),
            Top::Nan => sign | (self.sign() - 1),
            Top::Unsigned | Top::Finite => self.sign(),
        }
    }

    /// The code of the number nearest to `v`; `saturate`: of the largest for what lies beyond it.
    pub fn encode(self, v: f64, saturate: bool) -> u8 {
        let sign = if v.is_sign_negative() { self.sign() } else { 0 };
        if v.is_nan() {
            return self.nan(sign);
        }
        let v = v.abs();
        let last = self.largest();
        // The first code that is not smaller; codes rise with their numbers.
        let (mut low, mut high) = (0u8, last);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.magnitude(middle) < v {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let above = self.magnitude(low);
        let code = if above >= v {
            let below = low.saturating_sub(1);
            let (up, down) = (above - v, v - self.magnitude(below));
            // Ties go to the even code.
            if low > 0 && (down < up || (down == up && below % 2 == 0)) {
                below
            } else {
                low
            }
        } else {
            // Beyond the largest number: what would round down to it is it.
            let step = above - self.magnitude(last - 1);
            let half = above + step / 2.0;
            let rounds = v < half || (v == half && last.is_multiple_of(2));
            match (saturate || rounds, self.top) {
                (true, _) | (_, Top::Finite) => last,
                (_, Top::Infinity) => last + 1,
                _ => return self.nan(sign),
            }
        };
        match self.top {
            Top::Unsigned if code == 0 => 0,
            _ => sign | code,
        }
    }
}

/// The float type of this name.
pub fn named(name: &str) -> Option<Float> {
    Some(match name {
        "float8e4m3fn" => float(4, 3, 7, Top::Nan),
        "float8e4m3fnuz" => float(4, 3, 8, Top::Unsigned),
        "float8e5m2" => float(5, 2, 15, Top::Infinity),
        "float8e5m2fnuz" => float(5, 2, 16, Top::Unsigned),
        "float6e2m3" => float(2, 3, 1, Top::Finite),
        "float6e3m2" => float(3, 2, 3, Top::Finite),
        "float4e2m1" => float(2, 1, 1, Top::Finite),
        _ => return None,
    })
}

/// The power of two for `v`: its exponent plus 127.
pub fn power(v: f64, saturate: bool, round: &str) -> u8 {
    if v.is_nan() {
        return 255;
    }
    let (v, top) = (v.abs(), if saturate { 254.0 } else { 255.0 });
    if v.is_infinite() {
        return top as u8;
    }
    if v == 0.0 {
        return 0;
    }
    let low = v.log2().floor();
    // log2 of a number just below a power may be rounded up to it.
    let low = if f64::powf(2.0, low) > v {
        low - 1.0
    } else {
        low
    };
    let base = f64::powf(2.0, low);
    let up = match round {
        "down" => false,
        "nearest" => v / base >= 1.5,
        _ => v > base,
    };
    (low + 127.0 + f64::from(up)).clamp(0.0, top) as u8
}
