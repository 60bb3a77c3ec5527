"""Whether a service manager would end launched workers with their scaler."""

from pathlib import Path

import pytest

from fleet.adapters.systemd import reaping_unit

IN_SYSTEMD = {"INVOCATION_ID": "1"}


@pytest.mark.parametrize(
    ("group", "environment", "mode", "unit"),
    [
        ("0::/system.slice/fleet.service", IN_SYSTEMD, "control-group", "fleet.service"),
        ("0::/system.slice/fleet.service", IN_SYSTEMD, "", "fleet.service"),
        ("0::/system.slice/fleet.service", IN_SYSTEMD, "process", None),
        ("0::/system.slice/cron.service", {}, "control-group", None),
        ("0::/user.slice/user-1.slice/session-3.scope", IN_SYSTEMD, "control-group", None),
        ("0::/", IN_SYSTEMD, "control-group", None),
        ("", IN_SYSTEMD, "control-group", None),
    ],
)
def test_a_unit_that_kills_its_group_is_named(
    tmp_path: Path, group: str, environment: dict[str, str], mode: str, unit: str | None
) -> None:
    """A service that ends its whole control group is named; cron, logins and containers are not (CR02)."""
    cgroup = tmp_path / "cgroup"
    cgroup.write_text(group and group + "\n")
    assert reaping_unit(environment, cgroup, lambda name, of_user: mode) == unit


def test_a_users_unit_is_asked_of_the_users_manager(tmp_path: Path) -> None:
    """`systemctl --user` knows units of a user's manager (CR02)."""
    cgroup = tmp_path / "cgroup"
    cgroup.write_text("0::/user.slice/user-1.slice/user@1.service/app.slice/scale.service\n")
    asked = []
    reaping_unit(IN_SYSTEMD, cgroup, lambda name, of_user: str(asked.append((name, of_user))))
    assert asked == [("scale.service", True)]


def test_without_a_control_group_nothing_is_said(tmp_path: Path) -> None:
    """Where the kernel does not say, nothing is claimed."""
    assert reaping_unit(IN_SYSTEMD, tmp_path / "gone") is None
