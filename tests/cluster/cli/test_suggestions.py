"""Facts about words that nothing can be made of: they are named, with the nearest that would have meant something."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.cli.loader import flags_of_words
from cluster.cli.positionals import with_flags
from cluster.cli.program import make_program
from cluster.cli.suggestions import complaint
from fabfile import ns

CONTEXTS = ns.to_contexts()
FLAGS = flags_of_words(ns)
EVERYWHERE = make_program().initial_context.flags


def said(words: str) -> str:
    return complaint(with_flags(words.split(), CONTEXTS, FLAGS), CONTEXTS, FLAGS, EVERYWHERE)


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: str(context.name))
def test_every_task_refuses_a_flag_that_it_has_not_too_many_words_and_a_flag_without_its_value(context: Any) -> None:
    assert f"`fab {context.name}` has no --nonsense" in said(f"{context.name} --nonsense")
    takes_many = any(flag.kind is list for flag in context.flags.values() if flag.name == "run")
    too_many = "'two' is too much" in said(f"{context.name} one two") or "'one' is too much" in said(
        f"{context.name} one"
    )
    assert too_many != takes_many
    valued = sorted(name for name, flag in context.flags.items() if flag.takes_value and name.startswith("--"))
    assert [name for name in valued if "needs a value behind" not in said(f"{context.name} {name}")] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("sttaus", "no task 'sttaus'; did you mean status?"),
        ("qqqq", "no task 'qqqq'\n"),
        ("train --nods 3", "`fab train` has no --nods; did you mean --nodes?"),
        ("train --batch 64", "`fab train` has no --batch; did you mean --batch-per-rank?"),
        ("train --hier", "did you mean --hierarchical-allgather or --hierarchical-allreduce?"),
        ("stat", "no task 'stat'; did you mean status?"),
        ("train --no-sense", "`fab train` has no --no-sense"),
        ("status -x", "`fab status` has no -x"),
        ("scale 4 5", "takes one word, as --nodes: '5' is too much"),
        ("push satus", "'satus' is too much; did you mean status?"),
        ("logs --rank", "needs a value behind --rank"),
        ("train --set", "needs a value behind --set"),
        ("train --env --json", "`fab train` needs a value behind --env"),
        ("train --env --no-follow", "needs a value behind --env"),
        ("logs --rank -f", "needs a value behind --rank"),
    ],
)
def test_a_word_that_means_nothing_is_named_with_the_nearest(words: str, says: str) -> None:
    assert says in said(words)


def test_a_surplus_word_is_told_with_its_task_and_whether_that_takes_one() -> None:
    assert said("scale 4 5") == (
        "deepcdk: `fab scale` takes one word, as --nodes: '5' is too much\n  do: `fab --help scale` explains it"
    )
    assert said("status qqqq") == (
        "deepcdk: `fab status` takes no word without a flag: 'qqqq' is too much\n  do: `fab --help status` explains it"
    )


@pytest.mark.parametrize(
    "words",
    [
        "",
        "ssh worker3",
        "push status",
        "train --no-follow --nodes=3 --set workers=2",
        "logs -f --rank 1",
        "logs -fa 1",
        "train --help",
        "status --echo",
        "--echo status",
        "scale --nodes -1",
    ],
)
def test_what_invoke_understands_is_left_to_it(words: str) -> None:
    assert said(words) == ""
