"""The words of a command line: which ones get a flag, and how meaningless words are reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invoke.parser import Parser

from cluster.cli.flags import with_flags, words_after_dashes
from cluster.cli.mistyped_words import complaint
from cluster.cli.program import make_program
from cluster.cli.task_modules import flags_of_words
from fabfile import ns
from tests.words import LONG, NASTIEST, WORDS

CONTEXTS = ns.to_contexts()
FLAGS = flags_of_words(ns)
FLAGS_OF = {str(context.name): context.flags for context in CONTEXTS}
INVERSE_FLAGS_OF = {str(context.name): context.inverse_flags for context in CONTEXTS}
EVERYWHERE = make_program().initial_context
VALUED = sorted(
    (task, name)
    for task, flags in FLAGS_OF.items()
    for name in flags
    if name.startswith("--") and flags[name].takes_value
)
"""Every flag of every task that takes a value."""
VALUES = (WORDS | st.just(LONG)).filter(lambda word: word != "--")
"""Any word except `--`, which ends the task's own words."""


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("ssh worker3", "ssh --node worker3"),
        ("ssh", "ssh"),
        ("report one", "report --run one"),
        ("report one two --json three", "report --run one --run two --json --run three"),
        ("report --run one two", "report --run one --run two"),
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
def test_positional_word_gets_its_flag(words: str, meant: str) -> None:
    assert with_flags(words.split(), CONTEXTS, FLAGS) == meant.split()


@given(st.lists(st.sampled_from([*FLAGS_OF, *FLAGS.values(), "--key", "-f", "worker1", "--json", "--set=a=b", ""])))
def test_words_are_kept_in_order_and_second_pass_changes_nothing(words: list[str]) -> None:
    once = with_flags(words, CONTEXTS, FLAGS)
    rest = iter(once)
    assert all(word in rest for word in words)
    assert with_flags(once, CONTEXTS, FLAGS) == once


def refused(words: list[str]) -> str:
    """Return `fab`'s error message about a task's words; "" if it accepts them."""
    return complaint(with_flags(words, CONTEXTS, FLAGS), CONTEXTS, FLAGS, EVERYWHERE.flags)


def parsed(words: list[str]) -> dict[str, object]:
    """Parse a task's words as `fab` does; return its arguments."""
    completed = with_flags(words, CONTEXTS, FLAGS)
    assert complaint(completed, CONTEXTS, FLAGS, EVERYWHERE.flags) == ""
    found = Parser(contexts=CONTEXTS, initial=EVERYWHERE).parse_argv(completed)
    (context,) = found[1:]
    return {name: argument.value for name, argument in context.args.items()}


@settings(max_examples=30)
@given(place=st.sampled_from(VALUED), value=VALUES, joined=st.booleans())
def test_flags_value_reaches_its_task_unchanged_unless_it_is_a_flag_of_the_task_itself(
    place: tuple[str, str], value: str, joined: bool
) -> None:
    task, flag = place
    words = [task, f"{flag}={value}"] if joined else [task, flag, value]
    if not value:
        assert f"needs a value after {flag}; its value is empty" in refused(words)
        return
    if value in FLAGS_OF[task] or value in INVERSE_FLAGS_OF[task]:
        assert f"needs a value after {flag}" in refused(words)  # Invoke splits `joined` words and begins that flag
        return
    arguments = parsed(words)
    assert arguments[flag.removeprefix("--")] in (value, [value])


@settings(max_examples=20)
@given(task=st.sampled_from(sorted(FLAGS)), word=WORDS.filter(lambda word: not word.startswith("-")) | st.just(LONG))
def test_word_without_a_flag_reaches_its_task_unchanged(task: str, word: str) -> None:
    if word and word not in FLAGS_OF:
        assert parsed([task, word])[FLAGS[task].removeprefix("--")] in (word, [word])


@pytest.mark.parametrize("word", [word for word in NASTIEST if word.startswith("-") and word != "--"])
def test_word_like_a_flag_gets_no_flag(word: str) -> None:
    for task in FLAGS:
        assert with_flags([task, word], CONTEXTS, FLAGS) == [task, word]


def said(words: str) -> str:
    return refused(words.split())


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: str(context.name))
def test_every_task_rejects_unknown_flags_extra_words_and_missing_values(context: Any) -> None:
    assert f"`fab {context.name}` has no --nonsense" in said(f"{context.name} --nonsense")
    takes_many = any(flag.kind is list for flag in context.flags.values() if flag.name == "run")
    too_many = "unexpected word 'two'" in said(f"{context.name} one two") or "unexpected word 'one'" in said(
        f"{context.name} one"
    )
    assert too_many != takes_many
    valued = sorted(name for name, flag in context.flags.items() if flag.takes_value and name.startswith("--"))
    assert [name for name in valued if "needs a value after" not in said(f"{context.name} {name}")] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("sttaus", "unknown task 'sttaus'; did you mean status?"),
        ("train --nods 3", "`fab train` has no --nods; did you mean --nodes?"),
        ("train --batch 64", "`fab train` has no --batch; did you mean --batch-per-rank?"),
        ("train --hier", "did you mean --hierarchical-allgather or --hierarchical-allreduce?"),
        ("stat", "unknown task 'stat'; did you mean status?"),
        ("train --no-sense", "`fab train` has no --no-sense"),
        ("status -x", "`fab status` has no -x"),
        ("scale 4 5", "accepts one word, the value of --nodes: unexpected word '5'\n  do: read `fab --help scale`"),
        ("status qqqq", "`fab status` accepts no words without a flag: unexpected word 'qqqq'\n  do: "),
        ("push satus", "unexpected word 'satus'; did you mean status?"),
        ("train --env --json", "`fab train` needs a value after --env"),
        ("dashboard --key --no-browser", "needs a value after --key"),
        ("logs --rank -f", "needs a value after --rank"),
        ("train --nodes 2 --nodes 3", "`fab train` accepts --nodes only once"),
        ("scale 2 --nodes=3", "`fab scale` accepts --nodes only once"),
        ("train --yes=no", "`fab train` accepts no value for --yes"),
        ("train --yes=", "`fab train` accepts no value for --yes"),
    ],
)
def test_unknown_word_is_reported_with_nearest_match(words: str, says: str) -> None:
    assert says in said(words)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "ssh worker3",
        "push status",
        "dashboard --no-browser --port=3 --set workers=2",
        "logs -f --rank 1",
        "logs -fa 1",
        "train --help",
        "status --echo",
        "--echo status",
        "scale --nodes -1",
        "stop --run one show --run two",
        "status --set workers=1 --set name=a",
    ],
)
def test_valid_arguments_of_invoke_are_left_to_it(words: str) -> None:
    assert said(words) == ""


def test_program_words_are_after_first_double_dash() -> None:
    assert words_after_dashes(["fab", "run", "--master", "--", "a b", "--", ""]) == ("a b", "--", "")
    assert words_after_dashes(["fab", "run"]) == words_after_dashes(["fab", "run", "--"]) == ()
