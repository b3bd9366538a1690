//! Text form of kernels and tile programs.
