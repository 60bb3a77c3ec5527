"""What belongs to tasks: steps, attempts, dependencies, batches."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, String, text

from fleet.domain.execution import Outcome
from fleet.domain.task import ParentPolicy
from fleet.storage.tables.columns import status, table
from fleet.storage.types import BigId, JsonText, UtcTime

work_step = table(
    "work_step",
    Column("task_id", BigId, ForeignKey("work_queue.id"), primary_key=True, autoincrement=False),
    Column("name", String, primary_key=True),
    Column("value_json", JsonText, nullable=False),
    Column("claim_token", BigId, nullable=False),
    Column("created_at", UtcTime, nullable=False),
)

work_attempt = table(
    "work_attempt",
    Column("task_id", BigId, ForeignKey("work_queue.id"), primary_key=True, autoincrement=False),
    Column("claim_token", BigId, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("worker", String),
    Column("incarnation", String),
    status(Outcome, name="outcome"),
    Column("error", String),
    Column("error_kind", String),
    Column("traceback", String),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("peak_memory_mb", Float),
    Column("started_at", UtcTime),
    Column("ended_at", UtcTime, nullable=False),
)

# What a worker failed lately, asked only of one that fails too often.
Index("ix_work_attempt_worker", work_attempt.c.worker, work_attempt.c.ended_at)

# No foreign keys: either end may be pruned before the other.
work_dependency = table(
    "work_dependency",
    Column("parent", BigId, primary_key=True, autoincrement=False),
    Column("child", BigId, primary_key=True, autoincrement=False),
    status(ParentPolicy, ParentPolicy.CANCEL, name="policy"),
    Column("satisfied", Boolean, nullable=False, server_default=text("false")),
)

Index("ix_work_dependency_child", work_dependency.c.child, work_dependency.c.satisfied)

# Tasks that have ended, and whose many dependents are still being let go, some at a time.
work_release = table(
    "work_release",
    Column("task_id", BigId, primary_key=True, autoincrement=False),
)

work_batch = table(
    "work_batch",
    Column("batch_id", String, primary_key=True),
    Column("created_at", UtcTime, nullable=False),
    Column("closed_at", UtcTime),
    Column("ended_at", UtcTime),
    Column("callback_id", BigId),
)
