"""Two laptops that use one cluster: all pairs of up, down, scale, train, resume, rm, push and stage-data, concurrently.

Each laptop has a working copy, a home directory with known host keys, and its own files. Both use the same account.
Each task of a pair either succeeds or is rejected with a line that names the other task. Afterwards, the cluster is
always consistent. The tests depend on each other and run in order, on one cloud.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.conftest import KEPT_CLOUD, ROOT, EmbeddedCloud, start_cloud
from tests.e2e.own_clouds.laptops import Done, Laptop, Scene, check_consistent, check_outcomes, together, words
from tests.waiting import eventually

BRIEF: Final = "import sys, time; time.sleep(5); sys.exit(1)\n"
"""A program that occupies its nodes for some seconds and then fails, so that it can be resumed repeatedly."""
WORKING_COPY: Final = ("agent", "cluster", "payload", "stacks", "app.py", "cdk.json", "fabfile.py", "pyproject.toml")

LIVE: Final = r"run \S+ is live"
HELD: Final = r"on another machine is (terminating|changing)"
LEFT: Final = r"left the cluster while run \S+ was being launched"
RESIZED: Final = r"was set to \d+ nodes in the meantime"
TAKEN: Final = r"would take nodes from run"
GONE: Final = r"unknown run \S+;"
STAGING: Final = r"another `fab stage-data` has been writing to"
OVERTAKEN: Final = r"was changed by another deployment"
DESTROYED: Final = r"is being destroyed|stack deepcdk is not deployed"
CUT_OFF: Final = r"the connection to the master (broke|timed out)|the master closed|no master .*is running"

REFUSALS: Final = {
    ("resume", "resume"): LIVE,
    ("resume", "rm"): f"{LIVE}|{GONE}",
    ("resume", "scale"): f"{HELD}|{LEFT}|{RESIZED}|{TAKEN}",
    ("resume", "train"): LIVE,
    ("rm", "rm"): GONE,
    ("scale", "scale"): f"{HELD}|{RESIZED}",
    ("scale", "train"): f"{HELD}|{LEFT}|{RESIZED}|{TAKEN}",
    ("stage-data", "stage-data"): STAGING,
    ("train", "train"): LIVE,
}
"""Accepted error messages by pair; in other pairs both tasks succeed."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Start a cloud with two laptops that share the cluster owner's SSH key."""
    kept = os.environ.get(KEPT_CLOUD)
    with contextlib.nullcontext(EmbeddedCloud(name=kept)) if kept else start_cloud(f"two{os.getpid()}") as cloud:
        folder = tmp_path_factory.mktemp("laptops")
        first = Laptop(cloud=cloud, home=Path(cloud.described["laptop_home"]), copy=ROOT)
        second = Laptop(cloud=cloud, home=folder / "home", copy=folder / "copy")
        shutil.copytree(first.home / ".ssh", second.home / ".ssh")
        second.copy.mkdir()
        for name in WORKING_COPY:
            target = second.copy / name
            ignored = shutil.ignore_patterns("__pycache__")
            (
                shutil.copytree(ROOT / name, target, ignore=ignored)
                if (ROOT / name).is_dir()
                else shutil.copy(ROOT / name, target)
            )
        (second.copy / "node_modules").symlink_to(ROOT / "node_modules")
        (second.copy / ".venv").symlink_to(sys.prefix)
        (second.copy / "payload" / "notes.txt").write_text("the second laptop's payload\n")
        program = folder / "program"
        program.mkdir()
        (program / "brief.py").write_text(BRIEF)
        data = (folder / "ours", folder / "theirs")
        for number, path in enumerate(data):
            path.mkdir()
            for index in range(40):
                (path / f"f{index + 10 * number}").write_bytes(bytes([number + 1]) * 100_000)
        yield Scene(cloud=cloud, first=first, second=second, program=program, data=data, numbers=itertools.count(1))


def test_two_concurrent_first_deployments_create_one_cluster(scene: Scene) -> None:
    done = together(*(lambda each=each: each.fab("up", "--yes") for each in (scene.first, scene.second)))
    assert check_outcomes(done, OVERTAKEN) >= 1
    assert (len(scene.cloud.instances("master")), len(scene.cloud.instances("worker"))) == (1, 2)
    check_consistent(scene)


