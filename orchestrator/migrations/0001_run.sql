-- One database per run. Everything a resumed run needs to know what is done stands here.

CREATE TABLE run (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    name        TEXT    NOT NULL,
    -- The resolved configuration as JSON; a run goes on only under the same one.
    config      TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    finished_at INTEGER
);

-- A stretch of running, from start to stop, kill or end. Times are Unix seconds.
CREATE TABLE session (
    id         INTEGER PRIMARY KEY,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    ended_at   INTEGER,
    process    INTEGER NOT NULL
);

-- A finished rollout. The body is the whole trajectory as zstd-compressed JSON.
CREATE TABLE trajectory (
    id                TEXT    PRIMARY KEY,
    task              TEXT    NOT NULL,
    split             TEXT    NOT NULL,
    harness           TEXT    NOT NULL,
    policy            TEXT    NOT NULL,
    seed              TEXT    NOT NULL,
    correct           INTEGER NOT NULL,
    exit              TEXT    NOT NULL,
    completion_tokens INTEGER NOT NULL,
    wall_ms           INTEGER NOT NULL,
    body              BLOB    NOT NULL
) WITHOUT ROWID;

-- A finished step other than a rollout: diagnose, propose, decide, commit, train, evaluate.
-- The key hashes the step's inputs, so a step is done once however often it is asked for.
CREATE TABLE step (
    key     TEXT    PRIMARY KEY,
    kind    TEXT    NOT NULL,
    round   INTEGER NOT NULL,
    output  TEXT    NOT NULL,
    done_at INTEGER NOT NULL
);
CREATE INDEX step_by_kind ON step (kind, round);
