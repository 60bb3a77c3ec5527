"""`fleet-adapter` as a process of its own: it takes commands, hands over, is taken over, and leaves nothing behind."""

from __future__ import annotations

import json
import signal

import pytest

from tests.adapters.places import TOKEN, start_service
from tests.adapters.rogue import Rogue, replying, silent
from tests.processes.harness import Site
from tests.processes.running import Running

SHORT = ("--heartbeat-interval=0.5", "--lease=2")
ALLOWED = ("--", "--tasks=tests.processes.jobs")
"""What a server's database may have it start."""


def adapter(site: Site, *options: str, adapter_id: str = "here", **env: str) -> Running:
    """Start a native adapter with short times."""
    words = ("native", f"--adapter-id={adapter_id}", f"--db-path={site.database}", *SHORT, *options, *ALLOWED)
    return site.start("-m", "fleet.cli.adapter", *words, env=env)


def standing(site: Site, adapter_id: str = "here") -> tuple[int, int] | None:
    """Return epoch and pid of who stands for an adapter; None while nobody does."""
    rows = site.ledger.rows(
        "SELECT epoch, pid FROM worker_adapter WHERE adapter_id = ? AND lease_expires_at IS NOT NULL", adapter_id
    )
    return rows[0] if rows else None


def wait_standing(site: Site, epoch: int, adapter_id: str = "here") -> int:
    """Wait until an adapter's process of this epoch stands; return its pid."""
    site.wait_until(lambda: (standing(site, adapter_id) or (0, 0))[0] == epoch, f"epoch {epoch} of {adapter_id} stands")
    found = standing(site, adapter_id)
    assert found is not None
    return found[1]


def fleet(site: Site, *words: str) -> Running:
    """Run a command of `fleet` to its end."""
    running = site.start("-m", "fleet", *words, f"--db-path={site.database}")
    running.wait()
    return running


def commands(site: Site) -> list[tuple[str, str, str]]:
    """Return kind, adapter and status of all commands, oldest first."""
    return site.ledger.rows("SELECT kind, adapter_id, status FROM adapter_command ORDER BY command_id")


def test_a_standing_adapter_does_what_a_scaler_orders(site: Site) -> None:
    """With an adapter alive the scaler leaves the starting to it: its groups run, are drained by the next pass, and the
    adapter goes when it is told to, leaving the workers of others alone."""
    running = adapter(site)
    wait_standing(site, 1)
    site.scale(3)
    assert commands(site) == [("start_worker_group", "here", "succeeded")]
    assert len(site.wait_workers(3)) == 3
    tasks = site.enqueue("note", count=5)
    site.wait_finished(tasks)
    site.scale(1, wait=None)
    site.wait_workers(1)
    running.signal(signal.SIGTERM)
    assert running.wait() == 0
    assert standing(site) is None
    assert len(site.workers()) == 1
    site.scale(0, wait=None)
    site.wait_gone()


def test_a_second_process_takes_over_and_the_first_ends(site: Site) -> None:
    """Of two processes under one id the later one stands for it; the first ends by itself and takes nothing more
    (AD13)."""
    first = adapter(site)
    wait_standing(site, 1)
    second = adapter(site)
    pid = wait_standing(site, 2)
    assert first.wait() == 0
    assert "another process stands for adapter here: this one ends" in first.text
    site.scale(2)
    (taker,) = site.ledger.rows("SELECT taken_by_json FROM adapter_command")
    assert json.loads(taker[0])["pid"] == pid == second.pid


def test_once_is_for_cron(site: Site) -> None:
    """With `--once` an adapter carries out what is ordered, and ends; until its next run orders wait for it."""
    assert adapter(site, "--once", "--lease=60s", adapter_id="cron").wait() == 0
    assert commands(site) == []
    site.scale(2, wait=None)
    assert commands(site) == [("start_worker_group", "cron", "pending")]
    assert adapter(site, "--once", adapter_id="cron").wait() == 0
    assert commands(site) == [("start_worker_group", "cron", "succeeded")]
    site.wait_workers(2)


def test_the_scaler_acts_for_an_adapter_that_was_killed(site: Site) -> None:
    """When this host's adapter is dead the scaler starts workers itself (LF06)."""
    running = adapter(site)
    wait_standing(site, 1)
    running.signal(signal.SIGKILL)
    running.wait()
    site.scale(2)
    assert commands(site)[0][1].startswith("native:")
    assert len(site.wait_workers(2)) == 2