TASKS: Final = ("push", "resume", "rm", "scale", "stage-data", "train")
CHOSEN: Final = (("resume", "rm"), ("scale", "train"), ("stage-data", "stage-data"))
"""Pairs in which one task may be refused. `make pairs` tries all pairs."""
ALL: Final = "ALL_PAIRS" in os.environ
PAIRS: Final = tuple(itertools.combinations_with_replacement(TASKS, 2)) if ALL else CHOSEN
BESIDE_UP: Final = ((15, ("up",)), (20, ("resume", "push")), (25, ("train", "rm")), (30, ("scale", "stage-data")))
"""Minutes that `up` changes the stack to, and the tasks that run at the same time."""
SIZES: Final = {"scale": (1, 3), "train": (1, 1), "resume": (1, 1)}
"""The sizes to which two laptops scale, by the concurrent task; 3 for tasks that need no nodes."""


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_concurrent_tasks_succeed_or_one_is_rejected_completely(scene: Scene, one: str, other: str) -> None:
    pair = (one, other)
    if "train" in pair or "resume" in pair:
        assert scene.desired() == 2 or scene.first.fab("scale", "2", "--yes").returncode == 0
    resumable = scene.resumable_run() if {"rm", "resume"} & {*pair} else ""
    removed = resumable if pair == ("resume", "rm") else scene.ended_run() if "rm" in pair else ""
    before, present = scene.desired(), scene.states()
    small, large = SIZES.get(next((each for each in pair if each != "scale"), "scale"), (5 - before, 3))

    def run_of(task: str) -> str:
        return removed if task == "rm" else resumable

    done = together(
        lambda: scene.first.fab(*words(scene, one, scene.first, run_of(one), small)),
        lambda: scene.second.fab(*words(scene, other, scene.second, run_of(other), small if one != "scale" else large)),
    )
    succeeded = check_outcomes(done, REFUSALS.get(pair, ""))
    assert succeeded >= 1, done
    check_consistent(scene)
    begun = sum(task == "train" and each.returncode == 0 for task, each in zip(pair, done, strict=True))
    now = scene.states()
    assert len(now) == len(present) + begun - ("rm" in pair and removed not in now)
    assert removed not in now or pair == ("resume", "rm")
    if "scale" in pair:
        # The run grows the group again while the other laptop shrinks it.
        sizes = (
            {small, large} if pair == ("scale", "scale") else {small, 2} if {"train", "resume"} & {*pair} else {small}
        )
        assert scene.desired() in sizes
    else:
        assert scene.desired() == before


@pytest.mark.skipif(not ALL, reason="test_lifecycle.py has the deterministic case: run `make pairs`")
@pytest.mark.parametrize(("idle_minutes", "beside"), BESIDE_UP)
def test_stack_change_runs_concurrently_with_all_tasks_but_another_change(
    scene: Scene, idle_minutes: int, beside: tuple[str, ...]
) -> None:
    if {"train", "resume"} & {*beside}:
        assert scene.desired() == 2 or scene.first.fab("scale", "2", "--yes").returncode == 0
    run, size = scene.ended_run() if "rm" in beside else scene.resumable_run(), 5 - scene.desired()
    before = scene.desired()

    def up(laptop: Laptop, minutes: int) -> Done:
        return laptop.fab("up", "--yes", "--set", f"idle_minutes={minutes}")

    def other(task: str) -> Done:
        return up(scene.second, 45) if task == "up" else scene.second.fab(*words(scene, task, scene.second, run, size))

    changed, *done = together(
        lambda: up(scene.first, idle_minutes), *(lambda each=each: other(each) for each in beside)
    )
    check_outcomes([changed, *done], OVERTAKEN if "up" in beside else "")
    assert changed.returncode == 0 or done[0].returncode == 0, (changed, done)
    assert scene.desired() == (size if "scale" in beside else before)
    check_consistent(scene)


def test_other_tasks_are_rejected_while_the_cluster_is_destroyed(scene: Scene) -> None:
    run = scene.resumable_run()
    live = scene.first.fab(*words(scene, "resume", scene.first, run, 0))
    refused = scene.second.fab("down", "--yes")
    assert (live.returncode, refused.returncode, f"run {run} is live" in refused.stderr) == (0, 1, True), refused.stderr
    scene.settle()
    removed, size = scene.ended_run(), 5 - scene.desired()

    def change_what_is_being_destroyed() -> Done:
        eventually(lambda: scene.stacks().get("deepcdk") not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"))
        return scene.second.fab("up", "--yes", "--set", "idle_minutes=35")

    with ThreadPoolExecutor(2) as pool:
        destroyed = pool.submit(scene.first.fab, "down", "--yes")
        changing = pool.submit(change_what_is_being_destroyed)
        eventually(lambda: "fab down" in scene.holders() or destroyed.done())
        held = together(
            lambda: scene.second.fab(*words(scene, "train", scene.second, "", 0), "--queue"),
            lambda: scene.second.fab(*words(scene, "resume", scene.second, run, 0)),
            lambda: scene.second.fab(*words(scene, "scale", scene.second, "", size)),
        )
        others = together(
            *(
                lambda each=each: scene.second.fab(*words(scene, each, scene.second, removed, 0))
                for each in ("push", "rm", "stage-data")
            ),
            lambda: scene.second.fab("down", "--yes"),
            lambda: scene.second.fab("up", "--plan"),
        )
        done, changed = destroyed.result(), changing.result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert check_outcomes(held, f"{HELD}|{DESTROYED}|{CUT_OFF}") == 0
    check_outcomes(others, f"{HELD}|{DESTROYED}|{CUT_OFF}|{OVERTAKEN}")
    check_outcomes([changed], DESTROYED)
    if changed.returncode == 0:  # It found the stack destroyed and deployed its own cluster.
        assert (len(scene.cloud.instances("master")), len(scene.cloud.instances("worker"))) == (1, 2)
        anew = scene.second.fab("down", "--yes")
        assert anew.returncode == 0, anew.stdout + anew.stderr
    assert scene.stacks().keys() == {"CDKToolkit"}
    assert not scene.cloud.instances("master") + scene.cloud.instances("worker")
