"""The native adapter with real processes that are no workers: a script stands for the interpreter."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet import process
from fleet.adapters import LaunchFailed, NativeAdapter
from fleet.clock import SystemClock
from fleet.config import Location
from fleet.domain.group import GroupRecord, GroupStatus, Template
from fleet.domain.liveness import ProcessIdentity
from fleet.errors import UsageError

SECRET = "s3cret-of-the-database"
REPORT = f"""#!{sys.executable}
import json, os, sys
sys.stdout.write("hello from the launch\\n")
with open("seen.json.part", "w") as out:
    json.dump({{
        "argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "session": os.getsid(0) == os.getpid(),
        "files": sorted(os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd")
                        if os.path.exists("/proc/self/fd/" + fd)),
    }}, out)
os.rename("seen.json.part", "seen.json")
sys.stdin.read()
if os.path.exists("stay"):
    import signal; signal.pause()
sys.exit(7)
"""


def a_group(pool: str = "default") -> GroupRecord:
    """Return a requested group of 3."""
    now = datetime.now(UTC)
    return GroupRecord(
        group_id="g1",
        pool=pool,
        adapter_id=None,
        capabilities={},
        target_size=3,
        status=GroupStatus.REQUESTED,
        launch_token=f"token-{os.getpid()}-{id(now)}",
        process=ProcessIdentity(),
        created_at=now,
        contacted_at=None,
        boot_deadline_at=None,
        last_heartbeat=None,
        lease_expires_at=None,
        lease_seconds=20.0,
        exit_code=None,
        error=None,
        log_path=None,
        decision_id=None,
    )


def until(condition: object, seconds: float = 20.0) -> None:
    """Wait until `condition()` holds."""
    clock = SystemClock()
    deadline = clock.boottime() + seconds
    while not condition():  # type: ignore[operator]
        assert clock.boottime() < deadline, "it did not happen in time"
        clock.sleep(0.01)


@pytest.fixture
def adapter(tmp_path: Path) -> Iterator[NativeAdapter]:
    """Give an adapter whose children are gone at the end."""
    location = Location(f"postgresql+psycopg://u:{SECRET}@h/d", tmp_path / "fleet.db", True, "shown")
    made = NativeAdapter(location, lambda options: [f"--{name}={value}" for name, value in options.items()])
    yield made
    for child in list(made._children.values()):
        child.kill()
    until(lambda: made.ended_groups() or not made._children)


@pytest.fixture
def template(tmp_path: Path) -> Template:
    """Give a template whose interpreter writes down how it was started."""
    python = tmp_path / "python"
    python.write_text(REPORT)
    python.chmod(0o700)
    return Template(str(python), str(tmp_path), {"tasks": "x; touch /tmp/p"})


def seen(directory: Path) -> dict[str, object]:
    """Return what the launch wrote down."""
    until((directory / "seen.json").exists)
    return dict(json.loads((directory / "seen.json").read_text()))


def test_a_launch_is_on_its_own(adapter: NativeAdapter, template: Template, tmp_path: Path) -> None:
    """Own session, own directory, no descriptor of ours, arguments as a list without a secret (PL08, SE03)."""
    (tmp_path / "stay").touch()
    with open(tmp_path / "ours", "w") as ours:
        os.set_inheritable(ours.fileno(), True)
        group = a_group()
        launch = adapter.start_group(group, template)
    found = seen(tmp_path)
    assert found["session"] is True
    assert found["cwd"] == str(tmp_path)
    assert found["argv"] == [
        "-P",
        "-m",
        "fleet.cli.worker",
        "--tasks=x; touch /tmp/p",
        "--pool=default",
        "--processes=3",
    ]
    assert SECRET not in json.dumps(found["argv"])
    log = str(launch.log_path)
    files = found["files"]
    assert isinstance(files, list)
    assert set(files) <= {"/dev/null", log, str(tmp_path / "seen.json.part")}
    environment = found["env"]
    assert isinstance(environment, dict)
    assert environment["FLEET_LAUNCH_TOKEN"] == group.launch_token
    assert environment["FLEET_GROUP_ID"] == "g1"
    assert environment["FLEET_LOG_PATH"] == log
    assert SECRET in environment["FLEET_DB"]


def test_the_log_is_the_owners_alone(adapter: NativeAdapter, template: Template) -> None:
    """The log's directory is 0700 and the log 0600 from the first moment (SE02, LF07)."""
    before = os.umask(0)
    try:
        launch = adapter.start_group(a_group(), template)
    finally:
        os.umask(before)
    log = Path(str(launch.log_path))
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    until(lambda: "hello from the launch" in log.read_text())


def test_a_pools_name_stays_in_the_log_directory(adapter: NativeAdapter, template: Template, tmp_path: Path) -> None:
    """What comes from a row cannot lead the log elsewhere (PL08)."""
    launch = adapter.start_group(a_group(pool="../../etc/$(x)"), template)
    assert Path(str(launch.log_path)).parent == tmp_path / "fleet-logs"


def test_an_ended_launch_tells_its_exit_code_once(adapter: NativeAdapter, template: Template) -> None:
    """Children are reaped, and their exit codes known (LF07)."""
    adapter.start_group(a_group(), template)
    ended: list[tuple[str, int]] = []
    until(lambda: ended.extend((e.group_id, e.exit_code) for e in adapter.ended_groups()) or ended)
    assert ended == [("g1", 7)]
    assert not adapter.ended_groups()
    assert not adapter.list_groups()


def test_a_launch_is_found_by_its_token(adapter: NativeAdapter, template: Template, tmp_path: Path) -> None:
    """Who comes after a crash finds the process that carries the group's token, and no other (SC19)."""
    (tmp_path / "stay").touch()
    group = a_group()
    assert adapter.find_group(group) is None
    launch = adapter.start_group(group, template)
    seen(tmp_path)
    assert adapter.find_group(group) == launch
    assert adapter.stop_group(group)
    ended: list[int] = []
    until(lambda: ended.extend(e.exit_code for e in adapter.ended_groups()) or ended)
    assert ended == [-signal.SIGTERM]
    assert not adapter.stop_group(group)


def test_a_template_that_makes_no_sense_is_refused(tmp_path: Path, template: Template) -> None:
    """Options from a row that no worker has are a failed launch with a reason, not an end of the pass (RT06)."""

    def refuse(options: dict[str, object]) -> list[str]:
        raise UsageError("worker option --evil is unknown")

    location = Location("sqlite:////x.db", tmp_path / "fleet.db", True, "shown")
    with pytest.raises(LaunchFailed, match="--evil is unknown"):
        NativeAdapter(location, refuse).start_group(a_group(), template)


@pytest.mark.parametrize("broken", ["python", "cwd", "log"])
def test_a_launch_that_cannot_be_says_why(
    adapter: NativeAdapter, template: Template, tmp_path: Path, broken: str
) -> None:
    """A missing interpreter, directory or log place is a reason with a name, and nothing is left running (LF06)."""
    if broken == "python":
        template = Template(str(tmp_path / "gone"), template.cwd, {})
    elif broken == "cwd":
        template = Template(template.python, str(tmp_path / "gone"), {})
    else:
        (tmp_path / "fleet-logs").write_text("a file where the directory should be")
    with pytest.raises(LaunchFailed, match=r"Error: .*(gone|fleet-logs)"):
        adapter.start_group(a_group(), template)
    assert not adapter.list_groups()
    assert process.find_by_environment("FLEET_GROUP_ID", "g1-never") is None
