"""Steps of a task: results within it that outlive release, retry and worker."""

from __future__ import annotations

from fleet.storage.parameters import by_id
from fleet.storage.sql import Statement

# One statement: the claim is looked at and the step written at once.
SAVE = by_id(
    """INSERT INTO work_step (task_id, name, value_json, claim_token, created_at)
    SELECT id, :name, :value, claim_token, :now FROM work_queue
    WHERE id = :id AND claim_token = :token AND status = 'running' AND incarnation = :incarnation
    ON CONFLICT (task_id, name) DO UPDATE SET value_json = excluded.value_json, claim_token = excluded.claim_token,
        created_at = excluded.created_at""",
    """INSERT INTO work_step (task_id, name, value_json, claim_token, created_at)
    SELECT id, :name, CAST(:value AS json), claim_token, CAST(:now AS timestamptz) FROM (
        SELECT id, claim_token FROM work_queue
        WHERE id = :id AND claim_token = :token AND status = 'running' AND incarnation = :incarnation FOR UPDATE) q
    ON CONFLICT (task_id, name) DO UPDATE SET value_json = excluded.value_json, claim_token = excluded.claim_token,
        created_at = excluded.created_at""",
)
OF_TASK = Statement(
    "SELECT name, value_json FROM work_step WHERE task_id = :task_id ORDER BY created_at, name",
    "SELECT name, CAST(value_json AS text) FROM work_step WHERE task_id = :task_id ORDER BY created_at, name",
)
