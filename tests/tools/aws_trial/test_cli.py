"""Facts about the command line of a trial: what it refuses, before anything is asked of an account."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tools.aws_trial import cli
from tools.aws_trial.observation import read


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "give --ssh-cidr ADDRESS/32"),
        (["--ssh-cidr", "198.51.100.7/32", "--session-manager"], "give --ssh-cidr ADDRESS/32"),
        (["--session-manager", "--name", "deepcdk"], "the trial destroys the cluster of this name"),
        (["--ssh_cidr", "x"], "unrecognized arguments"),
        (["--embed"], "unrecognized arguments"),
    ],
)
def test_wrong_arguments_end_with_2(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2
    assert why in capsys.readouterr().err


def test_a_wrong_network_is_refused_with_its_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert cli.main(["--ssh-cidr", "somewhere", "--yes"]) == 1
    assert "ssh_cidr" in capsys.readouterr().err


def test_what_aws_gives_is_never_recorded_as_the_embedded_clouds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert cli.main(["--session-manager", "--record", "--yes"]) == 1
    assert "give --embedded too" in capsys.readouterr().err


def test_the_committed_record_is_the_embedded_clouds_and_all_of_it_went_well() -> None:
    expected = read(cli.EXPECTED)
    assert expected.where == "embedded cloud"
    assert {each.exit_code for each in expected.commands} == {0}
    assert expected.left == ()
    assert "" not in {each.code for each in expected.refusals}


def test_a_cloud_that_this_rehearsal_did_not_start_is_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def refused(command: Sequence[str]) -> int:
        ran.append(command[3])
        return 1

    monkeypatch.setattr(cli, "_run", refused)
    assert cli.main(["--embedded", "--yes"]) == 1
    assert ran == ["start"]


def test_a_rehearsal_is_stopped_also_where_the_trial_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def fails(command: Sequence[str]) -> int:
        ran.append(command[3])
        return int("tools.aws_trial" in command)

    monkeypatch.setattr(cli, "_run", fails)
    assert cli.main(["--embedded", "--yes"]) == 1
    assert ran == ["start", "run", "run", "stop"]
