"""Facts about the proof that Horovod works."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from agent.environment.horovod_selftest import MARK, command, parse_result, prove
from agent.environment.toolchain import HorovodError

FOUND = {"ranks": 2, "allreduce_error": 0.0, "weights_moved": 0.1, "weights_differ": 0.0, "seconds": 1.0}


def printed(**changed: Any) -> str:
    """Return the launcher's output for what was found, with some of it changed."""
    return f"[1]<stdout>:noise\n[0]<stdout>:{MARK}{json.dumps(FOUND | changed)}\n"


def test_a_right_result_is_accepted() -> None:
    assert parse_result(printed()) == FOUND


@pytest.mark.parametrize("wrong", [{"ranks": 1}, {"allreduce_error": 1.0}])
def test_a_wrong_allreduce_is_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(HorovodError, match="allreduce over 2 ranks is wrong"):
        parse_result(printed(**wrong))


@pytest.mark.parametrize("wrong", [{"weights_differ": 1e-7}, {"weights_moved": 0.0}])
def test_weights_that_differ_or_did_not_move_are_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(HorovodError, match="weights do not agree, or did not change"):
        parse_result(printed(**wrong))


@pytest.mark.parametrize("output", ["", "[0]<stdout>:noise\n"])
def test_no_result_is_an_error(output: str) -> None:
    with pytest.raises(HorovodError, match="printed 0 results"):
        parse_result(output)


def test_no_script_of_the_virtual_environment_is_run() -> None:
    found = command("/bound/elsewhere/bin/python", "mpi")
    assert found[:4] == ["/bound/elsewhere/bin/python", "-m", "agent.launch.horovodrun", "--mpi"]


def test_a_machine_whose_name_has_no_address_is_told_before_its_ranks_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "no-such-host.invalid")
    with pytest.raises(HorovodError, match=r"echo '127\.0\.1\.1 no-such-host\.invalid' >> /etc/hosts"):
        prove(environ={})


@pytest.mark.horovod
@pytest.mark.tensorflow
def test_horovod_here_averages_over_two_ranks_and_leaves_equal_weights() -> None:
    told = prove(environ=os.environ)
    assert told.startswith("Horovod works: 2 ranks")
    assert "gloo" in told and "mpi" in told
