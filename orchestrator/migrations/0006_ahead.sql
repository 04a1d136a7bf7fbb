-- Rollouts that were made ahead of the phase that needs them and that no phase has asked for yet. They count as
-- made once one has. An id may stand here without its rollout: a kill came between both.
CREATE TABLE ahead (
    id TEXT PRIMARY KEY
) WITHOUT ROWID;
