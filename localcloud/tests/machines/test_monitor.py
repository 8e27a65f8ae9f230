"""QEMU's monitor."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcloud.machines.json_socket import NoAnswerError
from localcloud.machines.monitor import power_down
from machines.peer import peer


def test_the_power_button_is_pressed_once_the_monitor_takes_commands(tmp_path: Path) -> None:
    with peer(
        tmp_path / "monitor", [[{"QMP": {}}, {"return": {}}], [{"event": "POWERDOWN"}, {"return": {}}]]
    ) as requests:
        power_down(tmp_path / "monitor")
    assert [request["execute"] for request in requests] == ["qmp_capabilities", "system_powerdown"]


def test_a_machine_that_is_gone_has_no_button(tmp_path: Path) -> None:
    with pytest.raises(NoAnswerError):
        power_down(tmp_path / "monitor")
