//! DFT and STFT in builds without the feature `fft`.
use crate::args::Args;
use crate::error::R;
use tensor::Tensor;

fn absent() -> R<Vec<Tensor>> {
    Err("this build has no Fourier transforms; build it with `--features fft`".into())
}

pub(crate) fn dft(_: &Args) -> R<Vec<Tensor>> {
    absent()
}

pub(crate) fn stft(_: &Args) -> R<Vec<Tensor>> {
    absent()
}
