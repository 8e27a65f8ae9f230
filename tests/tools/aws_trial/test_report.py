"""Facts about the report: differences, times and what is left are all in it."""

from __future__ import annotations

import dataclasses

from tests.tools.aws_trial.observations import DESCRIBED, OBSERVED, UP
from tools.aws_trial.report import render


def test_equal_trials_have_a_report_without_differences() -> None:
    text = render(OBSERVED, OBSERVED)
    assert "- 0 differences" in text
    assert "## Differences\n\nNone." in text
    assert "Nothing with the trial's tag." in text
    assert "| `fab up --yes` | 300.0 | 300.0 |" in text
    assert "Output of the commands that failed" not in text


def test_a_difference_is_a_row_with_both_answers() -> None:
    observed = dataclasses.replace(OBSERVED, facts={"doctor before: stack": "a|b\nc"})
    text = render(observed, OBSERVED)
    assert "- 1 differences" in text
    assert "### States" in text
    assert "| doctor before: stack | ok | a\\|b c |" in text


def test_what_is_left_and_what_failed_is_shown() -> None:
    failed = dataclasses.replace(UP, exit_code=1, last_lines=("first", "last"))
    text = render(dataclasses.replace(OBSERVED, commands=(failed,), left=("i-ID m5.large running",)), OBSERVED)
    assert "- 0 of 1 commands ended well" in text
    assert "- i-ID m5.large running" in text
    assert "`fab up --yes`\n\n```\nfirst\nlast\n```" in text


def test_fields_and_operations_of_one_cloud_alone_are_named() -> None:
    more = dataclasses.replace(DESCRIBED, fields=("A", "B[].C", "D"))
    another = dataclasses.replace(DESCRIBED, operation="sts:GetCallerIdentity")
    text = render(dataclasses.replace(OBSERVED, calls=(more, another)), OBSERVED)
    assert "| ec2:DescribeInstances |  | D |" in text
    assert "Called in one of the two trials alone: sts:GetCallerIdentity." in text
