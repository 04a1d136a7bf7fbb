//! coharness: co-evolution of a harness and a model, in rounds (Co-Harness, arXiv:2607.22688).
//!
//! [`run::run`] is the entry: it takes a [`config::Loaded`] configuration and goes through rounds of
//! harness loop and model loop, in a directory that a killed run goes on from.
//!
//! - [`config`], [`splits`], [`builtin`]: what is to be done, on which problems.
//! - [`workshop`] holds what every step works with; [`harness_loop`] and [`model_loop`] are the two
//!   loops, [`gate`] the decision both share, [`rollouts`] rolls out many trials at once;
//!   [`history`] is what was tried so far.
//! - [`training_rows`] says what teaches, and what is validated on; `training_room` whether it can be
//!   trained on here, `fine_tune` does it, and `trained_weights` keeps what comes out; [`left_out`]
//!   counts what isn't trained on.
//! - [`removal`] tries the head without the patches it has; [`retention`] looks after a round whether it
//!   has lost what it should keep, [`reference`](mod@reference) whether it is behind what it was;
//!   [`standing`] is what the run stands on, and the way back.
//! - [`store`] is the journal, [`report`] what it says, `signs` what a running process says of itself; [`sealed_test`] scores what the run stands on,
//!   [`evaluation`] one harness alone.
//! - `judges` tries the verifiers that are programs, `golds` what verifiers are given to compare with; `counted` writes numbers with their nouns.
//! - [`chat_rows`] reads and writes conversations as JSON lines.
//! - [`budget`] counts what the whole run has spent of what it may.
//! - [`serving`] and [`critic_chat`] speak to servers, [`serve_model`] is one, [`observer`] and [`stop`] to whoever
//!   watches.
//!
//! The library prints nothing; [`cli`] is the binary.

pub mod arithmetic;
pub mod base_model;
pub mod budget;
pub mod builtin;
pub mod chat_rows;
pub mod cli;
pub mod clock;
pub mod config;
mod counted;
pub mod critic_chat;
mod critique;
mod diagnosis;
mod engines;
pub mod error;
pub mod evaluation;
mod fine_tune;
pub mod gate;
mod golds;
pub mod harness_loop;
pub mod history;
mod judges;
pub mod left_out;
mod lineage;
pub mod model_loop;
pub mod observer;
mod rechecking;
pub mod reference;
pub mod removal;
pub mod report;
pub mod retention;
pub mod rollouts;
pub mod run;
mod screening;
pub mod sealed_test;
pub mod seed;
mod selection;
pub mod serve_model;
pub mod serving;
mod signs;
pub mod splits;
pub mod standing;
pub mod stop;
pub mod store;
mod trained_weights;
mod training_room;
pub mod training_rows;
pub mod workshop;
