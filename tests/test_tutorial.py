"""What the tutorial has a reader type exists; tests/e2e/own_clouds/test_tutorial.py runs what can be run."""

from __future__ import annotations

import re
import shutil

import botocore.session
import pytest
from botocore import xform_name

from cluster.cli import loader
from stacks.config import ClusterConfig
from stacks.instance_types import find
from tests import tutorial
from tools.site.pages import ROOT


@pytest.mark.parametrize("words", tutorial.commands("fab"), ids=" ".join)
def test_every_task_and_flag_exists(words: list[str]) -> None:
    task = loader.collection().tasks[words[1]]
    known = {f"--{flag.parameter.rstrip('_').replace('_', '-')}" for flag in task.flags}
    assert {word for word in words if word.startswith("-")} <= known
    if len(words) > 2 and not words[2].startswith("-"):
        assert task.word or task.takes_words


@pytest.mark.parametrize("words", tutorial.commands("aws"), ids=lambda words: " ".join(words[1:3]))
def test_every_call_of_the_aws_cli_exists_with_its_arguments(words: list[str]) -> None:
    model = botocore.session.get_session().get_service_model(words[1])
    operations = {xform_name(name, "-"): name for name in model.operation_names}
    shape = model.operation_model(operations[words[2]]).input_shape
    members = {f"--{xform_name(name, '-')}": name for name in shape.members} if shape else {}
    given = {word for word in words if word.startswith("--")}
    assert given <= members.keys()
    assert set(shape.required_members if shape else ()) <= {members[flag] for flag in given}


def test_what_else_is_typed_is_a_command_of_the_makefile_or_a_program_of_set_up() -> None:
    assert tutorial.programs() == {"aws", "fab", "make", ".", "ssh-keygen"}
    for words in tutorial.commands("make"):
        assert re.search(rf"(?m)^{words[1]}:", (ROOT / "Makefile").read_text())
    assert shutil.which("ssh-keygen")


def test_the_keys_are_valid_and_the_rest_is_as_it_comes() -> None:
    config = ClusterConfig.from_file(ROOT / "cdk.json", {})
    changed = ClusterConfig.from_context({"cluster": tutorial.keys()})
    assert (changed.workers, changed.max_workers, changed.worker_instance_type) == (2, 16, "c5.2xlarge")
    assert (config.workers, config.max_workers, config.worker_instance_type) == (2, 16, "c5.2xlarge")
    assert not changed.retain_data
    assert changed.max_hours
    assert changed.idle_minutes


def test_the_quota_is_that_of_sixteen_workers_and_the_master() -> None:
    worker, master = find(ClusterConfig.worker_instance_type), find(ClusterConfig.master_instance_type)
    assert worker
    assert master
    (request,) = [words for words in tutorial.commands("aws") if "--desired-value" in words]
    assert request[request.index("--desired-value") + 1] == str(16 * worker.vcpus + master.vcpus)
