-- When a rollout was made: the round, 0 before the first one, and Unix seconds. A rollout that later
-- rounds use again keeps its first one. Unknown for rollouts of earlier versions.
ALTER TABLE trajectory ADD COLUMN round INTEGER;
ALTER TABLE trajectory ADD COLUMN done_at INTEGER;
