"""Comparing first steps: times are read from the output, and both programs get the same flags."""

from __future__ import annotations

import pytest

from benchmarks.first_step import BARE, OURS, UNCHECKED, Field, main, parse_record, promise_s, seconds_to_step

MASTER = "/opt/deepcdk/runtime/0/bin/python"
PYTHON = "/opt/deepcdk/runtime/1/bin/python"
RECORD = {
    "launch": {
        "command": [
            MASTER,
            "-m",
            "agent.launch.horovodrun",
            "-np",
            "2",
            "--gloo",
            PYTHON,
            "-m",
            "agent.launch.rank",
            "/runs/1",
        ],
        "directory": "/mnt/efs/payloads/a",
    },
    "spec": {"efs_mount": "/mnt/efs", "program": "b"},
}


def test_seconds_to_first_step_are_computed_from_output() -> None:
    assert seconds_to_step("100.250000000\npayload a\n[0]<stdout>:first step 112.750\n") == 12.5
    with pytest.raises(RuntimeError, match="the program did not print `first step`; its output:\n100"):
        seconds_to_step("100.25\nno connection")


def test_limit_is_two_seconds_for_two_hosts_and_four_for_sixteen() -> None:
    assert (promise_s(2), promise_s(16)) == (2, 4)


def test_plain_horovodrun_gets_our_flags_and_interpreter() -> None:
    launcher, rank, directory = parse_record(RECORD)  # type: ignore[arg-type]  # as JSON has it
    field = Field(train=("fab", "train"), launcher=launcher, rank=rank, directory=directory, config="c", first_s=1.0)
    program = f"-np 2 --gloo {PYTHON} /mnt/efs/payloads/b/program/first_step.py"
    assert field.command(BARE)[-1] == f"date +%s.%N; exec {PYTHON} /opt/deepcdk/runtime/1/bin/horovodrun {program}"
    unchecked = f"cd /mnt/efs/payloads/a; date +%s.%N; exec {MASTER} -m agent.launch.horovodrun {program}"
    assert field.command(UNCHECKED)[-1] == unchecked
    assert field.command(OURS)[-1] == "date +%s.%N; exec fab train"


@pytest.mark.parametrize("words", [["--hosts", "0"], ["--repeat", "0"]])
def test_no_measurements_are_rejected(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
