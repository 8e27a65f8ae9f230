"""The report of a trial as Markdown: what differed from the embedded cloud, how long things took, and what is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tools.aws_trial.comparison import Difference, compare, compare_fields, unshared_operations
from tools.aws_trial.observation import Observation

SLOWEST: Final = 20
_NOTHING_LEFT: Final = (
    "Nothing with the trial's tag. The CDK's own stack CDKToolkit stays in the account, as after any deployment with "
    "the CDK."
)
_TOPICS: Final = {
    "commands": "Commands",
    "resources": "Resources of the stack: the states they went through",
    "refusals": "Calls that must be refused",
    "calls": "Refusals that the tasks met",
    "facts": "States",
}


def render(observed: Observation, expected: Observation) -> str:
    """Return the report: the comparison of one trial with the embedded cloud's."""
    differences = compare(observed, expected)
    parts = [
        "# A trial of deepcdk",
        _summary(observed, expected, differences),
        "## Differences",
        _differences(differences),
        "## Times",
        _times(observed, expected),
        "## Answers with other fields",
        _fields(observed, expected),
        "## What is left",
        "\n".join(f"- {line}" for line in observed.left) or _NOTHING_LEFT,
    ]
    failed = [each for each in observed.commands if each.exit_code]
    if failed:
        parts.append("## Output of the commands that failed")
        parts += [f"`{each.line}`\n\n```\n" + "\n".join(each.last_lines) + "\n```" for each in failed]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(observed: Observation, expected: Observation, differences: Sequence[Difference]) -> str:
    passed = sum(not each.exit_code for each in observed.commands)
    lines = [
        f"- on {observed.where}, {observed.date}, commit {observed.commit}",
        f"- compared with {expected.where}, {expected.date}, commit {expected.commit}",
        f"- {passed} of {len(observed.commands)} commands ended well",
        f"- {len(differences)} differences",
        "- settings: " + ", ".join(f"`{key}={value}`" for key, value in sorted(observed.settings.items())),
        "- ids, addresses, accounts, times and the caller's name are replaced by words in capitals",
    ]
    return "\n".join(lines)


def _differences(differences: Sequence[Difference]) -> str:
    if not differences:
        return "None."
    parts = []
    for topic, title in _TOPICS.items():
        rows = [each for each in differences if each.topic == topic]
        if rows:
            table = _table(
                ("what", "embedded cloud", "here"), ((each.name, each.expected, each.observed) for each in rows)
            )
            parts.append(f"### {title}\n\n{table}")
    return "\n\n".join(parts)


def _times(observed: Observation, expected: Observation) -> str:
    before = {each.name: each.seconds for each in expected.commands}
    commands = _table(
        ("command", "embedded cloud, s", "here, s"),
        ((f"`{each.line}`", _seconds(before.get(each.name)), _seconds(each.seconds)) for each in observed.commands),
    )
    ways = {(each.phase, each.logical_id): each.seconds for each in expected.resources}
    slowest = sorted(observed.resources, key=lambda each: -each.seconds)[:SLOWEST]
    resources = _table(
        ("resource", "embedded cloud, s", "here, s"),
        (
            (
                f"{each.phase} {each.logical_id}",
                _seconds(ways.get((each.phase, each.logical_id))),
                _seconds(each.seconds),
            )
            for each in slowest
        ),
    )
    return f"{commands}\n\nThe {len(slowest)} slowest resources:\n\n{resources}" if slowest else commands


def _fields(observed: Observation, expected: Observation) -> str:
    rows = [
        (each.operation, ", ".join(each.missing), ", ".join(each.more)) for each in compare_fields(observed, expected)
    ]
    parts = [_table(("operation", "the embedded cloud alone", "here alone"), rows) if rows else "None."]
    if unshared := unshared_operations(observed, expected):
        parts.append(f"Called in one of the two trials alone: {', '.join(unshared)}.")
    return "\n\n".join(parts)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
