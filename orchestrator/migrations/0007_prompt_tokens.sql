-- Prompt tokens of a rollout, over all turns. Unknown for rollouts of earlier versions until a run goes on.
ALTER TABLE trajectory ADD COLUMN prompt_tokens INTEGER;
-- Sums of tokens are read from here: in the table they lie behind the bodies.
CREATE INDEX trajectory_tokens ON trajectory (prompt_tokens, completion_tokens);
