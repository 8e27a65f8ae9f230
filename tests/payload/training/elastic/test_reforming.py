"""Facts about elastic training: what a run learns is the same, whatever ranks it loses and gains on its way.

A batch is summed over other shares where the number of ranks differs, so losses and weights differ in their last bits,
and by more the longer it trains. One image of 960 that counted twice, or not at all, would change the loss of its epoch
by a thousandth or so, and its accuracy would be no whole number of 960ths.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest

from agent.spec.nodes import LEAVING
from payload.recipes.config import TrainConfig
from payload.training.checkpoints.location import store_for
from payload.training.elastic.reforming import LEAVE_S, Standing, StopUnlessLeaving, furthest
from tests.factories import make_node
from tests.payload.training.elastic.local_run import LocalRun
from tests.waiting import eventually

pytestmark = [pytest.mark.horovod, pytest.mark.root, pytest.mark.timeout(1200)]

EPOCHS: Final = 14
IMAGES: Final = 960
STEPS: Final = 16
FLAGS: Final = ("--epochs", str(EPOCHS), "--learning-rate", "0.01", "--checkpoint-epochs", "5")

DIVERGING: Final = ("--epochs", "9", "--learning-rate", "1000000", "--warmup-epochs", "0", "--weight-decay", "0.01")


def finish(launcher: subprocess.Popen[str]) -> str:
    """Wait for the end of a run that succeeds; return its log."""
    log, _ = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, log[-6000:]
    return log


def losses(run: LocalRun) -> list[float]:
    """Return the training loss of each epoch: the mean over its images."""
    epochs = run.events("epoch")
    assert [event["epoch"] for event in epochs] == list(range(1, EPOCHS + 1))
    return [event["train_loss"] for event in epochs]


def weights(run: LocalRun) -> dict[str, npt.NDArray[Any]]:
    """Return what the last checkpoint holds."""
    config = TrainConfig.from_argv(run.spec.command[2:])
    checkpoint, faults = store_for(config.settings, config.run_dir).newest_valid()
    assert checkpoint is not None and not faults
    assert (checkpoint.progress.total_steps, checkpoint.progress.epoch) == (EPOCHS * STEPS, EPOCHS)
    return dict(checkpoint.arrays)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> LocalRun:
    run = LocalRun.lay_out(tmp_path_factory.mktemp("undisturbed"), *FLAGS)
    with run.started() as launcher:
        finish(launcher)
    assert run.reformed() == run.events("reformed") == []
    return run


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., tuple[LocalRun, str]]:
    def train(*killed: Sequence[int], **changes: Any) -> tuple[LocalRun, str]:
        """Train, and kill ranks two epochs after each other; return the run and its log."""
        run = LocalRun.lay_out(tmp_path, *FLAGS, **changes)
        with run.started() as launcher:
            for number, members in enumerate(killed):
                run.wait_for_epoch(2 + 3 * number)
                for member in members:
                    run.kill(member)
            return run, finish(launcher)

    return train


def apart(found: dict[str, Any], expected: dict[str, Any], names: Sequence[str]) -> float:
    """Return the largest distance of two arrays, as a fraction of the norm of the expected one."""
    norms = [(float(np.linalg.norm(found[name] - expected[name])), expected[name]) for name in names]
    return max(norm / max(float(np.linalg.norm(array)), 1e-3) for norm, array in norms)


def check_same(run: LocalRun, undisturbed: LocalRun) -> None:
    np.testing.assert_allclose(losses(run), losses(undisturbed), rtol=2e-4)
    recognised = [event["train_accuracy"] * IMAGES for event in run.events("epoch")]
    np.testing.assert_allclose(recognised, np.round(recognised), atol=2e-3)  # six decimals are written
    expected, found = weights(undisturbed), weights(run)
    assert found.keys() == expected.keys()
    weighed = [name for name in found if name.startswith("model/")]
    print(f"weights differ by {apart(found, expected, weighed):.1e} of their norm at most")
    assert apart(found, expected, weighed) < 5e-3
    # What remains of the last gradients, which are small, and differ by as much in all.
    assert apart(found, expected, [name for name in found if name not in weighed]) < 5e-2
    result = json.loads((run.directory / "result.json").read_text())
    assert (result["steps"], result["global_batch"]) == (EPOCHS * STEPS, 60)


@pytest.mark.parametrize("member", [0, 2], ids=["rank 0", "the last rank"])
def test_the_ranks_that_are_left_go_on_without_a_checkpoint_and_learn_the_same(
    train: Callable[..., tuple[LocalRun, str]], undisturbed: LocalRun, member: int
) -> None:
    run, log = train([member])
    check_same(run, undisturbed)
    (event,), (told,) = run.events("reformed"), run.reformed()
    assert (event["ranks"], event["lost_ranks"], event["lost"]) == (2, str(member), f"deeplearning-worker{member + 1}")
    assert event["steps_lost"] in (0, 1)
    assert 0 < event["seconds"] < 60
    assert (told["step"], told["lost"]) == (event["total_steps"], [event["lost"]])
    assert len(run.events("start")) == len(run.events("end")) == 1
    assert "resumed from" not in log
    writer = json.loads((run.directory / "checkpoints" / "writer.json").read_text())
    assert writer["pid"] > 0


def test_one_rank_goes_on_alone_after_both_others_are_lost_one_after_the_other(
    train: Callable[..., tuple[LocalRun, str]], undisturbed: LocalRun
) -> None:
    run, _ = train([0], [2])
    check_same(run, undisturbed)
    assert [(event["ranks"], event["lost_ranks"]) for event in run.events("reformed")] == [(2, "0"), (1, "1")]


def test_two_ranks_lost_at_once_are_left_behind_together_or_end_the_launch(
    train: Callable[..., tuple[LocalRun, str]], undisturbed: LocalRun
) -> None:
    run, _ = train([0, 1])
    check_same(run, undisturbed)
    assert run.events("reformed")[-1]["ranks"] == 1


def test_a_host_joins_at_a_step_without_a_loss_and_the_others_hardly_wait(
    tmp_path: Path, undisturbed: LocalRun
) -> None:
    run = LocalRun.lay_out(tmp_path, *FLAGS, count=2)
    with run.started() as launcher:
        run.wait_for_epoch(1)
        run.offer((*run.spec.hosts, make_node(3, address="127.0.0.1")))
        log = finish(launcher)
    check_same(run, undisturbed)
    (event,) = run.events("reformed")
    assert (event["ranks"], event["joined"], event["lost"], event["steps_lost"]) == (3, "deeplearning-worker3", None, 0)
    print(f"joined after {event['seconds']:.1f} s without a step")
    assert "deeplearning-worker3" in json.loads((run.directory / "result.json").read_text())["hosts"], log[-3000:]


def test_a_node_that_is_about_to_end_is_left_between_two_steps(tmp_path: Path, undisturbed: LocalRun) -> None:
    run = LocalRun.lay_out(tmp_path, *FLAGS)
    notices = tmp_path / LEAVING
    notices.mkdir(parents=True)
    with run.started() as launcher:
        run.wait_for_epoch(2)
        (notices / run.spec.hosts[0].instance_id).write_text("EC2 takes this spot instance back\n")
        run.kill(0, signal.SIGTERM)
        run.offer(run.spec.hosts[1:])
        log = finish(launcher)
    check_same(run, undisturbed)
    (event,) = run.events("reformed")
    assert (event["ranks"], event["lost_ranks"], event["steps_lost"]) == (2, "0", 0)
    assert "the others go on without this rank" in log


def test_an_error_of_the_program_ends_the_run_and_nothing_forms_anew(tmp_path: Path) -> None:
    run = LocalRun.lay_out(tmp_path, *DIVERGING)
    with run.started() as launcher:
        log, _ = launcher.communicate(timeout=300)
    assert launcher.returncode == 1
    assert "the loss became" in log
    assert "[launcher] formed anew" not in log and not run.reformed()


def test_a_stop_after_a_loss_writes_a_checkpoint(tmp_path: Path) -> None:
    run = LocalRun.lay_out(tmp_path, "--epochs", "400")
    with run.started() as launcher:
        run.wait_for_epoch(2)
        run.kill(0)
        eventually(lambda: run.events("reformed"))
        (run.directory / "stop").touch()
        log, _ = launcher.communicate(timeout=300)
    (stopped,) = run.events("stopped")
    assert (run.directory / "checkpoints" / stopped["checkpoint"]).is_dir(), log[-3000:]


def test_all_take_over_from_one_that_has_come_furthest() -> None:
    behind, ahead = Standing(epoch=1, total_steps=7, in_step=True), Standing(epoch=1, total_steps=8, in_step=False)
    over = Standing(epoch=2, total_steps=8, in_step=False)
    assert furthest((None, None)) is None
    assert furthest((None, behind, ahead, ahead)) == 2
    assert furthest((ahead, over)) == 1


def test_a_request_to_stop_with_a_notice_is_to_leave_unless_nobody_lets_the_rank_go(tmp_path: Path) -> None:
    now, requested, notice = [0.0], [False], tmp_path / "i-00000001"
    stop = StopUnlessLeaving(lambda: requested[0], notice, clock=lambda: now[0])
    assert not stop()
    notice.touch()
    assert not stop()
    requested[0] = True
    assert not stop()
    now[0] = LEAVE_S
    assert stop()


def test_a_request_to_stop_without_a_notice_is_one(tmp_path: Path) -> None:
    requested = [False]
    stop = StopUnlessLeaving(lambda: requested[0], tmp_path / "i-00000001")
    assert not stop()
    requested[0] = True
    assert stop() and stop()
