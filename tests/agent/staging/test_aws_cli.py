"""Running the AWS CLI: its arguments, its environment, and its exit."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from agent.staging.aws_cli import TIMEOUTS, AwsCliError, aws_command, running
from tests.stand_ins import write_program

FAILS = "echo 'An error occurred (AccessDenied)' >&2; exit 7"


def test_each_command_has_timeouts_and_its_region() -> None:
    assert aws_command("s3", "ls") == ["aws", "s3", "ls", *TIMEOUTS]
    words = aws_command("s3", "ls", region="eu-west-1", in_background=True)
    assert words == ["nice", "aws", "s3", "ls", "--region", "eu-west-1", *TIMEOUTS]


def test_cli_uses_utf_8_and_no_pager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PAGER", "less")
    with running([write_program(tmp_path / "aws", 'echo "$PYTHONUTF8 [$AWS_PAGER]"')]) as process:
        assert process.communicate()[0] == b"1 []\n"


def test_cli_failure_is_the_reported_reason(tmp_path: Path) -> None:
    with pytest.raises(AwsCliError, match="AccessDenied") as caught, running([write_program(tmp_path / "aws", FAILS)]):
        raise EOFError("what was read ended early")
    assert caught.value.status == 7


def test_error_in_block_stops_cli_and_is_raised(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(KeyError), running([write_program(tmp_path / "aws", "exec sleep 60")]) as process:
        raise KeyError
    assert process.poll() is not None
    assert time.monotonic() - began < 30


def test_upload_is_interrupted_before_its_input_ends(tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = f"trap 'echo interrupted > {told}; exit 1' INT; echo ready; while :; do sleep 0.05; done"
    with pytest.raises(KeyError), running([write_program(tmp_path / "aws", script)], stdin=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        raise KeyError
    assert told.read_text() == "interrupted\n"


@pytest.mark.parametrize("in_background", [False, True])
def test_missing_program_is_reported(tmp_path: Path, in_background: bool) -> None:
    absent = str(tmp_path / "absent")
    with (
        pytest.raises(AwsCliError, match=f"\\({absent}\\), which is needed for S3, is not installed") as caught,
        running(aws_command("s3", "ls", program=absent, in_background=in_background)),
    ):
        pass
    assert caught.value.status is None
