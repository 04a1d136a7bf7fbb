//! Progress on stderr: a bar for the current phase, lines for what is worth keeping.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::say;
use crate::observer::{Notice, Observer, Phase};

/// Draws bars on a terminal; elsewhere writes a line per finished phase.
pub(crate) struct Progress {
    is_terminal: bool,
    current: Mutex<Option<Current>>,
}

struct Current {
    phase: Phase,
    bar: ProgressBar,
    started: Instant,
    done: u64,
    fresh: u64,
    tokens: u64,
    figure: String,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            current: Mutex::new(None),
        }
    }

    fn line(&self, current: Option<&Current>, text: &str) {
        match current {
            Some(current) if self.is_terminal => current.bar.suspend(|| say(text)),
            _ => say(text),
        }
    }
}

impl Observer for Progress {
    fn notice(&self, notice: Notice) {
        let mut slot = self
            .current
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match notice {
            Notice::Began(phase) => {
                let bar = if self.is_terminal {
                    bar(&phase)
                } else {
                    ProgressBar::hidden()
                };
                let (started, figure) = (Instant::now(), String::new());
                *slot = Some(Current {
                    phase,
                    bar,
                    started,
                    done: 0,
                    fresh: 0,
                    tokens: 0,
                    figure,
                });
            }
            Notice::Advanced { by, tokens, figure } => {
                if let Some(current) = slot.as_mut() {
                    current.done += by;
                    current.tokens += tokens.unwrap_or(0);
                    current.fresh += u64::from(tokens.is_some());
                    current.figure = figure;
                    current.bar.set_position(current.done);
                    let rate =
                        current.tokens as f64 / current.started.elapsed().as_secs_f64().max(0.1);
                    current
                        .bar
                        .set_message(format!("{}, {rate:.0} tokens/s", current.figure));
                }
            }
            Notice::Ended { took } => {
                if let Some(current) = slot.take() {
                    current.bar.finish_and_clear();
                    if !self.is_terminal || took > Duration::from_secs(30) {
                        say(&summary(&current, took));
                    }
                }
            }
            Notice::Line(text) => self.line(slot.as_ref(), &text),
            Notice::Warning(text) | Notice::Waiting(text) => {
                self.line(slot.as_ref(), &format!("warning: {text}"))
            }
        }
    }
}

fn bar(phase: &Phase) -> ProgressBar {
    let bar = ProgressBar::new(phase.total);
    let template = format!(
        "{{prefix}} {{bar:24}} {{pos}}/{{len}} {} · {{per_sec}} · {{eta}} left · {{msg}}",
        phase.unit
    );
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar.set_prefix(phase.title.clone());
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

fn summary(current: &Current, took: Duration) -> String {
    let Current {
        phase,
        done,
        fresh,
        tokens,
        figure,
        ..
    } = current;
    let seconds = took.as_secs_f64();
    let mut text = format!("  {}: {done}/{} {}", phase.title, phase.total, phase.unit);
    if !figure.is_empty() {
        text.push_str(&format!(", {figure}"));
    }
    // In the journal when the phase began, or begun ahead of it.
    let earlier = done.saturating_sub(*fresh);
    if *fresh == 0 && *done > 0 {
        text.push_str(", done earlier");
    } else {
        text.push_str(&format!(
            ", {seconds:.1} s ({:.1} {}/s, {:.0} tokens/s)",
            *fresh as f64 / seconds.max(0.001),
            phase.unit,
            *tokens as f64 / seconds.max(0.001)
        ));
        if earlier > 0 {
            text.push_str(&format!(", {earlier} done earlier"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_tells_what_it_made_and_what_was_made_before() {
        let summary = |done, fresh, tokens| {
            let phase = Phase {
                title: "test".into(),
                total: 6,
                unit: "rollouts",
            };
            let current = Current {
                phase,
                bar: ProgressBar::hidden(),
                started: Instant::now(),
                done,
                fresh,
                tokens,
                figure: "2/6 solved".into(),
            };
            super::summary(&current, Duration::from_secs(2))
        };
        let rates = "2.0 s (3.0 rollouts/s, 30 tokens/s)";
        assert_eq!(
            summary(6, 6, 60),
            format!("  test: 6/6 rollouts, 2/6 solved, {rates}")
        );
        assert_eq!(
            summary(6, 0, 0),
            "  test: 6/6 rollouts, 2/6 solved, done earlier"
        );
        let rates = "2.0 s (1.0 rollouts/s, 10 tokens/s)";
        assert_eq!(
            summary(6, 2, 20),
            format!("  test: 6/6 rollouts, 2/6 solved, {rates}, 4 done earlier")
        );
    }
}
