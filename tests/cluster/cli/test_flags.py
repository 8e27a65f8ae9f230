"""Flags generated from declarations: names, types, defaults and help; errors name the flag."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated

import pytest
from hypothesis import given as for_any
from hypothesis import strategies as st

from agent.spec.horovod import KnobError, Knobs
from agent.supervisor.cli import _parser
from cluster.cli.flags import MOST, call, flags_of, parse_run_id, parse_whole, whole
from cluster.errors import UsageError
from cluster.runs.supervisor_client import supervisor_command
from tests.factories import make_stack
from tests.words import WORDS

PARSER, STACK = _parser(), make_stack()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Some flags that belong together."""

    batch_per_rank: Annotated[int | None, "images"] = None
    cycle_time_ms: Annotated[float | None, "milliseconds"] = None


def example(
    *, set_: Annotated[tuple[str, ...], "settings"] = (), group: Group, force: Annotated[bool, "at once"] = False
) -> tuple[object, ...]:
    return set_, group, force


def given(**values: object) -> tuple[object, ...]:
    defaults: dict[str, object] = {"set_": [], "batch_per_rank": None, "cycle_time_ms": None, "force": False}
    typed = {**defaults, **values}
    return call(example, {flag.parameter: flag.parse(typed[flag.parameter]) for flag in flags_of(example)})


def test_flags_are_declared_once_with_name_default_and_help_in_order() -> None:
    assert [(flag.name, flag.default, flag.help) for flag in flags_of(example)] == [
        ("--set", (), "settings"),
        ("--batch-per-rank", None, "images"),
        ("--cycle-time-ms", None, "milliseconds"),
        ("--force", False, "at once"),
    ]


def test_help_names_defaults_once() -> None:
    def declared(
        *,
        nodes: Annotated[int, "workers", whole(lowest=1)] = 2,
        port: Annotated[int, "a port; default: any", whole(lowest=1)] = 8,
        into: Annotated[str, "a directory"] = "",
        browser: Annotated[bool, "open it"] = True,
    ) -> None: ...

    shown = [flag.described for flag in flags_of(declared)]
    assert shown == ["workers; default: 2", "a port; default: any", "a directory", "open it"]


def test_function_gets_typed_values_and_groups() -> None:
    assert given() == ((), Group(), False)
    assert given(set_=["a=b"], batch_per_rank="8", cycle_time_ms="2.5", force=True) == (
        ("a=b",), Group(batch_per_rank=8, cycle_time_ms=2.5), True,
    )  # fmt: skip
    assert given(batch_per_rank="") == ((), Group(), False), "left empty is not given"


def test_empty_value_of_a_flag_with_a_default_is_rejected() -> None:
    def restarted(*, restarts: Annotated[int, "restarts", whole(lowest=0)] = 3) -> int:
        return restarts

    (flag,) = flags_of(restarted)
    assert flag.parse(None) == 3
    with pytest.raises(UsageError, match="--restarts"):
        flag.parse("")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"cycle_time_ms": "fast"}, "--cycle-time-ms = 'fast': must be a number"),
        ({"batch_per_rank": "-1"}, "--batch-per-rank = '-1': must be a whole number"),
        ({"batch_per_rank": "9" * 5000}, "must be a whole number from 0"),
    ],
)
def test_value_of_wrong_type_is_rejected_with_its_flag(values: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        given(**values)


def test_horovod_settings_are_flags_and_are_rejected_by_name() -> None:
    flags = {flag.name: flag for flag in flags_of(Knobs)}
    assert [name for name, flag in flags.items() if not flag.help.startswith("Horovod: ")] == []
    assert flags["--fusion-threshold-mb"].parse("64") == 64
    nan = flags["--cycle-time-ms"].parse("nan")
    with pytest.raises(KnobError, match=r"--cycle-time-ms = nan: must be 0\.01 to 60000"):
        Knobs(cycle_time_ms=nan)


@for_any(text=WORDS | st.integers().map(str) | st.text("0123456789", max_size=30), lowest=st.integers(0, 3))
def test_text_is_parsed_as_shown_number_or_rejected(text: str, lowest: int) -> None:
    meant = int(text) if re.fullmatch("[0-9]+", text) else -1
    if lowest <= meant <= MOST:
        assert parse_whole("--rank", text, lowest=lowest) == meant
    else:
        with pytest.raises(UsageError, match=r"(?s)^--rank = .*: must be a whole number from "):
            parse_whole("--rank", text, lowest=lowest)


@pytest.mark.parametrize("text", ["9" * 5000, "1_6", " 3", "٣"])
def test_number_formats_special_to_python_are_rejected(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_whole("--nodes", text, lowest=1, highest=16, called="max_workers")
    assert str(caught.value).endswith("must be a whole number from 1 to 16 (max_workers)")
    assert len(str(caught.value)) < 500


@for_any(text=WORDS | st.from_regex(r"[a-z0-9][a-z0-9.-]{0,127}", fullmatch=True))
def test_run_ids_are_valid_exactly_if_master_accepts_them(text: str) -> None:
    try:
        word = parse_run_id("--run", text)
    except UsageError as error:
        assert "must be a run's id, 1 to 128 characters" in error.rule
        return
    for verb in ("status", "show", "remove", "follow", "stop"):
        assert PARSER.parse_args(supervisor_command(STACK, verb, word)[3:]).run == text


@pytest.mark.parametrize("text", ["../x", "-rf", "--grace=0", "$(id)", "a b", "x" * 129, ".live", "A", "a/b", "a\n"])
def test_invalid_run_id_is_rejected_with_rule(text: str) -> None:
    with pytest.raises(UsageError, match="must be a run's id, 1 to 128 characters"):
        parse_run_id("--run", text)
