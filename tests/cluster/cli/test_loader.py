"""Facts about the tasks' modules: a task's own is enough for it, and every task is found in one."""

from __future__ import annotations

import pytest

from cluster.cli.loader import MODULES, collection, wanted


def test_without_words_every_task_is_there() -> None:
    assert set(collection().tasks) == {name for names in MODULES.values() for name in names}


@pytest.mark.parametrize(
    ("line", "modules"),
    [
        ("run -- true", {"run"}),
        ("stage-data x --name up", {"data", "deploy"}),
        ("up train", {"deploy", "train"}),
        ("sttaus", set(MODULES)),
        ("--unknown run", set(MODULES)),
    ],
)
def test_the_modules_of_the_named_tasks_are_wanted_and_all_where_the_first_word_names_none(
    line: str, modules: set[str]
) -> None:
    assert set(wanted(line.split())) == modules
