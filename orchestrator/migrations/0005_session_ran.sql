-- Seconds that a stretch has run up to its last sign of life, by a clock that nobody sets. The time of day may
-- jump: when it is set after a start, or while a machine sleeps. Unknown for stretches of earlier versions.
ALTER TABLE session ADD COLUMN ran_s INTEGER;