STEPS = ("adapter.standing", "adapter.taken", "adapter.spawned", "adapter.noted", "adapter.replied")


@pytest.mark.parametrize("step", STEPS)
def test_an_adapter_killed_at_any_step_leaves_one_group(site: Site, step: str) -> None:
    """Killed before or after each step of a command's life, the adapter's successor carries it to its end: exactly one
    group for each start, none forgotten, none doubled (AD01, LF06)."""
    doomed = adapter(site, FLEET_FAULTS=f"{step}=kill")
    if step == "adapter.standing":
        assert doomed.wait() == -signal.SIGKILL
        adapter(site)
        wait_standing(site, 2)
        site.scale(2)
    else:
        wait_standing(site, 1)
        site.scale(2, wait=None)
        assert doomed.wait() == -signal.SIGKILL
        adapter(site)
        wait_standing(site, 2)
    site.wait_until(lambda: [status for _, _, status in commands(site)] == ["succeeded"], "the command is carried out")
    site.wait_workers(2)
    running = "SELECT count(*) FROM worker_group WHERE status = 'running'"
    assert site.ledger.value(running) == 1
    assert site.ledger.value("SELECT count(*) FROM worker_group") == 1
    assert len(site.supervisors()) == 1


def test_a_launch_that_comes_up_too_late_is_shut_down(site: Site) -> None:
    """A group is given up while its adapter starts it: the adapter orders the end of what it started, and is killed
    there; its successor ends it, and nobody is left."""
    once = site.directory / "stopped-once"
    doomed = adapter(site, FLEET_FAULTS=f"adapter.spawned=once:{once}:stop,adapter.late=kill,keeper.contact=stop")
    wait_standing(site, 1)
    site.scale(2, wait=None)
    site.wait_until(once.exists, "the launch is there and not noted")
    site.ledger.write("UPDATE worker_group SET status = 'failed', stopped_at = created_at, target_size = 0")
    doomed.signal(signal.SIGCONT)
    assert doomed.wait() == -signal.SIGKILL
    assert [kind for kind, _, _ in commands(site)] == ["start_worker_group", "shutdown_worker_group"]
    successor = adapter(site)
    site.wait_until(lambda: {status for _, _, status in commands(site)} == {"succeeded"}, "both are carried out")
    successor.signal(signal.SIGTERM)
    assert successor.wait() == 0
    site.wait_gone()
    assert site.ledger.value("SELECT count(*) FROM worker_registry") == 0


def test_an_adapter_beats_while_its_place_takes_long(site: Site) -> None:
    """While a service takes longer for one order than the adapter's lease holds, the adapter is not taken for lost;
    told to go, it goes after the order."""
    with Rogue([silent], [replying(200, {})]) as server:
        words = ("webhook", "--adapter-id=cloud", f"--url={server.url}", "--timeout=4s", f"--db-path={site.database}")
        running = site.start("-m", "fleet.cli.adapter", *words, *SHORT, *ALLOWED)
        wait_standing(site, 1, "cloud")
        site.scale(1, wait=None)
        site.wait_until(lambda: server.requests, "the service is asked")
        (began,) = site.ledger.rows("SELECT last_heartbeat, lease_expires_at FROM worker_adapter")
        beaten = "SELECT count(*) FROM worker_adapter WHERE last_heartbeat > ?"
        site.wait_until(lambda: site.ledger.value(beaten, began[1]), "it beats after its lease would have been over")
        assert commands(site) == [("start_worker_group", "cloud", "taken")]
        running.signal(signal.SIGTERM)
    assert running.wait() == 0
    assert standing(site, "cloud") is None


def test_nothing_is_ordered_from_a_paused_adapter(site: Site) -> None:
    """A paused adapter is passed over, the decision says why; resumed, it starts what is missing."""
    adapter(site)
    wait_standing(site, 1)
    paused = fleet(site, "adapter", "pause", "here", "--reason=moving house")
    assert paused.text == "adapter here starts no more workers\n"
    text = site.scale(2, "--verbose", wait=None)
    assert commands(site) == []
    assert "adapter here is paused: moving house (fleet adapter resume here)" in text
    (row,) = json.loads(fleet(site, "adapters", "--json").text)
    assert (row["adapter_id"], row["state"], row["reason"]) == ("here", "paused", "moving house")
    assert fleet(site, "adapter", "resume", "here").text == "adapter here starts workers again\n"
    site.scale(2)
    assert len(site.wait_workers(2)) == 2
    (group,) = json.loads(fleet(site, "groups", "--json").text)
    stopped = fleet(site, "group", "stop", group["group_id"])
    assert "is stopping: its workers finish what they execute" in stopped.text
    site.wait_workers(0)
    unknown = fleet(site, "adapter", "pause", "nowhere")
    assert unknown.wait() == 1
    assert unknown.text == "error: adapter nowhere: there is none (fleet adapters shows what there is)\n"


