"""Facts about the comparison of pushes: a missing tool is named, and each is given every host and the one bastion."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fanout import Fleet, fill, main, missing, tools

FLEET = Fleet(
    user="ec2-user", key="/k", bastion="198.18.1.2", hosts=("10.0.64.4", "10.0.64.5"), settings=("--set", "workers=2")
)


def test_a_tool_that_is_not_there_is_named(tmp_path: Path) -> None:
    lacks = {tool.name: missing(tool, tmp_path) for tool in tools(tmp_path)}
    assert lacks["deepcdk"] == ""
    assert all(str(tmp_path) in lacks[name] for name in ("ansible", "parallel-ssh", "fabric"))


def test_each_tool_is_given_every_host_and_the_bastion(tmp_path: Path) -> None:
    ours, *others = tools(tmp_path)
    assert ours.push(FLEET, Path("/src"))[:3] == ["fab", "stage-data", "/src"]
    for tool in others:
        words = " ".join(tool.push(FLEET, Path("/src")))
        assert all(host in words for host in (*FLEET.hosts, FLEET.bastion)), tool.name


def test_the_files_are_as_many_and_as_large_as_asked(tmp_path: Path) -> None:
    fill(tmp_path, 0.1, 250)
    sizes = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
    assert sizes == [400] * 250


@pytest.mark.parametrize("words", [["--hosts", "0"], ["--megabytes", "0"], ["--files", "0"], ["--repeat", "0"]])
def test_nothing_is_no_measure(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
