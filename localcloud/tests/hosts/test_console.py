"""The hosts' consoles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from localcloud.cloud_paths import Layout
from localcloud.hosts.console import CONSOLE_BYTES, Consoles, last_line
from localcloud.hosts.host import Host


class Desk:
    """A console of a fake host, which is a pipe."""

    def __init__(self, directory: Path) -> None:
        self.told: list[tuple[str, str]] = []
        out, self.into = os.pipe()
        os.set_blocking(out, False)
        self.layout = Layout(name="lc0", run_root=directory / "run", data_root=directory / "data")
        # A console only uses the instance's id and the pipe of its host.
        self.host = cast(Host, SimpleNamespace(instance=SimpleNamespace(id="i-1"), console=out))
        self.consoles = Consoles(self.layout, lambda id, text: self.told.append((id, text)))
        self.consoles.open(self.host)

    def write(self, data: bytes) -> None:
        while data:
            written = os.write(self.into, data[:32768])
            data = data[written:]
            self.consoles.reader(self.host)()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    os.close(desk.into)
    os.close(desk.host.console)


def test_api_is_notified_once_per_change(desk: Desk) -> None:
    desk.write(b"boot\n")
    desk.consoles.publish()
    desk.consoles.publish()
    desk.write(b"ready\n")
    desk.consoles.publish()
    assert desk.told == [("i-1", "boot\n"), ("i-1", "boot\nready\n")]


def test_api_gets_the_end_of_the_console_and_the_file_all_of_it(desk: Desk) -> None:
    desk.write(b"x" * CONSOLE_BYTES + b"end\n")
    desk.consoles.publish()
    assert len(desk.told[-1][1]) == CONSOLE_BYTES
    assert desk.told[-1][1].endswith("xend\n")
    assert desk.layout.console("i-1").stat().st_size == CONSOLE_BYTES + 4


def test_last_output_is_published(desk: Desk) -> None:
    desk.write(b"cloud-init: user data ended with exit code 1\n")
    assert desk.consoles.result("i-1") == 1
    desk.consoles.close("i-1")
    assert desk.told[-1][1].endswith("exit code 1\n")
    assert desk.consoles.text("i-1") == ""


def test_last_line_has_no_control_sequences() -> None:
    assert last_line("boot\r\n[\x1b[0;32m  OK  \x1b[0m] Reached \x1b[0;1;39mreboot.target\x1b[0m.\r\n\x1b[K\r\n") == (
        "[  OK  ] Reached reboot.target."
    )
    assert last_line("work\nshutting down\x00\x07\n") == "shutting down"
    assert last_line("\n\x1b[2J\n") == ""
