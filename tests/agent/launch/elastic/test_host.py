from __future__ import annotations

from agent.launch.elastic.host import variables
from agent.launch.rank_states import parse_rank


def test_a_rank_is_told_its_number_and_its_place_on_the_host() -> None:
    found = variables("deeplearning-worker2", 4, 2, 1, "ens5")
    assert found == {
        "RANK": "5",
        "DEEPCDK_MEMBER": "5",
        "HOROVOD_HOSTNAME": "deeplearning-worker2",
        "HOROVOD_LOCAL_RANK": "1",
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_GLOO_IFACE": "ens5",
    }
    assert "HOROVOD_GLOO_IFACE" not in variables("deeplearning-worker2", 4, 2, 1, "")


def test_what_starts_a_rank_is_not_taken_for_it() -> None:
    assert parse_rank(variables("deeplearning-worker2", 4, 2, 1, "ens5")) == (5, False)
