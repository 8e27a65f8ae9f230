from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.hardware.gpus import PciGpu
from agent.hardware.placement import Placement
from payload.models.registry import network as registered
from payload.training.rank_tuning import LARGEST_BUFFER_MIB, Job, buffer_mib, step_ms, tune


def job(ranks: int = 2, network: str = "resnet50", batch: int = 16, parameters: int = 25_557_032) -> Job:
    known = registered(network)
    return Job(
        multiply_adds=known.multiply_adds,
        branches=known.branches,
        parameters=parameters,
        batch_per_rank=batch,
        ranks=ranks,
    )


def on_cores(cores: int, gpu: PciGpu | None = None) -> Placement:
    return Placement(cpus=tuple(range(cores)), cores=cores, node=None, gpu=gpu)


def test_threads_follow_from_physical_cores_and_branches() -> None:
    alone = tune(job(network="googlenet"), on_cores(1), vector_bits=512, environ={})
    many = tune(job(network="googlenet"), on_cores(18), vector_bits=512, environ={})
    assert (alone.intra_op_threads, alone.inter_op_threads) == (1, 1)
    assert (many.intra_op_threads, many.inter_op_threads) == (18, 4)
    assert tune(job(network="vgg16"), on_cores(18), vector_bits=512, environ={}).inter_op_threads == 2
    assert dict(many.variables)["OMP_NUM_THREADS"] == "18"


def test_resnet_and_lenet_get_their_own_cycle_times_and_buffers() -> None:
    resnet = tune(job(), on_cores(1), vector_bits=512, environ={})
    lenet = tune(job(network="lenet", batch=256, parameters=431_080), on_cores(1), vector_bits=512, environ={})
    assert str(resnet) == (
        "intra-op 1, inter-op 1, a step of about 6.54e+03 ms, gradients of 97.5 MiB, cycle 36 ms, buffer 99 MiB"
    )
    assert (lenet.cycle_time_ms, lenet.fusion_threshold_mib) == (3.4, 3)
    assert dict(lenet.variables)["HOROVOD_CYCLE_TIME"] == "3.4"
    assert dict(lenet.variables)["HOROVOD_FUSION_THRESHOLD"] == str(3 << 20)


def test_what_the_user_set_is_kept_and_named() -> None:
    environ = {"HOROVOD_CYCLE_TIME": "7.5", "TF_ENABLE_ONEDNN_OPTS": "0", "OMP_NUM_THREADS": "3"}
    found = tune(job(), on_cores(4), vector_bits=512, environ=environ, intra_op_threads=2, inter_op_threads=3)
    assert (found.intra_op_threads, found.inter_op_threads, found.cycle_time_ms) == (2, 3, 7.5)
    assert not environ.keys() & dict(found.variables).keys()
    assert set(found.given) == {"intra_op_threads", "inter_op_threads", *environ}


def test_given_buffer_is_recorded_in_mib_or_as_unknown() -> None:
    given_buffer = tune(job(), on_cores(1), vector_bits=512, environ={"HOROVOD_FUSION_THRESHOLD": str(64 << 20)})
    broken = tune(job(), on_cores(1), vector_bits=512, environ={"HOROVOD_FUSION_THRESHOLD": "64M"})
    assert (given_buffer.fusion_threshold_mib, broken.fusion_threshold_mib) == (64, None)


def test_horovod_is_not_tuned_for_one_rank_gpus_or_autotuner() -> None:
    gpu = PciGpu(index=0, address="0000:00:17.0", node=0)
    for found in (
        tune(job(ranks=1), on_cores(2), vector_bits=512, environ={}),
        tune(job(ranks=8), on_cores(4, gpu), vector_bits=512, environ={}),
        tune(job(), on_cores(1), vector_bits=512, environ={"HOROVOD_AUTOTUNE": "1"}),
    ):
        assert (found.cycle_time_ms, found.fusion_threshold_mib) == (None, None)
        assert not [name for name, _ in found.variables if name.startswith("HOROVOD")]


@pytest.mark.parametrize(("bits", "on"), [(512, "1"), (256, "1"), (128, None)])
def test_onednn_is_enabled_with_wide_vectors(bits: int, on: str | None) -> None:
    assert dict(tune(job(), on_cores(1), vector_bits=bits, environ={}).variables).get("TF_ENABLE_ONEDNN_OPTS") == on


def test_single_thread_of_a_rank_computes_without_a_pool() -> None:
    def caller(cores: int) -> str | None:
        chosen = tune(job(), on_cores(cores), vector_bits=512, environ={})
        return dict(chosen.variables).get("TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD")

    assert (caller(1), caller(2)) == ("1", None)


@given(mib=st.floats(0.001, 600))
def test_buffer_fits_all_gradients_up_to_horovods_default(mib: float) -> None:
    assert buffer_mib(mib) > mib or buffer_mib(mib) == LARGEST_BUFFER_MIB


@given(cores=st.integers(1, 64), batch=st.integers(1, 512))
def test_estimate_grows_with_the_batch_and_falls_with_the_cores(cores: int, batch: int) -> None:
    one = step_ms(job(batch=batch), cores, 512)
    assert step_ms(job(batch=2 * batch), cores, 512) == pytest.approx(2 * one)
    assert step_ms(job(batch=batch), 2 * cores, 512) == pytest.approx(one / 2)
    assert step_ms(job(batch=batch), cores, 256) == pytest.approx(2 * one)


def test_compressed_gradients_are_half_as_large() -> None:
    halved = Job(multiply_adds=1, branches=1, parameters=1 << 20, batch_per_rank=1, ranks=2, bytes_per_gradient=2)
    assert halved.gradient_mib == 2


def test_record_is_made_of_plain_values() -> None:
    values = tune(job(), on_cores(1), vector_bits=512, environ={"HOROVOD_CYCLE_TIME": "5"}).values()
    assert values["cycle_time_ms"] == 5
    assert values["given"] == "HOROVOD_CYCLE_TIME"
    assert all(value is None or isinstance(value, int | float | str) for value in values.values())
