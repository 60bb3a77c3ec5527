"""What is said of a pool, by command line, file or earlier passes, and what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.cli.settings_file import said_in_file
from fleet.domain.policies import Advice, Policy, Situation
from fleet.domain.policies.in_force import in_force
from fleet.domain.reasons import Reason
from fleet.domain.snapshot import PoolSettings
from fleet.errors import UsageError
from fleet.scaler import change_of
from tests.scaler.world import POOL, World


def say(world: World, **values: object) -> tuple[str, ...]:
    """Run a pass that is given these values; return the names of what it changed."""
    return world.run(change_of(values)).changed


def stored(world: World) -> PoolSettings:
    """Return the pool's settings."""
    found = world.storage.control.settings(POOL)
    assert found is not None
    return found.settings


def test_values_are_kept_until_others_are_said(world: World) -> None:
    """What one pass is given is in force for the next, beside what that is given; only a difference is a version."""
    assert say(world, policy="vanilla", upper_task_ratio="5") == ("policy", "upper_task_ratio")
    assert say(world, lower_task_ratio=0.5) == ("lower_task_ratio",)
    version = stored(world).version
    assert say(world, policy="vanilla", upper_task_ratio=5, lower_task_ratio="0.5") == ()
    assert (stored(world).settings, stored(world).version) == (
        {"upper_task_ratio": 5, "lower_task_ratio": 0.5},
        version,
    )


def test_none_sets_a_value_back(world: World) -> None:
    """`none`, or nothing at all, sets a setting, a bound and a limit of launches back to its default."""
    say(world, policy="vanilla", upper_task_ratio=5, max_workers=7, min_workers=2, max_launch_per_cycle=3)
    changed = say(world, upper_task_ratio="none", max_workers="none", min_workers="none", max_launch_per_cycle="")
    assert set(changed) == {"upper_task_ratio", "max_workers", "min_workers", "max_launch_per_cycle"}
    now = stored(world)
    assert (now.settings, now.min_workers, now.max_workers, now.max_launch_per_cycle) == ({}, 0, None, 100)


def test_another_policy_drops_what_it_does_not_have(world: World) -> None:
    """Values that the new policy has as well stay; the others are dropped, and named."""
    say(world, policy="vanilla", upper_task_ratio=5, allocate="even_load")
    assert say(world, policy="fixed", target_workers=1) == ("policy", "target_workers", "upper_task_ratio (dropped)")
    assert stored(world).settings == {"allocate": "even_load", "target_workers": 1}


def test_a_target_alone_means_fixed(world: World) -> None:
    """`target_workers` without a policy is policy `fixed`, wherever it is said."""
    say(world, target_workers="2")
    assert (stored(world).policy, stored(world).settings) == ("fixed", {"target_workers": 2})


@pytest.mark.parametrize(
    "values",
    [
        {"policy": "magic"},
        {"policy": 7},
        {"policy": "fixed"},
        {"policy": "vanilla", "target_workers": 2},
        {"upper_task_ratio": 5},
        {"policy": "vanilla", "upper_task_ratio": float("nan")},
        {"policy": "vanilla", "upper_task_ratio": True},
        {"policy": "vanilla", "upper_task_ratio": [5]},
        {"policy": "vanilla", "upper_task_ratio": 1, "lower_task_ratio": 2},
        {"policy": "waterfall"},
        {"allocate": "fairly"},
        {"min_workers": 3, "max_workers": 2},
        {"max_launch_per_cycle": 0},
        {"min_workers": 1.5},
    ],
)
def test_what_cannot_be_is_refused_and_nothing_stored(world: World, values: dict[str, object]) -> None:
    """An unknown name, a value of the wrong kind, or values that contradict each other change nothing."""
    say(world, policy="no")
    before = stored(world)
    with pytest.raises(UsageError) as refused:
        say(world, **values)
    assert "\n" not in str(refused.value)
    assert stored(world) == before


def faults() -> list[Any]:
    """Return advice that no policy may give."""
    reason = Reason("test", "test")
    return [
        None,
        3,
        Advice(float("nan"), reason),  # type: ignore[arg-type]
        Advice(-1, reason),
        Advice(True, reason),
        Advice("many", reason),  # type: ignore[arg-type]
        Advice(10**9, reason),
    ]


