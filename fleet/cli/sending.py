"""Enqueuing chunk after chunk, and saying how far it came when it ends early."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet.cli import lines
from fleet.cli.common import note, opened
from fleet.cli.interrupts import Interrupts
from fleet.cli.lines import Chunk
from fleet.cli.offers import Offers
from fleet.enqueuing import Refs
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.domain.task import Enqueued, NewTask
    from fleet.storage.interfaces import Storage


@dataclass
class Sent:
    """What was enqueued.

    Attributes:
        ids: one id per input, in input order.
        existing: the ids that a key met.
        names: the handlers' names.
        last: the number of the last input, a line or one of many alike.
        complete: whether that was all, and a batch that was made for it is as it was to be.
    """

    ids: list[int] = field(default_factory=list)
    existing: list[int] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    last: int = 0
    complete: bool = False

    def add(self, chunk: Chunk, enqueued: Enqueued) -> None:
        """Note what became of a chunk."""
        self.ids += enqueued.ids
        self.existing += enqueued.existing
        self.names |= chunk.names
        self.last = chunk.last


@dataclass
class Filling:
    """The batch that a command fills: made with its first tasks when there is none, and closed by who made it.

    Attributes:
        batch_id: its name.
        callback: the task that is to follow its end.
        keep_open: whether it stays open for others to add to.
        made: whether this command made it.
    """

    batch_id: str
    callback: NewTask | None
    keep_open: bool
    made: bool = False

    def begin(self, storage: Storage, tasks: Sequence[NewTask]) -> Enqueued:
        """Enqueue the first tasks, in one transaction with the batch where that is new."""
        if storage.rules.batch(self.batch_id) is None:
            with storage.transaction() as transaction:
                storage.rules.create_batch(self.batch_id, self.callback, transaction=transaction)
                enqueued = storage.queue.enqueue(tasks, transaction=transaction)
            self.made = True
            return enqueued
        if self.callback is not None:
            raise UsageError(
                f"batch {self.batch_id} is there already: what follows it is said when it is made: no --then"
            )
        return storage.queue.enqueue(tasks)

    def end(self, storage: Storage) -> None:
        """Close the batch if this command made it."""
        if self.made and not self.keep_open:
            storage.rules.close_batch(self.batch_id)


@dataclass(frozen=True)
class Sending:
    """How tasks are enqueued.

    Attributes:
        strict: whether a task that no worker ever offered is refused.
        total: the whole amount, for the progress bar; None when unknown, 0 when there is nothing to show.
        amount: what a chunk counts of it.
        rest: what to do about the rest, after an early end.
        report: prints what was enqueued.
        refs: the names of earlier tasks, told the ids.
        filling: the batch to fill.
    """

    strict: bool
    total: int | None
    amount: Callable[[Chunk], int]
    rest: Callable[[Sent], str]
    report: Callable[[Sent], None]
    refs: Refs = field(default_factory=Refs)
    filling: Filling | None = None
    interrupts: Interrupts = field(default_factory=Interrupts)

    def send(self, chunks: Iterable[Chunk], db_path: str | None) -> None:
        """Enqueue chunk after chunk, each in one transaction; what fails later leaves the earlier ones enqueued."""
        # The first chunk is read before the database is opened: bad input makes no file.
        chunks = iter(chunks)
        ready = list(itertools.islice(chunks, 1))
        sent = Sent()
        with opened(db_path, create=not self.strict) as storage, self._telling(sent):
            offers = Offers(storage)
            storage.on_wait(self.interrupts.heed)
            with lines.progress(self.total, "tasks") as advance:
                for chunk in itertools.chain(ready, chunks):
                    self._send_one(storage, offers, chunk, sent)
                    advance(self.amount(chunk))
            self._end(storage, sent)
            if sent.ids:
                offers.warn(sent.names)
            self.report(sent)

    def _send_one(self, storage: Storage, offers: Offers, chunk: Chunk, sent: Sent) -> None:
        if self.strict:
            offers.refuse_unknown(chunk.names)
        # Between a commit and the note of it ^C would leave tasks that nobody is told of.
        with self.interrupts.put_off():
            if self.filling is not None and not sent.ids:
                enqueued = self.filling.begin(storage, chunk.tasks)
            else:
                enqueued = storage.queue.enqueue(chunk.tasks)
            self.refs.enqueued(chunk.tasks, enqueued.ids)
            sent.add(chunk, enqueued)

    def _end(self, storage: Storage, sent: Sent) -> None:
        with self.interrupts.put_off():
            if self.filling is not None:
                if not sent.ids:
                    self.filling.begin(storage, [])
                self.filling.end(storage)
            sent.complete = True

    @contextmanager
    def _telling(self, sent: Sent) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            # Who read what is printed has heard enough.
            raise
        except BaseException:
            with self.interrupts.put_off():
                if sent.ids:
                    self._tell(sent)
            raise

    def _tell(self, sent: Sent) -> None:
        rest = "nothing is left to enqueue" if sent.complete else self.rest(sent)
        note(
            f"{len(sent.ids)} tasks were enqueued before this (ids {sent.ids[0]} to {sent.ids[-1]}): the same command "
            f"would enqueue them again, unless they have idempotency keys: {rest}"
        )
        if self.filling is not None and self.filling.made and not sent.complete:
            name = self.filling.batch_id
            note(f"batch {name} is left open: give --batch {name} with the rest, then run fleet batch close {name}")
