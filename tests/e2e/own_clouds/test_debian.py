"""A cluster on Debian's root file system without the AWS CLI, compiler, headers or environments: apt and the nodes
themselves provide all of it, through the NAT gateway.
"""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from agent.environment.horovod_build import default_cache
from agent.environment.virtual_environment import DEFAULT_ROOT
from cluster import demo
from localcloud.hosts.package_index import read_settings
from tests.e2e.conftest import SLOW_S, EmbeddedCloud, start_cloud
from tests.waiting import eventually

IMAGE: Final = "debian-12-bare"
SETTINGS: Final = tuple(demo.settings(1, IMAGE.removesuffix("-bare")))
SEMAPHORES: Final = "/var/lib/cloud/instance/sem"
"""One file for each cloud-init module that has run on this instance."""
PER_BOOT: Final = "/var/lib/cloud/scripts/per-boot/counts"
TIMEOUT_S: Final = 800.0
"""For the start, which creates the root once per machine, for the deployment and for each training."""
SIGNAL_S: Final = 60.0
"""The time between a boot's failure and its signal."""
FAILURE: Final = "failed: finding the login user"
INSTALLED: Final = {
    "master": ("nfs-common", "awscli", "python3.11-venv"),
    "worker": ("nfs-common", "awscli", "python3.11-venv", "g++", "make", "python3.11-dev"),
}
"""Packages that the boot installs, by role."""
EXTENSION: Final = """\
#include <Python.h>
static PyObject *built_on(PyObject *self, PyObject *none) { return PyUnicode_FromString(HOST); }
static PyMethodDef methods[] = {{"built_on", built_on, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "counting", NULL, -1, methods};
PyMODINIT_FUNC PyInit_counting(void) { return PyModule_Create(&module); }
"""
SETUP: Final = """\
import socket
from setuptools import Extension, setup

host = ("HOST", f'"{socket.gethostname()}"')
setup(name="counting", version="1.0", ext_modules=[Extension("counting", ["counting.c"], define_macros=[host])])
"""
COUNTING: Final = """\
import subprocess
import sys

subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], check=True)

import counting

print("built on", counting.built_on(), flush=True)
"""
OWN_TORCH: Final = """\
import torch
import horovod.torch as hvd

hvd.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
model(torch.full((2, 4), hvd.rank() + 1.0)).sum().backward()
optimizer.step()
weights = hvd.allgather_object(model.weight.tolist())
print("sum", hvd.allreduce(torch.tensor(hvd.rank() + 1.0), op=hvd.Sum).item(), "of", hvd.size(), flush=True)
print("equal weights", weights == weights[:1] * hvd.size(), flush=True)
"""


@pytest.fixture(scope="module")
def bare() -> Iterator[EmbeddedCloud]:
    """Start a cloud whose hosts can use this machine's package index."""
    name = f"debian{os.getpid()}"
    with start_cloud(name, "--image", IMAGE, "--packages", runtime=False, timeout_s=TIMEOUT_S) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def debian(bare: EmbeddedCloud) -> EmbeddedCloud:
    """Deploy a worker on Debian."""
    bare.fab("up", "--yes", *SETTINGS, timeout_s=TIMEOUT_S)
    return bare


def train(cloud: EmbeddedCloud, *words: str, timeout_s: float = TIMEOUT_S) -> str:
    """Train on the worker; return the output. Unlike `cloud.fab`, this laptop finds the package index."""
    command = ("fab", "train", "--nodes", "1", *words, "--yes", *SETTINGS)
    return cloud.localcloud("run", "--", *command, timeout_s=timeout_s).stdout


def pytorch() -> str:
    """Return the requirement of PyTorch's CPU build if pip's settings name a directory with its wheel.

    The index of Python packages only has the build for CUDA, which works here too but has 3 GB.
    """
    folders = read_settings(os.environ).directories
    wheels = sorted(wheel for folder in folders for wheel in folder.glob("torch-*+cpu-cp311-*x86_64.whl"))
    return f"torch=={wheels[-1].name.split('-')[1]}" if wheels else "torch"


def on(cloud: EmbeddedCloud, instance_id: str, script: str) -> str:
    """Run a shell script as root in a host; return its output."""
    return cloud.on(instance_id, "bash", "-c", script).stdout


def node(cloud: EmbeddedCloud, role: str) -> str:
    """Return the id of the only instance with a role."""
    (instance,) = cloud.instances(role)
    return str(instance["InstanceId"])


def ids(cloud: EmbeddedCloud) -> list[str]:
    return [node(cloud, role) for role in ("master", "worker")]


def publish_wheels(cloud: EmbeddedCloud) -> None:
    """Publish Horovod's wheels of `make setup` on the shared file system: their build takes minutes. Another test
    builds.
    """
    (mounted,) = cloud.ask("efs", "describe_file_systems")["FileSystems"]
    wheels = shutil.ignore_patterns("*.log", "*.lock")
    shutil.copytree(
        default_cache(os.environ) / "horovod", cloud.file_systems / mounted["FileSystemId"] / "wheels", ignore=wheels
    )


