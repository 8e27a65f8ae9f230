"""The settings in a report: everything in the record."""

from __future__ import annotations

import pytest

from cluster.report.run_report import report_of
from cluster.report.run_settings import CLUSTER, GROUPS, HOROVOD, RANKS, RUN, TRAINING, VERSIONS
from cluster.report.shown_values import value_text
from tests.cluster.report.recorded_runs import changed, raw, report


def test_every_value_of_the_record_is_shown() -> None:
    record, found = raw(), report()
    assert tuple(found.settings) == GROUPS
    assert found.group(TRAINING) == {name: value_text(value) for name, value in record["result"]["settings"].items()}
    assert found.group(VERSIONS) == {"tensorflow-cpu": "2.21.0", **record["result"]["versions"]}
    assert found.group(RANKS).keys() == record["result"]["arrangement"].keys()
    assert found.group(CLUSTER).items() >= {n: value_text(v) for n, v in record["origin"]["config"].items()}.items()
    assert found.group(CLUSTER)["instances"] == "2 c5.2xlarge, 1 t3.medium"
    assert found.group(HOROVOD)["controller"] == "gloo"
    run = found.group(RUN)
    assert run["command"].startswith("python -m payload.train --recipe digits")
    assert [run[name] for name in ("commit", "payload", "agent")] == [
        record["spec"][name] for name in ("git_commit", "payload", "agent")
    ]
    assert run["weights (SHA-256)"] == record["result"]["weights_sha256"]
    assert "DEEPCDK_PAYLOAD_HASH" not in str(found.settings), "no environment variable is shown"


@pytest.mark.parametrize(
    ("words", "shown"),
    [(["train.py", "-v"], "python train.py -v"), (["sh", "-c", "a b"], "sh -c 'a b'"), (["python3", "x"], "python x")],
)
def test_program_has_its_command_and_no_recipe(words: list[str], shown: str) -> None:
    found = report_of(changed(spec={"recipe": "train", "program": "b" * 16, "payload": "", "command": words}))
    run = found.group(RUN)
    assert (found.recipe, run["command"], run["program"]) == ("", shown, "b" * 16)
    assert "recipe" not in run


def test_failed_run_shows_its_initial_settings() -> None:
    found = report_of(changed(result=None))
    assert found.group(TRAINING) == report().group(TRAINING)
    assert found.group(VERSIONS) == raw()["course"]["runtime"]["versions"]


def test_versions_of_the_nodes_are_completed_by_those_that_rank_0_imported() -> None:
    on_nodes = {"python": "3.11", "tensorflow": "2.21.0", "nvidia-cudnn-cu12": "9.28.0.42", "driver": "570.86.15"}
    course = raw()["course"] | {"runtime": {"kind": "x86_64-sm75-py3.11", "path": "/opt/r", "versions": on_nodes}}
    found = report_of(changed(course=course))
    assert found.group(RUN)["runtime for"] == "x86_64-sm75-py3.11"
    assert found.group(VERSIONS) == {**on_nodes, **raw()["result"]["versions"]}
