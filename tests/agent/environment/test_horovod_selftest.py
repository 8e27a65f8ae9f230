"""The self-test that proves that Horovod works."""

from __future__ import annotations

import os
from typing import Any

import pytest

from agent.environment.horovod_selftest import check, command, prove
from agent.environment.toolchain import HorovodError

RIGHT = {"ranks": 2, "sum_error": 0.0, "weights_moved": 0.1, "weights_differ": 0.0}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ranks": 1}, "1 of 2 ranks took part in Horovod's allreduce; all must take part"),
        ({"sum_error": 1.0}, "differs from the exact sum by 1"),
        ({"weights_differ": 1e-7}, "differ between ranks by 1e-07"),
        ({"weights_moved": 0.0}, "changed by 0"),
    ],
)
def test_wrong_result_stops_the_rank(wrong: dict[str, Any], said: str) -> None:
    check(**RIGHT)  # type: ignore[arg-type]
    with pytest.raises(SystemExit, match=said):
        check(**RIGHT | wrong)


def test_no_script_of_the_virtual_environment_is_run() -> None:
    found = command("/bound/elsewhere/bin/python", "mpi")
    assert found[:4] == ["/bound/elsewhere/bin/python", "-m", "agent.launch.horovodrun", "--mpi"]


def test_host_name_without_an_address_is_reported_before_the_ranks_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "no-such-host.invalid")
    with pytest.raises(HorovodError, match=r"echo '127\.0\.1\.1 no-such-host\.invalid' >> /etc/hosts"):
        prove(environ={})


@pytest.mark.full  # make setup does this once for each wheel
@pytest.mark.horovod
@pytest.mark.tensorflow
def test_horovod_here_averages_over_two_ranks_and_leaves_equal_weights() -> None:
    told = prove(environ=os.environ)
    assert told.startswith("Horovod works: 2 ranks")
    assert "gloo" in told and "mpi" in told