def test_failed_boot_is_signalled_within_a_minute_without_cfn_signal(bare: EmbeddedCloud) -> None:
    consoles = Path(bare.described["state_directory"]) / "consoles"
    wrong = ("--set", "login_user=nobody-here", "--set", "workers=0")

    def has_failed() -> bool:
        return up.done() or any(FAILURE in console.read_text() for console in consoles.glob("*"))

    with ThreadPoolExecutor(1) as pool:
        up = pool.submit(bare.fab, "up", "--yes", *SETTINGS, *wrong, check=False, timeout_s=TIMEOUT_S)
        eventually(has_failed, timeout_s=TIMEOUT_S)
        failed_at = datetime.datetime.now(datetime.UTC)
    assert up.result().returncode == 1
    assert f"{FAILURE} (exit status 1)" in up.result().stderr
    stacks = bare.ask("cloudformation", "list_stacks")["StackSummaries"]  # `fab up` may have deleted it
    newest = max((each for each in stacks if each["StackName"] == bare.stack), key=lambda each: each["CreationTime"])
    events = bare.ask("cloudformation", "describe_stack_events", StackName=newest["StackId"])["StackEvents"]
    (signal,) = [each for each in events if "Received FAILURE signal" in each.get("ResourceStatusReason", "")]
    assert (signal["Timestamp"] - failed_at).total_seconds() < SIGNAL_S


def test_every_node_runs_debian_and_was_set_up_by_cloud_init(debian: EmbeddedCloud) -> None:
    for instance in ids(debian):
        assert "bookworm" in on(debian, instance, "cat /etc/os-release")
        result = on(debian, instance, "cat /run/cloud-init/result.json")
        assert ("DataSourceEc2" in result, '"errors": []' in result) == (True, True), result
        assert "config_scripts_user" in on(debian, instance, f"ls {SEMAPHORES}")
        assert on(debian, instance, "id -un 1000").strip() == "admin"


@pytest.mark.parametrize("role", sorted(INSTALLED))
def test_missing_packages_were_installed_by_apt_through_nat_gateway(debian: EmbeddedCloud, role: str) -> None:
    status = "dpkg-query --show --showformat='${Package} ${Status}\\n' " + " ".join(INSTALLED[role])
    found = on(debian, node(debian, role), status).splitlines()
    assert sorted(found) == sorted(f"{name} install ok installed" for name in INSTALLED[role])
    compiler = debian.on(node(debian, role), "which", "g++", "git", check=False).stdout.split()
    assert compiler == (["/usr/bin/g++"] if role == "worker" else [])


def test_worker_creates_the_runtime_with_horovods_published_wheel_and_trains(debian: EmbeddedCloud) -> None:
    publish_wheels(debian)
    words = ("--recipe", "digits", "--epochs", "1", "--set", "wheelhouse=/mnt/efs/wheels")
    assert " succeeded after " in train(debian, *words)
    worker = node(debian, "worker")
    cached = on(debian, worker, "ls /home/admin/.cache/deepcdk/horovod")
    assert (".log" in cached, cached != "") == (False, True), "the wheel was built, not taken from the wheelhouse"
    assert on(debian, worker, f"findmnt --noheadings --target {DEFAULT_ROOT} --output TARGET").strip() == "/"
    (python,) = on(debian, worker, f"ls {DEFAULT_ROOT}/*/bin/horovodrun").split()
    assert on(debian, worker, f"stat -c %U {python}").strip() == "admin"


def test_node_has_the_volume_of_its_launch_template(debian: EmbeddedCloud) -> None:
    for role in sorted(INSTALLED):
        instance = node(debian, role)
        attached = [{"Name": "attachment.instance-id", "Values": [instance]}]
        (volume,) = debian.ask("ec2", "describe_volumes", Filters=attached)["Volumes"]
        size_gib = int(on(debian, instance, "df --output=size --block-size=1M / | tail -1")) / 1024
        assert volume["Size"] - 1 < size_gib <= volume["Size"]


def test_program_builds_its_c_extension_on_the_node(debian: EmbeddedCloud, tmp_path: Path) -> None:
    for name, text in (("setup.py", SETUP), ("counting.c", EXTENSION), ("train.py", COUNTING)):
        (tmp_path / name).write_text(text)
    output = train(debian, "--payload", str(tmp_path), "--entry", "train.py", "--launcher", "plain")
    assert f"built on {on(debian, node(debian, 'worker'), 'hostname').strip()}\n" in output


def test_reboot_mounts_and_runs_boot_scripts_but_not_user_data(debian: EmbeddedCloud) -> None:
    worker = node(debian, "worker")
    on(debian, worker, f"printf '#!/bin/sh\\necho boot >>/root/boots\\n' >{PER_BOOT}; chmod 755 {PER_BOOT}")
    before = on(debian, worker, f"stat -c %Y {SEMAPHORES}/config_scripts_user")
    debian.aws("ec2", "reboot-instances", "--instance-ids", worker)
    ready = "cat /root/boots && mountpoint /mnt/efs && pgrep -f 'registry watch'"
    look = (worker, "bash", "-c", ready)
    eventually(lambda: debian.on(*look, check=False).returncode == 0)
    assert on(debian, worker, f"stat -c %Y {SEMAPHORES}/config_scripts_user") == before
    assert on(debian, worker, "cat /root/boots") == "boot\n"


@pytest.mark.timeout(2 * SLOW_S)
def test_node_builds_horovod_for_a_programs_own_pytorch(debian: EmbeddedCloud, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"{pytorch()}\n")
    (tmp_path / "train.py").write_text(OWN_TORCH)
    entry = ("--payload", str(tmp_path), "--entry", "train.py", "--ranks-per-node", "2")
    output = train(debian, *entry, timeout_s=SLOW_S)
    assert "sum 3.0 of 2" in output
    assert "equal weights True" in output
