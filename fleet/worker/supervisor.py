"""The supervisor: parent of a worker group. Starts, watches, kills and replaces; opens no database, has no threads."""

from __future__ import annotations

import logging
import os
import select
import signal
import uuid
from collections.abc import Callable

from fleet.cgroup import out_of_memory_kills
from fleet.clock import SystemClock, boottime
from fleet.worker.children import Launcher
from fleet.worker.descendants import end_commands_of
from fleet.worker.enforcement import Verdict, interruption, kill_if, next_timeout, verdict
from fleet.worker.group import Group
from fleet.worker.kernel_kills import KernelKills
from fleet.worker.loop import EXIT_REFUSED
from fleet.worker.post import KeeperPost
from fleet.worker.protocol import GroupEnd, Message, Reason
from fleet.worker.reaping import Exit, about, adopt_orphans, autopsy, in_words, reap
from fleet.worker.record import Ending, Phase, nanoseconds, now_ns
from fleet.worker.roster import Place, Roster
from fleet.worker.slot import Slot

LONGEST_TICK = 0.5
ASLEEP_AFTER = 3.0
KEEPER_ATTEMPTS = 5
FINISHING_TIME = 10.0

_DRAINING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_log = logging.getLogger("fleet.supervisor")


class Supervisor:
    """Runs one worker group to its end.

    Args:
        group: the group.
        say: prints one line for whoever started the group.
    """

    def __init__(self, group: Group, say: Callable[[str], None]) -> None:
        self._group = group
        self._settings = group.settings
        self._slots = group.board.slots
        self._say = say
        self._clock = SystemClock()
        self._roster = Roster(group.settings.processes)
        self._keeper = KeeperPost(group.board, group.settings.heartbeat)
        self._target: int | None = None
        self._draining = False
        self._signals = 0
        self._exit_code = 0
        self._over = False
        self._kernel_kills = KernelKills(out_of_memory_kills, self._clock)
        self._ticked_at = self._awake_since = boottime()
        self._wakeup, self._wakeup_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def parent_only(self) -> tuple[int, ...]:
        """Return descriptors that no child may keep."""
        link = self._keeper.fileno()
        return (self._wakeup, self._wakeup_end, *([] if link is None else [link]))

    def run(self, launcher: Launcher) -> int:
        """Run until the group has ended; return the exit code.

        Args:
            launcher: makes the group's processes.
        """
        adopt_orphans()
        self._listen()
        while not self._over and not (self._target is not None and self._roster.is_over):
            self._tick(launcher)
        self._finish(launcher)
        signal.set_wakeup_fd(-1)
        return self._exit_code

    def _listen(self) -> None:
        signal.set_wakeup_fd(self._wakeup_end, warn_on_full_buffer=False)
        for number in (*_DRAINING_SIGNALS, signal.SIGCHLD):
            # Under nohup SIGHUP is ignored, and stays so.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda _number, _frame: None)

    def _tick(self, launcher: Launcher) -> None:
        """Do what is due, then wait for the next thing to happen."""
        now = boottime()
        if now - self._ticked_at > ASLEEP_AFTER:
            self._awake_since = now
        self._keeper.start_if_due(launcher, now)
        self._start_workers(launcher, now)
        self._enforce(now - self._awake_since)
        self._keeper.kill_if_stuck(now - self._awake_since)
        self._kernel_kills.look()
        self._wait(self._until_next(now))
        self._ticked_at = boottime()
        self._hear_keeper()
        self._hear_signals()
        self._reap()

    def _until_next(self, now: float) -> float:
        moments = [
            now + LONGEST_TICK,
            self._roster.next_start(),
            self._keeper.start_at if not self._keeper.pid else None,
        ]
        timeouts = (next_timeout(slot) for slot in self._slots)
        moments += [timeout / 1e9 for timeout in timeouts if timeout is not None]
        return min(moment for moment in moments if moment is not None) - now

    def _wait(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        link = self._keeper.fileno()
        if link is not None:
            poll.register(link, select.POLLIN)
        poll.poll(max(1.0, seconds * 1000))

    # Workers

    def _start_workers(self, launcher: Launcher, now: float) -> None:
        if self._target is None:
            return
        for place in self._roster.places:
            place.unwritten = self._keeper.owes(self._settings.worker_name(place.number))
        for place in self._roster.due(self._target, now):
            slot = self._slots[place.number]
            slot.clear()
            slot.set_incarnation(uuid.uuid4().hex)
            slot.enters(Phase.STARTING)
            place.started(launcher.start_worker(place.number), now)
            slot.pid = place.pid or 0

    def _enforce(self, awake: float) -> None:
        for place in self._roster.running:
            slot = self._slots[place.number]
            place.draining = place.draining or bool(slot.drain)
            self._judge(place, lambda slot: verdict(slot, now_ns(), awake, self._settings.lease))

    def _judge(self, place: Place, judge: Callable[[Slot], Verdict | None]) -> None:
        """Kill a worker if the verdict on it says so."""
        slot = self._slots[place.number]
        if place.pid is None or place.sentence is not None or judge(slot) is None:
            return
        place.sentence = kill_if(place.pid, slot, lambda: judge(slot), self._clock)
        if place.sentence is not None:
            name = self._settings.worker_name(place.number)
            seats = slot.executing if place.sentence.seat is None else [slot.seats[place.sentence.seat]]
            _log.warning("killed worker %s, %s: %s", name, in_words(seats), place.sentence.reason, extra=about(seats))

    def _reap(self) -> None:
        for ended in reap(self._is_own):
            if ended.pid == self._keeper.pid:
                self._keeper_ended(ended)
            elif (place := self._roster.of(ended.pid)) is not None:
                self._worker_ended(place, ended)

    def _is_own(self, pid: int) -> bool:
        return pid == self._keeper.pid or self._roster.of(pid) is not None

    def _worker_ended(self, place: Place, ended: Exit) -> None:
        slot, now = self._slots[place.number], boottime()
        said_goodbye = slot.phase == Phase.ENDED and ended.signal is None
        sentence = place.sentence or Verdict(Reason.NORMAL if said_goodbye else Reason.CRASH)
        reason = sentence.reason
        place.draining = place.draining or bool(slot.drain)
        ending = Ending(slot.ending) if said_goodbye else Ending.NONE
        place.ended(reason, ending, now, worked=slot.done > 0, in_task=bool(slot.executing))
        if ended.code == EXIT_REFUSED:
            self._exit_code = 1
        if not said_goodbye:
            if self._settings.allow_shell:
                # Before anybody can claim the task again, and before the place is filled.
                end_commands_of(slot.incarnation, self._clock)
            name = self._settings.worker_name(place.number)
            starved = reason is Reason.CRASH and self._kernel_kills.explain(ended)
            death = autopsy(name, slot, sentence, ended, out_of_memory=starved)
            self._keeper.report(death)
            if reason is Reason.CRASH:
                _log.warning(
                    "worker %s (pid %d) %s, %s",
                    death.worker_id,
                    ended.pid,
                    f"{ended.manner}, out of memory" if starved else ended.manner,
                    in_words(slot.executing),
                    extra=about(slot.executing),
                )
        slot.vacate()

    # The keeper

    def _hear_keeper(self) -> None:
        for message in self._keeper.receive():
            self._obey(message)

    def _obey(self, message: Message) -> None:
        kind = message["kind"]
        if kind in ("go", "target"):
            self._target = 0 if self._draining else min(message["size"], self._settings.processes)
            self._roster.refill(self._target, message["read_at"])
            if message["stop"]:
                self._leave(GroupEnd(message["stop"]))
        elif kind == "refused" and not self._keeper.known:
            self._abort(message["exit_code"], message["message"])
        elif kind == "refused":
            _log.warning("the new keeper cannot work: %s", message["message"])
        elif kind == "abort":
            self._abort(message["exit_code"], message["message"])

    def _keeper_ended(self, ended: Exit) -> None:
        # What it said last may still be unread.
        self._hear_keeper()
        self._keeper.ended(ended.code, boottime())
        if self._over or self._keeper.finished:
            return
        _log.warning("the keeper (pid %d) %s: starting another", ended.pid, ended.manner)
        if not self._keeper.known and self._keeper.short_lives >= KEEPER_ATTEMPTS:
            self._abort(1, f"the keeper died {KEEPER_ATTEMPTS} times before it had begun; see the log above")

    def _abort(self, exit_code: int, message: str) -> None:
        """End the group at once, with one line; what runs is killed and left to the rescue."""
        self._exit_code, self._over = exit_code, True
        self._say(message if exit_code == 0 else f"error: {message}")

    # Ending

    def _hear_signals(self) -> None:
        try:
            numbers = os.read(self._wakeup, 4096)
        except BlockingIOError:
            return
        for number in numbers:
            if number == signal.SIGHUP:
                self._drain("hangup")
            elif number in _DRAINING_SIGNALS:
                self._signals += 1
                self._heed_signal(signal.Signals(number).name)

    def _heed_signal(self, name: str) -> None:
        busy = sum(len(slot.executing) or slot.phase == Phase.RECORDING for slot in self._slots)
        if self._signals == 1:
            if busy:
                self._say(f"draining: waiting for {busy} tasks; signal again to interrupt them")
            self._drain(f"signal {name}")
        elif self._signals == 2:
            self._say(f"interrupting {busy} tasks: they go back to the queue")
            for place in self._roster.running:
                self._judge(place, interruption)

    def _leave(self, end: GroupEnd) -> None:
        """Drain because the group's row says so; whoever started a group that was given up learns it by exit code 1."""
        if self._draining:
            return
        name = f"worker group {self._settings.group_id}"
        if end is GroupEnd.GIVEN_UP:
            self._exit_code = 1
            _log.warning("%s was taken for lost while nobody beat for it: its workers finish and end", name)
        else:
            _log.info("%s is to stop: its workers finish and end", name)
        self._drain("the group is stopped")

    def _drain(self, reason: str) -> None:
        """Let every worker finish what it executes and go; nobody is replaced any more."""
        if self._draining:
            return
        self._draining, self._target = True, 0
        timeout = self._settings.drain_timeout
        for place in self._roster.places:
            place.retire()
        for place in self._roster.running:
            slot = self._slots[place.number]
            if timeout is not None:
                slot.drain_deadline = now_ns() + nanoseconds(timeout)
            slot.drain, place.draining = 1, True
            self._group.channels.wake(place.number)
        self._keeper.drain(reason, timeout)

    def _finish(self, launcher: Launcher) -> None:
        """End what is left, and have the keeper write the group's end; where that takes too long, its lease tells."""
        for place in self._roster.running:
            self._judge(place, lambda _slot: Verdict(Reason.ABORTED))
        if not self._over:
            self._keeper.finish(self._exit_code)
        deadline = boottime() + (0.0 if self._over else self._settings.lease + FINISHING_TIME)
        while self._roster.running or not (self._keeper.finished or boottime() > deadline):
            if not self._over:
                self._keeper.start_if_due(launcher, boottime())
            self._wait(0.1)
            self._hear_signals()
            self._hear_keeper()
            self._reap()
        self._end_keeper()

    def _end_keeper(self) -> None:
        self._over = True
        self._keeper.kill()
        while self._keeper.pid is not None:
            self._wait(0.1)
            self._hear_signals()
            self._reap()
