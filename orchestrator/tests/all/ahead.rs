//! Rollouts made ahead of the phase that needs them: they begin beside the last ones of the phase before,
//! and nothing else changes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use coharness::error::RunError;
use coharness::history::History;
use coharness::observer::{Notice, Observer};
use coharness::report::Report;
use coharness::splits::Splits;
use coharness::store::{Made, TrajectoryFilter};
use coharness::workshop::Workshop;
use rollout::{BoxFuture, Completion, CompletionRequest, Message, Policy, PolicyError, PolicyId};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::counting::{self, boxed};
use crate::decisions::{contrary, squares};
use crate::scene::{FortyTwo, Scene, Scripted, small};
use crate::server::{Answer, config, number, serve};
use crate::{Place, forget_times, tasks};

/// Problems that the critic sees; those with higher numbers are the gate's. All together have room under
/// the shipped harness.
const EVOLVE: u32 = 12;
const GATE: u32 = 40;

/// The problem that a diagnosis waits for, and one of the gate's.
const STRAGGLER: u32 = 1;
const LATE: u32 = 20;

/// Longer than any test takes, unless somebody waits for ever.
const PATIENCE: Duration = Duration::from_secs(120);

/// A request: the problem's number, and the seed.
type Asked = (u32, u64);

/// Requests so far, and whether a classification has begun as a phase.
#[derive(Clone)]
struct Log {
    asked: Arc<watch::Sender<Vec<Asked>>>,
    is_classifying: Arc<AtomicBool>,
}

impl Log {
    fn new() -> Self {
        Self {
            asked: Arc::new(watch::Sender::new(Vec::new())),
            is_classifying: Arc::default(),
        }
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.borrow().clone()
    }

    fn is_classifying(&self) -> bool {
        self.is_classifying.load(Ordering::Relaxed)
    }

    /// Has whoever waits look again.
    fn stir(&self) {
        self.asked.send_modify(|_| {});
    }
}

impl Observer for Log {
    fn notice(&self, notice: Notice) {
        if let Notice::Began(phase) = notice
            && phase.title.ends_with("classify")
        {
            self.is_classifying.store(true, Ordering::Relaxed);
            self.stir();
        }
    }
}

/// Whether a request on a problem may be answered, after all these.
type IsReady = dyn Fn(u32, &[Asked]) -> bool + Send + Sync;

/// A model that keeps some requests waiting for others.
struct Waiting {
    inner: Arc<dyn Policy>,
    log: Log,
    is_ready: Box<IsReady>,
}

impl Waiting {
    fn policy(
        inner: Arc<dyn Policy>,
        log: &Log,
        is_ready: impl Fn(u32, &[Asked]) -> bool + Send + Sync + 'static,
    ) -> Arc<dyn Policy> {
        Arc::new(Self {
            inner,
            log: log.clone(),
            is_ready: Box::new(is_ready),
        })
    }
}

impl Policy for Waiting {
    fn id(&self) -> &PolicyId {
        self.inner.id()
    }

    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        Box::pin(async move {
            let (number, seed) = (squares(&request.messages), request.seed);
            let mut asked = self.log.asked.subscribe();
            self.log
                .asked
                .send_modify(|asked| asked.push((number, seed)));
            let ready = asked.wait_for(|asked| (self.is_ready)(number, asked));
            assert!(ready.await.is_ok());
            let completion = self.inner.complete(request).await;
            self.log.stir();
            completion
        })
    }
}

fn count_of_gate(asked: &[Asked]) -> usize {
    let of_gate = asked.iter().filter(|(number, _)| *number > EVOLVE);
    of_gate.count()
}

/// A run with a server that takes so many requests at a time. With one there is no room beside a rollout.
async fn workshop(directory: &Path, in_flight: u32, log: &Log) -> Workshop {
    let mut tasks = counting::squares(EVOLVE + GATE);
    let mut splits = Splits::only_test(Vec::new());
    splits.gate = tasks.split_off(EVOLVE as usize);
    splits.evolve = tasks;
    let more = "gate: {mode: paper, tasks: 40}
harness_loop: {iterations: 2, diagnose_tasks: 12, candidates: 100}
faults: {first_pause_ms: 1, longest_pause_s: 1}";
    let server = format!("/v1', model: none, in_flight: {in_flight}}}");
    let config = small([EVOLVE, GATE, 1], more).replace("/v1', model: none}", &server);
    let scene = Scene {
        config: &config,
        splits,
        directory,
        is_aloud: false,
    };
    let start = harness::naive().expect("the shipped harness");
    let (tools, observer) = (Arc::new(FortyTwo), Arc::new(log.clone()));
    scene.watched(&start, tools, observer).await
}