@pytest.mark.parametrize("advice", [*faults(), ZeroDivisionError("by nothing")], ids=repr)
def test_a_policy_that_fails_is_not_stored(world: World, monkeypatch: pytest.MonkeyPatch, advice: Any) -> None:
    """A policy of one's own that raises, or says what is no number of workers, is refused when it is first chosen, in
    one line that names it; nothing is stored, and the pool goes on as before."""

    def advise(_: Situation) -> Any:
        if isinstance(advice, Exception):
            raise advice
        return advice

    monkeypatch.setitem(_registry(), "broken", Policy("broken", advise))
    say(world, policy="fixed", target_workers=1)
    before = stored(world)
    with pytest.raises(UsageError, match="broken") as refused:
        say(world, policy="broken")
    assert "\n" not in str(refused.value)
    assert stored(world) == before
    assert world.run().rounds[0].plan.desired == 1


def _registry() -> dict[str, Policy]:
    from fleet.domain import policies

    return policies._POLICIES


def test_a_stored_policy_that_is_not_here_ends_the_pass(world: World) -> None:
    """A pool whose policy this installation does not have is left as it is, and the line names it."""
    say(world, policy="fixed", target_workers=1)
    with world.storage.transaction() as transaction:
        transaction.connection.exec_driver_sql("UPDATE scheduler SET policy = 'theirs'")
    with pytest.raises(UsageError, match="policy 'theirs' is unknown here"):
        world.run()


def test_stored_values_of_strangers_name_themselves(world: World) -> None:
    """A value that somebody wrote by SQL, and that cannot be, is named."""
    with pytest.raises(UsageError, match="upper_task_ratio"):
        in_force("vanilla", {"upper_task_ratio": "much"})


# fleet.toml


def file(folder: Path, text: str) -> Path:
    """Write fleet.toml."""
    (folder / "fleet.toml").write_text(text)
    return folder


def test_a_file_says_what_pools_are_told(tmp_path: Path) -> None:
    """[scaler] is the default pool's, [scaler.NAME] another's; lists become texts, `scaling` is the policy."""
    folder = file(
        tmp_path,
        "[scaler]\nscaling = 'waterfall'\ntiers = ['a:4', 'b']\nmax_workers = 20\n"
        "[scaler.images]\ntarget_workers = 2\n",
    )
    assert said_in_file(folder, "default", {}) == {"policy": "waterfall", "tiers": "a:4, b", "max_workers": 20}
    assert said_in_file(folder, "images", {}) == {"policy": "fixed", "target_workers": 2}
    assert said_in_file(folder, "others", {}) == {}


def test_no_file_says_nothing(tmp_path: Path) -> None:
    """Without a file nothing is said."""
    assert said_in_file(tmp_path, "default", {}) == {}


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    """Of another policy than the file's, the file's own settings mean nothing; its bounds still hold."""
    folder = file(tmp_path, "[scaler]\npolicy = 'vanilla'\nupper_task_ratio = 5\nmax_workers = 9\nallocate = 'pull'\n")
    said = said_in_file(folder, "default", {"policy": "fixed", "target_workers": 0})
    assert said == {"max_workers": 9, "allocate": "pull"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[scalers]\n", r"\[scalers\] is unknown: did you mean \[scaler\]"),
        ("policy = 'no'\n", r"\[policy\] is unknown: there is \[scaler\]"),
        ("scaler = 3\n", "scaler is no table"),
        ("[scaler]\npolicy = 'no'\nscaling = 'no'\n", "policy and scaling are the same"),
        ("[scaler]\nspare = true\n", "spare = True: give a number or a text"),
        ("[scaler]\nspare = 2026-01-01\n", "spare = "),
        ("[scaler\n", "fleet.toml: "),
        ("[scaler]\nmax_workers = -3\n", "fleet.toml: max_workers -3: give"),
        ("[scaler]\npolicy = 'vanila'\n", "fleet.toml: policy 'vanila' is unknown"),
        ("[scaler]\npolicy = 'drain_time'\nmax_workrs = 3\n", "fleet.toml: .* did you mean max_workers"),
        ("[scaler]\nmin_worker = 3\n", "fleet.toml: setting 'min_worker' is unknown: did you mean min_workers"),
        ("[scaler]\nspare = 'many'\n", "fleet.toml: spare 'many'"),
        ("\xff", "fleet.toml: "),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """A file that is no TOML, or says what no pool can be told, is an error in one line that names it."""
    (tmp_path / "fleet.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=says) as refused:
        said_in_file(tmp_path, "default", {})
    assert "\n" not in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_a_folder_of_that_name_is_no_file(tmp_path: Path) -> None:
    """What cannot be read is an error, not silence."""
    (tmp_path / "fleet.toml").mkdir()
    with pytest.raises(UsageError, match="Is a directory"):
        said_in_file(tmp_path, "default", {})
