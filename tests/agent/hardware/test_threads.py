from __future__ import annotations

import pytest

from agent.hardware.threads import thread_variables


@pytest.mark.parametrize(("bits", "on"), [(512, "1"), (256, "1"), (128, None)])
def test_onednn_is_turned_on_where_vectors_are_wide(bits: int, on: str | None) -> None:
    assert thread_variables(4, bits).get("TF_ENABLE_ONEDNN_OPTS") == on


def test_threads_of_openmp_are_those_within_an_operation_and_the_only_one_computes_by_itself() -> None:
    one, four = thread_variables(1, 512), thread_variables(4, 512)
    assert (one["OMP_NUM_THREADS"], four["OMP_NUM_THREADS"]) == ("1", "4")
    assert one["TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD"] == "1"
    assert "TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD" not in four
