"""The stand-in for the CloudWatch agent sends new lines of log files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localcloud.guest.cloudwatch_agent.logs import Source, Tail


class Received:
    """Destination that records streams and lines, and fails a given number of times."""

    def __init__(self, failures: int = 0) -> None:
        self.streams: list[tuple[str, str]] = []
        self.lines: list[str] = []
        self.failures = failures

    def create_stream(self, group: str, stream: str) -> None:
        self.streams.append((group, stream))

    def put_events(self, group: str, stream: str, lines: list[str]) -> None:
        assert (group, stream) in self.streams
        if self.failures:
            self.failures -= 1
            raise ConnectionError("gone")
        self.lines += lines


def source(path: Path | str, **more: object) -> Source:
    entry = {"file_path": str(path), "log_group_name": "g", "log_stream_name": "{instance_id}/boot", **more}
    return Source.parse(entry, {"instance_id": "i-1"})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "boot.log"


def test_lines_are_shipped_once_as_they_come(log: Path) -> None:
    received = Received()
    tail = Tail([source(log)], received)
    tail.ship()
    assert received.streams == []
    log.write_text("one\n\ntwo\nhal")
    tail.ship()
    tail.ship()
    with log.open("a") as file:
        file.write("f\n")
    tail.ship()
    assert received.lines == ["one", "two", "half"]
    assert received.streams == [("g", "i-1/boot")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Z", "C"]), max_size=40), max_size=30)
)
def test_any_lines_arrive_whole_and_in_order(log: Path, lines: list[str]) -> None:
    log.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    received = Received()
    Tail([source(log)], received).ship()
    assert received.lines == [line for line in lines if line]


def test_unsent_lines_are_sent_again(log: Path) -> None:
    received = Received(failures=1)
    tail = Tail([source(log)], received)
    log.write_text("one\ntwo\n")
    with pytest.raises(ConnectionError):
        tail.ship()
    tail.ship()
    assert received.lines == ["one", "two"]


def test_many_lines_are_shipped_in_batches(log: Path) -> None:
    received = Received()
    log.write_text("".join(f"{number}\n" for number in range(2500)) + "x" * 200_000 + "\n")
    Tail([source(log)], received).ship()
    assert received.lines[:2500] == [str(number) for number in range(2500)]
    assert "".join(received.lines[2500:]) == "x" * 200_000


def test_rewritten_file_is_shipped_again(log: Path) -> None:
    received = Received()
    tail = Tail([source(log)], received)
    log.write_text("a longer line\n")
    tail.ship()
    log.write_text("short\n")
    tail.ship()
    assert received.lines == ["a longer line", "short"]


def test_each_file_or_only_the_newest_gets_a_stream(tmp_path: Path) -> None:
    for name in ("a b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "launcher.log").write_text(f"{name}\n")
    pattern = f"{tmp_path}/*/launcher.log"
    folder = str(tmp_path).replace("/", "_")
    assert list(source(pattern, publish_multi_logs=True).files().values()) == [
        f"i-1/boot_{folder}_a_b_launcher.log",
        f"i-1/boot_{folder}_c_launcher.log",
    ]
    assert list(source(pattern).files().values()) == ["i-1/boot"]
