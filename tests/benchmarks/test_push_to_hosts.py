"""Comparing pushes: a missing tool is reported, and each tool gets every host and the same bastion."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.push_to_hosts import Book, fill, main, parse_link_bytes
from benchmarks.push_tools import Fleet, missing, tools

FLEET = Fleet(
    user="ec2-user", key="/k", bastion="198.18.1.2", hosts=("10.0.64.4", "10.0.64.5"), settings=("--set", "workers=2")
)


def test_missing_tool_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    lacks = {tool.name: missing(tool) for tool in tools()}
    assert lacks["deepcdk"] == ""
    assert lacks["rsync"].startswith("program rsync not found; install it")


def test_each_tool_gets_every_host_and_the_bastion() -> None:
    ours, shared, *others = tools()
    assert ours.push(FLEET, Path("/src"))[:3] == ["fab", "stage-data", "/src"]
    assert shared.push(FLEET, Path("/src"))[3:7] == ["--name", "bench-push", "--to", "shared"]
    for tool in others:
        words = " ".join(tool.push(FLEET, Path("/src")))
        assert all(host in words for host in (*FLEET.hosts, FLEET.bastion)), tool.name


def test_files_have_requested_number_and_size(tmp_path: Path) -> None:
    fill(tmp_path, 0.1, 250)
    sizes = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
    assert sizes == [400] * 250


@pytest.mark.parametrize("words", [["--hosts", "0"], ["--megabytes", "0"], ["--files", "0"], ["--repeat", "0"]])
def test_no_measurements_are_rejected(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)


def test_bytes_of_all_links_except_loopback_are_added() -> None:
    text = "Inter-|  Receive | Transmit\n face |bytes\n    lo: 9 1 0 0 0 0 0 0 9 1\n  eth0: 100 1 0 0 0 0 0 0 7 1 0\n"
    assert parse_link_bytes(text) == 107


def test_limits_are_checked_and_a_terminated_tool_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    book = Book()
    for hosts, ours in ((16, 1000), (64, 1050)):
        samples = {"deepcdk": [2.0, 1.0, 3.0], "rsync": [float("inf")]}
        book.keep("push", hosts, samples, bytes={"deepcdk": ours, "rsync": 9})
    assert book.median("push", 64) == 2.0
    book.judge_bytes("push")
    book.judge("sooner", False, "0.9")
    printed = capsys.readouterr().out
    assert (
        "stopped" in printed and "1.050 x from 16 to 64 hosts: kept" in printed and "sooner: 0.9: NOT kept" in printed
    )
    assert [verdict["kept"] for verdict in book.verdicts] == [True, False]
    assert book.results() == {"push, 16 hosts: deepcdk": [2.0], "push, 64 hosts: deepcdk": [2.0], "push: bytes": [1.05]}
