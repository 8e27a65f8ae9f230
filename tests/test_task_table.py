"""Facts about all tasks together: a new one has help, a happy path, a document and an end by Ctrl-C, each in a test.

Bad input is in `tests.test_fabfile` and, for flags and words, in `tests.cluster.cli.test_suggestions`: both take every
task.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from cluster.cli import loader
from tests.e2e.test_documents import DOCUMENTS
from tests.e2e.test_interruption import TASKS as INTERRUPTED

TESTS: Final = Path(__file__).resolve().parent
TASKS: Final[dict[str, Any]] = dict(loader.collection().tasks)
NAMES: Final = sorted(TASKS)
READ_HELP: Final = """\
import json
from cluster.cli import loader
print(json.dumps({name: {argument.name: argument.help for argument in task.get_arguments()}
                  for name, task in loader.collection().tasks.items()}))
"""
HELP: Final[dict[str, dict[str, str | None]]] = json.loads(
    subprocess.run(
        [sys.executable, "-c", READ_HELP], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    ).stdout
)
"""Of each task its flags and what they say. From another process: Invoke takes a task's help away once it is read."""

HAPPY: Final = {
    "attach": "e2e/test_survival.py::"
    "test_a_laptop_killed_in_mid_run_changes_nothing_and_a_new_attach_shows_it_from_the_start",
    "bench": "e2e/test_tasks.py::test_a_benchmark_is_a_run_that_goes_on_where_it_was_stopped_and_ends_in_a_picture",
    "compare": "e2e/test_tasks.py::test_a_stopped_run_goes_on_from_its_checkpoint_on_fewer_nodes",
    "doctor": "e2e/own_clouds/test_lifecycle.py::test_the_doctor_finds_nothing_wrong_with_a_deployed_cluster",
    "down": "e2e/own_clouds/test_lifecycle.py::test_destroy_leaves_no_instance_and_no_stack",
    "fetch": "e2e/test_run.py::trained",
    "logs": "e2e/test_tasks.py::test_a_stopped_run_goes_on_from_its_checkpoint_on_fewer_nodes",
    "notebook": "e2e/test_documents.py::test_a_notebook_on_a_worker_is_seen_through_the_tunnel_and_ends_with_ctrl_c",
    "plan": "test_fabfile.py::test_a_plan_shows_the_choice_its_picture_and_what_was_assumed_and_is_a_document",
    "prices": "test_fabfile.py::test_prices_are_shown_with_date_and_source_and_a_refusal_of_the_price_list_is_noted",
    "push": "e2e/test_run.py::test_an_unchanged_payload_uploads_nothing",
    "recipes": "test_fabfile.py::test_the_recipes_are_shown_in_short_one_by_one_and_as_documents",
    "release": "e2e/test_observability.py::test_a_budget_that_holds_nobody_back_has_nothing_to_release",
    "replace": "e2e/test_documents.py::DOCUMENTS",
    "report": "e2e/test_documents.py::DOCUMENTS",
    "resume": "e2e/test_tasks.py::test_a_stopped_run_goes_on_from_its_checkpoint_on_fewer_nodes",
    "rm": "e2e/test_tasks.py::test_an_ended_run_is_removed_for_good",
    "run": "e2e/test_tasks.py::run",
    "runs": "e2e/test_run.py::runs",
    "scale": "e2e/test_tasks.py::test_the_group_grows_and_shrinks_by_the_newest_and_keeps_the_others",
    "show": "e2e/test_survival.py::record",
    "ssh": "e2e/test_tasks.py::test_a_shell_opens_on_a_worker_by_its_number",
    "ssh-config": "e2e/test_tasks.py::ssh_config",
    "stage-data": "e2e/test_data.py::stage",
    "status": "e2e/test_run.py::test_status_names_every_node",
    "stop": "e2e/test_tasks.py::stopped",
    "tensorboard": "e2e/test_run.py::test_tensorboard_shows_the_run_through_the_tunnel_and_ends_with_it",
    "train": "e2e/test_scripts.py::launch",
    "up": "e2e/conftest.py::cluster",
}
"""Where each task does on the embedded cloud what it is for: a test, or what tests of that file are made with."""

