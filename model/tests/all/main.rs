//! Integration tests of the model crate, one binary.

mod chat_vectors;
mod golden;
