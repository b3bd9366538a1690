//! Text form of programs and plans.
