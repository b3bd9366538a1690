//! Calculators that need a machine, or only its figures, and nothing else.
