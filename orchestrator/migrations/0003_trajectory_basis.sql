-- What a rollout's verdict rests on: the verifier and a hash of the gold answer, as JSON. Neither is in
-- the rollout's key: `coharness eval` judges anew what rests on others. Unknown for rollouts of earlier
-- versions, which are judged anew too.
ALTER TABLE trajectory ADD COLUMN basis TEXT;