DOCUMENTED: Final = {
    "bench": "e2e/test_tasks.py::test_a_benchmark_is_a_run_that_goes_on_where_it_was_stopped_and_ends_in_a_picture",
    "compare": "e2e/test_tasks.py::test_a_stopped_run_goes_on_from_its_checkpoint_on_fewer_nodes",
    "down": "e2e/own_clouds/test_lifecycle.py::test_destroy_leaves_no_instance_and_no_stack",
    "plan": "test_fabfile.py::test_a_plan_shows_the_choice_its_picture_and_what_was_assumed_and_is_a_document",
    "prices": "test_fabfile.py::test_prices_are_shown_with_date_and_source_and_a_refusal_of_the_price_list_is_noted",
    "recipes": "test_fabfile.py::test_the_recipes_are_shown_in_short_one_by_one_and_as_documents",
    "release": "e2e/test_observability.py::test_a_budget_that_holds_nobody_back_has_nothing_to_release",
    "resume": "e2e/test_tasks.py::test_a_stopped_run_goes_on_from_its_checkpoint_on_fewer_nodes",
    "rm": "e2e/test_documents.py::run_id",
    "run": "e2e/test_tasks.py::test_a_command_runs_on_every_worker_with_its_words_unchanged",
    "runs": "e2e/test_documents.py::test_runs_are_a_list_of_documents",
    "stage-data": "e2e/test_data.py::stage",
    "train": "e2e/test_documents.py::run_id",
}
"""Where the keys of a document are tested that is not in the list of `tests.e2e.test_documents`."""

UNDOCUMENTED: Final = {
    "logs": "its output is the log itself",
    "notebook": "it shows a page in the browser until Ctrl-C",
    "ssh": "it turns into SSH",
    "tensorboard": "it shows a page in the browser until Ctrl-C",
}

NEVER_CONNECTED: Final = {
    "doctor": "asks AWS alone, and changes nothing",
    "plan": "asks nobody but the price list",
    "prices": "asks AWS alone",
    "recipes": "asks nobody",
    "release": "asks AWS alone: what it has removed of the budget's message stays removed",
    "up": "talks to CloudFormation: test_ctrl_c_on_a_plan_leaves_no_change_set",
}
"""Tasks that no test interrupts while they are connected to the master, for they never are."""


def source(place: str) -> str:
    """Return the source of a function, or of a constant, of a test's file; fail where there is none."""
    file, _, name = place.partition("::")
    text = (TESTS / file).read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        names = {getattr(node, "name", ""), *(target.id for target in targets if isinstance(target, ast.Name))}
        if name in names:
            return ast.get_source_segment(text, node) or ""
    pytest.fail(f"{place}: there is none")


@pytest.mark.parametrize("task", NAMES)
def test_every_flag_says_what_it_does_and_the_help_begins_with_a_sentence_and_shows_an_example(task: str) -> None:
    assert [flag for flag, said in HELP[task].items() if not said] == []
    first, *rest = (TASKS[task].__doc__ or "").strip().splitlines()
    assert first.endswith(".")
    assert any(line.strip().startswith(f"Example: fab {task}") for line in rest)


@pytest.mark.parametrize("task", NAMES)
def test_every_task_does_in_a_test_what_it_is_for(task: str) -> None:
    assert f'"{task}"' in source(HAPPY[task])


@pytest.mark.parametrize("task", NAMES)
def test_every_task_that_reports_prints_a_document_whose_keys_a_test_states(task: str) -> None:
    has_flag = "json" in HELP[task]
    assert has_flag == (task not in UNDOCUMENTED)
    listed = any(task == words[0] and "--json" in words for words, _ in DOCUMENTS)
    assert not has_flag or listed or '"--json"' in source(DOCUMENTED[task])


@pytest.mark.parametrize("task", NAMES)
def test_every_task_is_interrupted_while_it_is_connected_unless_it_never_is(task: str) -> None:
    assert (task in {words[0] for words in INTERRUPTED}) != (task in NEVER_CONNECTED)


def test_no_list_names_a_task_that_there_is_not() -> None:
    named = {*HAPPY, *DOCUMENTED, *UNDOCUMENTED, *NEVER_CONNECTED, *(words[0] for words, _ in DOCUMENTS)}
    assert named - set(NAMES) == set()
