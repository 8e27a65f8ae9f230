"""Two laptops that use one cluster: run tasks on each, and read their shared files on this machine."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from agent.runs.database import FILE
from agent.runs.node_claims import Runs
from agent.staging.manifest import is_as_listed
from agent.staging.staged_dataset import StagedDataset
from cluster import demo
from cluster.ssh.push import pack, package_files
from tests.e2e.conftest import EmbeddedCloud, execute
from tests.waiting import eventually

Done = subprocess.CompletedProcess[str]

REMOVED: Final = "20261120-121314-removed"
"""Prefix of the ids of runs that the tests remove."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Laptop:
    """One user's laptop."""

    cloud: EmbeddedCloud
    home: Path
    copy: Path

    def fab(self, *words: str) -> Done:
        """Run a task to its end, whatever its status."""
        place = ("env", "-C", str(self.copy), f"HOME={self.home}", "CDK_VALIDATION=false")
        command = demo.localcloud("run", "--name", self.cloud.name, "--", *place, "fab", *words, *demo.settings(2))
        return execute(command, check=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scene:
    """The cloud, its two laptops, and the runs and files that their tasks use."""

    cloud: EmbeddedCloud
    first: Laptop
    second: Laptop
    program: Path
    data: tuple[Path, Path]
    numbers: Iterator[int]

    @property
    def shared(self) -> Path:
        """Return the shared file system as seen from this machine."""
        (found,) = (path.parent for path in self.cloud.file_systems.glob("*/payloads"))
        return found

    @property
    def runs(self) -> Runs:
        return Runs(root=self.shared / "runs")

    def desired(self) -> int:
        """Return the desired size of the worker group."""
        name = self.cloud.outputs()["WorkerGroupName"]
        groups = self.cloud.ask("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[name])
        return int(groups["AutoScalingGroups"][0]["DesiredCapacity"])

    def stacks(self) -> dict[str, str]:
        """Return the status of each existing stack."""
        found = self.cloud.ask("cloudformation", "list_stacks")["StackSummaries"]
        return {each["StackName"]: each["StackStatus"] for each in found if each["StackStatus"] != "DELETE_COMPLETE"}

    def states(self) -> dict[str, str]:
        """Return the state of each run."""
        return dict(ast.literal_eval(self.select("SELECT run_id, state FROM states")))

    def settle(self) -> None:
        """Wait until no run is live and the worker group has its desired size."""
        eventually(lambda: not {"starting", "running", "queued"} & set(self.states().values()), what=self.states)
        eventually(lambda: "fab " not in self.holders(), what=self.holders)
        eventually(lambda: len(self.cloud.instances("worker")) == self.desired())

    def holders(self) -> str:
        """Return the runs and tasks with claims as text, without claims of runs that have ended."""
        return self.select("SELECT run_id, task FROM claims")

    def select(self, query: str) -> str:
        """Return the result of a query of the master's run database; "[]" before its first run."""
        database = f"/home/ec2-user/{FILE}"
        found = f"sqlite3.connect({database!r}, isolation_level=None).execute({query!r}).fetchall()"
        script = f"import os, sqlite3; print({found} if os.path.exists({database!r}) else [])"
        (master,) = self.cloud.instances("master")
        python = ("runuser", "-u", "ec2-user", "--", "/opt/deepcdk/bin/python3", "-c")
        return self.cloud.on(master["InstanceId"], *python, script).stdout

    def resumable_run(self) -> str:
        """Return the id of a failed run; start one if none exists."""
        found = [run_id for run_id in self.states() if not run_id.startswith(REMOVED)]
        if not found:
            started = self.first.fab(*words(self, "train", self.first, "", 0))
            assert started.returncode == 0, started.stderr
            self.settle()
        return (found or list(self.states()))[0]

    def ended_run(self) -> str:
        """Add an ended run and return its id."""
        source, run_id = self.resumable_run(), f"{REMOVED}-{next(self.numbers)}"
        (master,) = self.cloud.instances("master")
        copy = f"cp -a {source} {run_id} && sed -i s/{source}/{run_id}/ {run_id}/state.json {run_id}/spec.json"
        self.cloud.on(master["InstanceId"], "sh", "-c", f"cd /mnt/efs/runs && {copy}")
        self.select(
            "INSERT INTO states (run_id, state, document) "
            f"SELECT '{run_id}', state, replace(document, '{source}', '{run_id}') FROM states WHERE run_id = '{source}'"
        )
        return run_id


def together(*tasks: Callable[[], Done]) -> list[Done]:
    """Run tasks concurrently."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [each.result() for each in [pool.submit(task) for task in tasks]]


def check_outcomes(done: Sequence[Done], refusal: str) -> int:
    """Check that each task succeeded or was rejected with an expected message; return how many succeeded."""
    for each in done:
        said = f"{each.args}\n{each.stdout}\n{each.stderr}"
        assert "Traceback" not in said, said
        text = " ".join(each.stderr.split())
        assert each.returncode == 0 or (each.returncode == 1 and refusal and re.search(refusal, text)), said
    return sum(each.returncode == 0 for each in done)


def check_consistent(scene: Scene) -> None:
    """Check the files that all laptops share: runs and queue, pushed trees by their hashes, and staged data."""
    scene.settle()
    assert scene.select("SELECT run_id FROM states WHERE place > 0").strip() == "[]"
    assert not list(scene.runs.root.glob(".removed-*"))
    for run_id, state in scene.states().items():
        assert state == "failed" and json.loads(scene.runs[run_id].spec.read_text())["run_id"] == run_id
    trees = list((scene.shared / "payloads").iterdir())
    for tree in trees:
        (package,) = tree.iterdir()
        assert pack(package, package_files(package), package.name).name == tree.name or package.name == "program"
    if (scene.shared / "data" / "set").exists():
        staged = StagedDataset(root=scene.shared / "data", name="set")
        listed = staged.manifest()  # raises if the data set is incomplete
        assert {path.name for path in staged.directory.iterdir()} == {entry.path for entry in listed.entries}
        assert all(is_as_listed(staged.path_text(entry), entry) for entry in listed.entries)
        assert listed.by_path().keys() in [{path.name for path in data.iterdir()} for data in scene.data]


def words(scene: Scene, task: str, laptop: Laptop, run: str, size: int) -> tuple[str, ...]:
    """Return a task's words on one laptop; `run` is the run to resume or remove, `size` the new number of workers."""
    launched = ("--detach", "--yes", "--skip-preflight", "--restarts", "0")
    return {
        "scale": ("scale", str(size), "--yes"),
        "train": ("train", "--nodes", "2", "--payload", str(scene.program), "--entry", "brief.py", *launched),
        "resume": ("resume", run, "--detach", "--yes", "--skip-preflight"),
        "rm": ("rm", run, "--yes"),
        "push": ("push",),
        "stage-data": ("stage-data", str(scene.data[laptop is scene.second]), "--name", "set"),
    }[task]