/// A round's harness loop; the report without times.
async fn round(workshop: &Workshop, policy: &Arc<dyn Policy>) -> Result<Value, RunError> {
    let start = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let looped = workshop.harness_loop(1, start, policy, &mut history);
    let looped = tokio::time::timeout(PATIENCE, looped).await;
    looped.expect("nobody waits for ever")?;
    let report = Report::read(&workshop.store).await.expect("a report");
    let mut report = serde_json::to_value(report).expect("JSON");
    forget_times(&mut report);
    Ok(report)
}

/// The same with a phase after the other, and all that is asked.
async fn one_after_the_other(inner: Arc<dyn Policy>) -> (Value, Vec<Asked>) {
    let (place, log) = (Place::new(), Log::new());
    let workshop = workshop(place.path(), 1, &log).await;
    let policy = Waiting::policy(inner, &log, |_, _| true);
    let report = round(&workshop, &policy).await.expect("a round");
    (report, log.asked())
}

/// The same where the diagnosis can't end before the whole classification has begun, and one rollout of
/// that doesn't end before its own phase has.
async fn side_by_side(inner: Arc<dyn Policy>) -> (Value, Vec<Asked>) {
    let (place, log) = (Place::new(), Log::new());
    let workshop = workshop(place.path(), 256, &log).await;
    let known = log.clone();
    let policy = Waiting::policy(inner, &log, move |number, asked| match number {
        STRAGGLER => count_of_gate(asked) >= GATE as usize,
        LATE => known.is_classifying(),
        _ => true,
    });
    let report = round(&workshop, &policy).await.expect("a round");
    (report, log.asked())
}

/// What was asked beyond `few` requests, which have to be among the `many`.
fn beyond(mut many: Vec<Asked>, few: &[Asked]) -> Vec<Asked> {
    for request in few {
        let place = many.iter().position(|known| known == request);
        many.swap_remove(place.expect("it was asked"));
    }
    many
}

fn wrong_answer(messages: &[Message]) -> String {
    boxed(4 * squares(messages) + 1)
}

