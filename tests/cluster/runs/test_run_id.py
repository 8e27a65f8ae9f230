"""Facts about the ids of runs as they are typed: the master reads the very word as a run's, or it is refused here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.supervisor.cli import _parser
from cluster.errors import UsageError
from cluster.runs.run_id import run_id_arguments
from cluster.runs.supervisor import supervisor_command
from tests.factories import make_stack
from tests.words import WORDS

VERBS = ("status", "show", "remove", "follow", "logs", "stop")
IDS = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,127}", fullmatch=True)


@given(text=WORDS | IDS, verb=st.sampled_from(VERBS))
def test_the_masters_own_reader_takes_it_for_a_run_and_for_nothing_else(text: str, verb: str) -> None:
    try:
        words = run_id_arguments(text)
    except UsageError as error:
        assert error.name == "--run"
        return
    if words or verb != "remove":
        options = _parser().parse_args(supervisor_command(make_stack(), verb, *words)[3:])
        assert (options.run, options.root) == (text, make_stack().runs_root)


@pytest.mark.parametrize("text", ["../x", "-rf", "--grace=0", "$(id)", "a b", "x" * 129, ".live", "A", "a/b", "a\n"])
def test_what_no_run_is_called_is_refused_by_the_rule(text: str) -> None:
    with pytest.raises(UsageError, match="must be a run's id, 1 to 128 of"):
        run_id_arguments(text)


@pytest.mark.parametrize("text", ["20261120-121314-digits-ab12", "one", "x" * 128])
def test_a_runs_id_is_taken_as_it_is(text: str) -> None:
    assert (run_id_arguments(text), run_id_arguments("")) == ([text], [])