@pytest.mark.sqlite_only("moves a file")
def test_an_adapter_ends_with_its_database(site: Site) -> None:
    """When the database is moved away the adapter ends with 3 and says so; it does not stand for anybody in the new
    one."""
    running = adapter(site)
    wait_standing(site, 1)
    away = site.directory / "away"
    away.mkdir()
    for file in site.database.parent.glob(f"{site.database.name}*"):
        file.rename(away / file.name)
    assert running.wait() == 3
    assert "what was opened there is gone, or another in its place" in running.text


def test_waiting_for_whole_groups_ends(site: Site) -> None:
    """Where workers come by twos, three that were asked for are there when four are."""
    url = start_service(site).text.strip()
    words = (
        "webhook",
        "--adapter-id=twos",
        f"--url={url}",
        "--token-env=PLACE_TOKEN",
        "--workers-per-group=2",
        "--priority=1",
    )
    running = site.start(
        "-m", "fleet.cli.adapter", *words, *SHORT, f"--db-path={site.database}", *ALLOWED, env={"PLACE_TOKEN": TOKEN}
    )
    wait_standing(site, 1, "twos")
    site.scale(3)
    assert len(site.wait_workers(4)) == 4
    site.scale(0)
    site.wait_workers(0)
    running.signal(signal.SIGTERM)
    assert running.wait() == 0


def test_a_service_that_lets_nobody_in_is_told(site: Site) -> None:
    """With a wrong token the adapter says why in its row and in the status, and a run for cron ends with 1."""
    url = start_service(site).text.strip()
    words = ("webhook", "--adapter-id=shut", f"--url={url}", "--token-env=PLACE_TOKEN", f"--db-path={site.database}")
    once = site.start("-m", "fleet.cli.adapter", *words, "--once", env={"PLACE_TOKEN": "wrong"})
    assert once.wait() == 1
    assert once.text.splitlines()[-1].startswith("error: adapter shut: the place cannot be asked: http://127.0.0.1:")
    running = site.start("-m", "fleet.cli.adapter", *words, *SHORT, env={"PLACE_TOKEN": "wrong"})
    told = "SELECT reason FROM worker_adapter WHERE reason LIKE '%status 401: who are you?'"
    site.wait_until(lambda: site.ledger.rows(told), "its row says why")
    assert "note: adapter shut cannot ask its place: http://127.0.0.1:" in fleet(site, "status").text
    running.signal(signal.SIGTERM)
    assert running.wait() == 0


def test_wrong_usage_is_one_line(site: Site) -> None:
    """What cannot be meant ends with 2 and one line, and nothing stands."""
    for words, line in (
        (
            ["carrier-pigeon", "--adapter-id=a"],
            "error: adapter kind 'carrier-pigeon' is unknown: there are native, webhook",
        ),
        (
            ["native", "--adapter-id=a", "--heartbeat-interval=2", "--lease=5", f"--db-path={site.database}"],
            "error: --lease 5s: give at least three heartbeats (6s)",
        ),
        (
            ["native", "--adapter-id=a", "--lease=0", f"--db-path={site.database}"],
            "error: --lease 0s: give at least three heartbeats (15s)",
        ),
        (
            ["native", "--adapter-id=a", "--heartbeat-interval=0", f"--db-path={site.database}"],
            "error: --heartbeat-interval 0s: give 0.1s or more",
        ),
        (
            ["native", "--adapter-id=a", f"--priority={10**19}", f"--db-path={site.database}"],
            "error: invalid value for '--priority': Input should be less than or equal to 1000000 "
            "(see fleet-adapter native --help)",
        ),
    ):
        refused = site.start("-m", "fleet.cli.adapter", *words)
        assert refused.wait() == 2
        assert refused.text == line + "\n"
    assert site.ledger.value("SELECT count(*) FROM worker_adapter") == 0