fn wrong() -> Arc<dyn Policy> {
    Scripted::policy("wrong", wrong_answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_classification_begins_beside_the_last_rollout_of_the_diagnosis() {
    let (alone, asked) = one_after_the_other(wrong()).await;
    let (report, more) = side_by_side(wrong()).await;
    assert!(alone["patches"]["rejected"].as_u64().expect("a count") > 0);
    assert_eq!(report, alone);
    // Everything once.
    let more = beyond(more, &asked);
    assert!(more.is_empty(), "{more:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_an_accepted_patch_is_made_ahead_too() {
    let policy = || contrary(&Arc::new(AtomicBool::new(false)));
    let (alone, asked) = one_after_the_other(policy()).await;
    let (report, more) = side_by_side(policy()).await;
    assert_eq!(alone["patches"]["accepted"], 1, "{alone}");
    assert_eq!(report, alone);
    // Under the new version nothing was left to propose, and its classification was in vain.
    let of_evolve = |all: &[Asked]| -> Vec<Asked> {
        let of_evolve = all.iter().filter(|(number, _)| *number <= EVOLVE);
        of_evolve.copied().collect()
    };
    let more = beyond(of_evolve(&more), &of_evolve(&asked));
    assert!(more.is_empty(), "{more:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_asks_for_is_not_counted() {
    let right = || Scripted::policy("right", |messages| boxed(4 * squares(messages)));
    let (alone, asked) = one_after_the_other(right()).await;
    let (report, more) = side_by_side(right()).await;
    let counts = (&report["rollouts"], &report["gate"]["rollouts"]);
    assert_eq!(counts, (&json!(EVOLVE), &json!(0)));
    assert_eq!(report, alone);
    // Where there is no room, the first one has begun between two phases.
    let counts = (count_of_gate(&more), count_of_gate(&asked));
    assert!(counts.0 == GATE as usize && counts.1 <= 1, "{counts:?}");
}

/// However many rollouts a harness has at a time: a model in this process decodes 64 requests together.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_rollouts_wait_for_no_place_in_the_batch() {
    const MANY: u32 = 80;
    const BATCH: usize = 64;
    let (place, log) = (Place::new(), Log::new());
    let mut tasks = counting::squares(EVOLVE + MANY);
    let mut splits = Splits::only_test(Vec::new());
    splits.gate = tasks.split_off(EVOLVE as usize);
    splits.evolve = tasks;
    let config = small([EVOLVE, MANY, 1], "harness_loop: {diagnose_tasks: 12}");
    let lines = config.lines().filter(|line| !line.starts_with("policy:"));
    let config = lines.collect::<Vec<_>>().join("\n");
    let scene = Scene {
        config: &config,
        splits,
        directory: place.path(),
        is_aloud: false,
    };
    let mut start = harness::naive().expect("the shipped harness");
    start.middleware.runtime.parallel_rollouts = 200;
    let workshop = scene.with_tools(&start, Arc::new(FortyTwo)).await;
    let right = Scripted::policy("right", |messages| boxed(4 * squares(messages)));
    let policy = Waiting::policy(right, &log, |number, asked| match number {
        STRAGGLER => count_of_gate(asked) >= BATCH - 1,
        number => number <= EVOLVE,
    });
    round(&workshop, &policy).await.expect("a round");
    // Time for whatever was begun to ask.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begun = count_of_gate(&log.asked());
    assert!((BATCH - 1..=BATCH).contains(&begun), "{begun}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_stopped_stores_what_is_in_flight_and_makes_nothing_again() {
    let (alone, asked) = one_after_the_other(wrong()).await;
    let (place, log) = (Place::new(), Log::new());
    let stopped = workshop(place.path(), 256, &log).await;
    let file = place.path().join("stop");
    // The last rollout of the diagnosis asks to stop; those made ahead end after that.
    let (stop, stops) = (file.clone(), file.clone());
    let inner = Scripted::failing("wrong", move |messages| {
        if squares(messages) == STRAGGLER {
            std::fs::write(&stop, "").expect("the file that stops");
        }
        Ok(wrong_answer(messages))
    });
    let policy = Waiting::policy(inner, &log, move |number, asked| match number {
        STRAGGLER => count_of_gate(asked) >= GATE as usize,
        number => number <= EVOLVE || stops.exists(),
    });
    let error = round(&stopped, &policy).await.expect_err("it stops");
    assert!(matches!(error, RunError::Stopped { .. }), "{error}");
    let before = log.asked();
    assert_eq!(before.len(), (EVOLVE + GATE) as usize);
    let ahead = stopped.store.made_ahead().await.expect("ids");
    assert_eq!(ahead.len(), GATE as usize);
    drop((stopped, policy));

    std::fs::remove_file(file).expect("the file that stops");
    let log = Log::new();
    let resumed = workshop(place.path(), 256, &log).await;
    let policy = Waiting::policy(wrong(), &log, |_, _| true);
    let report = round(&resumed, &policy).await.expect("a round");
    assert_eq!(report, alone);
    let again = beyond([before, log.asked()].concat(), &asked);
    assert!(again.is_empty(), "{again:?}");
    assert!(resumed.store.made_ahead().await.expect("ids").is_empty());
}

/// As where a person has put another harness in the place of one whose diagnosis had begun, and the critic
/// comes back to that.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_cheap_check_finds_made_ahead_is_counted() {
    let (place, log) = (Place::new(), Log::new());
    let first = workshop(place.path(), 1, &log).await;
    let policy = Waiting::policy(wrong(), &log, |_, _| true);
    let alone = round(&first, &policy).await.expect("a round");
    let start = first.head("v1").expect("v1").harness.id().to_hex();
    let of_evolve = TrajectoryFilter {
        split: Some("evolve".into()),
        ..TrajectoryFilter::default()
    };
    let rows = first.store.trajectories(&of_evolve).await;
    let mut rows = rows.expect("a list");
    rows.retain(|row| row.harness != start);
    assert!(!rows.is_empty(), "candidates are tried out");

    let place = Place::new();
    let second = workshop(place.path(), 1, &log).await;
    for row in &rows {
        let kept = first.store.trajectory_of(&row.id).await.expect("a read");
        let kept = kept.expect("it is listed");
        let basis = first.store.basis(&kept.id).await.expect("a read");
        let basis = basis.expect("it is known");
        let made = Made { round: 1, at: 0 };
        let recorded = second.store.record_ahead(&kept, &basis, made).await;
        recorded.expect("recorded");
    }
    assert_eq!(round(&second, &policy).await.expect("a round"), alone);
    let ahead = second.store.made_ahead().await.expect("ids");
    assert!(rows.iter().all(|row| !ahead.contains(&row.id)), "{ahead:?}");
}

/// Before its own phase, and in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_fails_ahead_of_time_is_made_by_its_own_phase() {
    let (alone, asked) = one_after_the_other(wrong()).await;
    for is_late in [false, true] {
        let (place, log) = (Place::new(), Log::new());
        let workshop = workshop(place.path(), 256, &log).await;
        let has_failed = AtomicBool::new(false);
        let inner = Scripted::failing("wrong", move |messages| {
            if squares(messages) == LATE && !has_failed.swap(true, Ordering::Relaxed) {
                return Err(PolicyError::Unavailable {
                    attempts: 1,
                    reason: "not now".into(),
                });
            }
            Ok(wrong_answer(messages))
        });
        let known = log.clone();
        let policy = Waiting::policy(inner, &log, move |number, asked| match number {
            STRAGGLER => asked.iter().any(|(number, _)| *number == LATE),
            LATE => !is_late || known.is_classifying(),
            _ => true,
        });
        let report = round(&workshop, &policy).await.expect("a round");
        assert_eq!(report, alone);
        // Once more, with the same seed.
        let again = beyond(log.asked(), &asked);
        assert!(
            again.len() == 1 && again[0].0 == LATE && asked.contains(&again[0]),
            "{again:?}"
        );
    }
}

/// The server asks for a rest ahead of a phase: whatever comes next begins after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_rest_that_the_server_asks_for_outlasts_the_phase() {
    const REST: Duration = Duration::from_secs(2);
    let (alone, _) = one_after_the_other(wrong()).await;
    let (place, log) = (Place::new(), Log::new());
    let workshop = workshop(place.path(), 256, &log).await;
    let refused: Arc<OnceLock<Instant>> = Arc::default();
    let asked: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (since, times) = (Arc::clone(&refused), Arc::clone(&asked));
    let has_lingered = AtomicBool::new(false);
    let inner = Scripted::failing("wrong", move |messages| {
        let now = Instant::now();
        times.lock().expect("lock").push(now);
        match squares(messages) {
            LATE if since.set(now).is_ok() => {
                return Err(PolicyError::RateLimited { wait: REST });
            }
            // The phase ends when the run has heard of it.
            STRAGGLER if !has_lingered.swap(true, Ordering::Relaxed) => {
                std::thread::sleep(REST / 4);
            }
            _ => {}
        }
        Ok(wrong_answer(messages))
    });
    let known = Arc::clone(&refused);
    let policy = Waiting::policy(inner, &log, move |number, _| {
        number != STRAGGLER || known.get().is_some()
    });
    let report = round(&workshop, &policy).await.expect("a round");
    assert_eq!(report, alone);
    let refused = *refused.get().expect("it was asked");
    let asked = asked.lock().expect("lock");
    // What was in flight comes at once, and everything else after the rest.
    let after = asked
        .iter()
        .map(|asked| asked.saturating_duration_since(refused));
    let early: Vec<Duration> = after
        .filter(|after| (REST / 5..REST).contains(after))
        .collect();
    assert!(early.is_empty(), "{early:?}");
}

/// Problems in the order in which a server meets them.
#[derive(Default)]
struct Met {
    problems: Vec<u32>,
    has_waited_in_vain: bool,
}

#[test]
fn the_first_diagnosis_begins_beside_the_baseline_and_a_run_comes_to_the_same() {
    const TEST: usize = 6;
    // The second problem is answered once there are more than the sealed test has: the baseline can't end
    // before the first diagnosis has begun.
    let met = Arc::new((Mutex::new(Met::default()), Condvar::new()));
    let shared = Arc::clone(&met);
    let url = serve(move |request| {
        let number = number(request);
        let (met, more) = &*shared;
        let mut met = met.lock().expect("lock");
        if !met.problems.contains(&number) {
            met.problems.push(number);
            more.notify_all();
        }
        if met.problems.get(1) == Some(&number) {
            let is_early = |met: &mut Met| met.problems.len() <= TEST;
            let waited = more.wait_timeout_while(met, Duration::from_secs(30), is_early);
            let (mut met, timeout) = waited.expect("lock");
            met.has_waited_in_vain |= timeout.timed_out();
        }
        // The tool is never called, which the critic has patches for.
        let answer = number + 1 + u32::from(number.is_multiple_of(3));
        Answer::Says(format!("I think it is \\boxed{{{answer}}}."))
    });
    let more = "gate: {mode: paper, tasks: 8, retest_every: 0, reference_every: 0}
harness_loop: {iterations: 2, diagnose_tasks: 12, candidates: 2}
";
    let config = config(&url, "{evolve: 12, gate: 12, test: 6}", more);
    let config = config.replace("rounds: 1", "rounds: 2");
    let run = |policy: &str| -> Value {
        let place = Place::new();
        place.write("tasks.jsonl", &tasks(30));
        place.write("run.yaml", &config.replace("model: m}", policy));
        let output = place
            .command(&["run", "--config", "run.yaml", "--json"])
            .output()
            .expect("runs");
        assert!(output.status.success(), "{}", place.transcript(&output));
        let mut report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        forget_times(&mut report);
        report
    };
    let report = run("model: m}");
    assert!(!met.0.lock().expect("lock").has_waited_in_vain);
    let decisions = report["patch_decisions"].as_array().expect("decisions");
    assert!(!decisions.is_empty(), "{report}");
    // With one request at a time there is no room for anything else.
    assert_eq!(run("model: m, in_flight: 1}"), report);
}
