"""Facts about the settings in a report: all that the record has."""

from __future__ import annotations

from cluster.report.run_report import report_of
from cluster.report.run_settings import CLUSTER, GROUPS, HOROVOD, RANKS, RUN, TRAINING, VERSIONS
from cluster.report.wording import value_text
from tests.cluster.report.recorded_runs import changed, raw, report


def test_every_setting_of_training_is_there() -> None:
    settings = raw()["result"]["settings"]
    assert report().group(TRAINING) == {name: value_text(value) for name, value in settings.items()}


def test_every_value_of_the_cluster_the_ranks_and_the_versions_is_there() -> None:
    record, found = raw(), report()
    assert [group.title for group in found.settings] == list(GROUPS)
    assert found.group(VERSIONS) == {"tensorflow-cpu": "2.21.0", **record["result"]["versions"]}
    assert found.group(RANKS).keys() == record["result"]["arrangement"].keys()
    assert found.group(CLUSTER).items() >= {n: value_text(v) for n, v in record["origin"]["config"].items()}.items()
    assert found.group(CLUSTER)["instances"] == "2 c5.2xlarge, 1 t3.medium"
    assert found.group(HOROVOD)["controller"] == "gloo"


def test_the_run_says_what_was_launched_and_from_which_code() -> None:
    found, record = report().group(RUN), raw()
    assert found["command"].startswith("python -m payload.train --recipe digits")
    assert found["commit"] == record["spec"]["git_commit"]
    assert (found["payload"], found["agent"]) == (record["spec"]["payload"], record["spec"]["agent"])
    assert found["weights (SHA-256)"] == record["result"]["weights_sha256"]


def test_a_run_that_failed_shows_the_settings_that_it_began_with() -> None:
    found = report_of(changed(result=None))
    assert found.group(TRAINING) == report().group(TRAINING)
    assert found.group(VERSIONS) == raw()["course"]["runtime"]["versions"]


def test_a_run_on_gpus_names_what_the_nodes_had_beside_what_rank_0_imported() -> None:
    on_nodes = {"python": "3.11", "tensorflow": "2.21.0", "nvidia-cudnn-cu12": "9.28.0.42", "driver": "570.86.15"}
    course = raw()["course"] | {"runtime": {"kind": "x86_64-sm75-py3.11", "path": "/opt/r", "versions": on_nodes}}
    found = report_of(changed(course=course))
    assert found.group(RUN)["runtime for"] == "x86_64-sm75-py3.11"
    assert found.group(VERSIONS) == {**on_nodes, **raw()["result"]["versions"]}
    assert found.group(VERSIONS)["python"] == "3.11.2"


def test_no_value_of_a_variable_is_shown() -> None:
    assert "DEEPCDK_PAYLOAD_HASH" not in str(report().settings)
