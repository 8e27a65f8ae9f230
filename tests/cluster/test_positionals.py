"""Facts about words without a flag."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.tasks.positionals import FLAGS, with_flags
from fabfile import ns

CONTEXTS = ns.to_contexts()
FLAGS_OF = {str(context.name): context.flags for context in CONTEXTS}


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("ssh worker3", "ssh --node worker3"),
        ("ssh", "ssh"),
        ("ssh --node worker3", "ssh --node worker3"),
        ("ssh --key k worker3", "ssh --key k --node worker3"),
        ("ssh --key=k worker3", "ssh --key=k --node worker3"),
        ("logs -f a-run", "logs -f --run a-run"),
        ("logs a-run --rank 1", "logs --run a-run --rank 1"),
        ("logs --run a-run b-run", "logs --run a-run b-run"),
        ("scale 4 --yes", "scale --nodes 4 --yes"),
        ("scale -1", "scale -1"),
        ("push status", "push status"),
        ("show status", "show status"),
        ("ssh a b", "ssh --node a b"),
        ("stop one show two", "stop --run one show --run two"),
        ("status one", "status one"),
        ("nonsense one", "nonsense one"),
    ],
)
def test_a_word_gets_the_flag_that_it_stands_for(words: str, meant: str) -> None:
    assert with_flags(words.split(), CONTEXTS) == meant.split()


def test_every_such_flag_is_one_that_its_task_has() -> None:
    assert [task for task, flag in FLAGS.items() if flag not in FLAGS_OF[task]] == []


@given(st.lists(st.sampled_from([*FLAGS_OF, *FLAGS.values(), "--key", "-f", "worker1", "--json", "--set=a=b", ""])))
def test_no_word_is_lost_or_moved_and_a_second_pass_changes_nothing(words: list[str]) -> None:
    once = with_flags(words, CONTEXTS)
    rest = iter(once)
    assert all(word in rest for word in words)
    assert with_flags(once, CONTEXTS) == once
