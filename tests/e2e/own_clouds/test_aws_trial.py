"""The trial on an AWS account, rehearsed: the embedded cloud gives what the committed record says, and all is gone."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.conftest import start_cloud
from tools import demo
from tools.aws_trial.cli import EXPECTED
from tools.aws_trial.comparison import compare
from tools.aws_trial.observation import read

TIMEOUT_S = 800.0


def test_the_whole_trial_gives_what_is_recorded_and_leaves_nothing(tmp_path: Path) -> None:
    with start_cloud("trial") as cloud:
        words = ("--ssh-cidr", demo.LAPTOP_CIDR, "--yes", "--into", str(tmp_path))
        done = cloud.laptop("python", "-m", "tools.aws_trial", *words, timeout_s=TIMEOUT_S)
        assert "nothing with the trial's tag" in done.stdout
        (path,) = tmp_path.glob("deepcdk-trial-*/observation.json")
        assert compare(read(path), read(EXPECTED)) == ()
        assert "- 0 differences" in (path.parent / "report.md").read_text(encoding="utf-8")
        assert list((path.parent / "runs").glob("*/result.json"))
        statuses = [each["StackStatus"] for each in cloud.ask("cloudformation", "list_stacks")["StackSummaries"]]
        assert sorted(statuses) == ["CREATE_COMPLETE", "DELETE_COMPLETE"], "the CDK's own, and the trial's"
