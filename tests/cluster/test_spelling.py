"""Facts about words that nothing can be made of: they are named, with the nearest that would have meant something."""

from __future__ import annotations

import pytest
from fabric.main import make_program

from cluster.tasks.positionals import with_flags
from cluster.tasks.spelling import complaint
from fabfile import ns

CONTEXTS = ns.to_contexts()
EVERYWHERE = make_program().initial_context.flags


def said(words: str) -> str:
    return complaint(with_flags(words.split(), CONTEXTS), CONTEXTS, EVERYWHERE)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("sttaus", "no task 'sttaus'; did you mean status?"),
        ("qqqq", "no task 'qqqq'\n"),
        ("train --nods 3", "`fab train` has no --nods; did you mean --nodes?"),
        ("status -x", "`fab status` has no -x"),
        ("scale 4 5", "takes one word, as --nodes: '5' is too much"),
        ("push satus", "'satus' is too much; did you mean status?"),
        ("logs --rank", "needs a value behind --rank"),
        ("train --set", "needs a value behind --set"),
    ],
)
def test_a_word_that_means_nothing_is_named_with_the_nearest(words: str, says: str) -> None:
    assert says in said(words)


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
        "scale --nodes -1",
    ],
)
def test_what_invoke_understands_is_left_to_it(words: str) -> None:
    assert said(words) == ""
