//! Names of instructions, read and written by the text form and by formulas.
use crate::{Binary, Compare, Unary};

macro_rules! named {
    ($t:ident: $($v:ident $n:literal),* $(,)?) => {
        impl $t {
            /// Every function, in declaration order.
            pub const ALL: &'static [$t] = &[$($t::$v),*];

            /// Name as in text forms.
            pub const fn name(self) -> &'static str {
                match self { $($t::$v => $n),* }
            }

            /// The function named `name`, if any.
            pub fn from_name(name: &str) -> Option<$t> {
                $t::ALL.iter().copied().find(|f| f.name() == name)
            }
        }

        impl std::fmt::Display for $t {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named! { Unary:
    Neg "neg",
    Abs "abs",
    Sqrt "sqrt",
    Rsqrt "rsqrt",
    Reciprocal "reciprocal",
    Exp "exp",
    Log "log",
    Sin "sin",
    Cos "cos",
    Tan "tan",
    Asin "asin",
    Acos "acos",
    Atan "atan",
    Sinh "sinh",
    Cosh "cosh",
    Asinh "asinh",
    Acosh "acosh",
    Atanh "atanh",
    Tanh "tanh",
    Erf "erf",
    Sigmoid "sigmoid",
    Floor "floor",
    Ceil "ceil",
    Round "round",
    Sign "sign",
    Not "not",
    BitNot "bit_not",
    IsNan "is_nan",
    IsInf "is_inf",
}

named! { Binary:
    Add "add",
    Sub "sub",
    Mul "mul",
    Div "div",
    Pow "pow",
    Min "min",
    Max "max",
    Mod "mod",
    Fmod "fmod",
    And "and",
    Or "or",
    Xor "xor",
    Shl "shl",
    Shr "shr",
    Atan2 "atan2",
}

named! { Compare:
    Eq "eq",
    Ne "ne",
    Lt "lt",
    Le "le",
    Gt "gt",
    Ge "ge",
}
