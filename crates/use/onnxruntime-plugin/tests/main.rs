//! Tests that need no onnxruntime, and one of its tables that runs where its library is.
mod grouping;
mod models;
mod tables;
