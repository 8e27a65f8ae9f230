"""Facts about floors in the doctor: told before the spend for types with GPUs, and not known is said to be so."""

from __future__ import annotations

from cluster.doctor import gpus
from cluster.doctor.finding import OK, WARN, Subject
from stacks.config import ClusterConfig


def told(**keys: object) -> list[tuple[str, str]]:
    config = ClusterConfig(**keys)  # type: ignore[arg-type]  # the tests' own
    subject = Subject(aws=None, config=config, project=None, home=None, key="")  # type: ignore[arg-type]  # unused
    return [(finding.state, finding.what) for finding in gpus.floors_of_types(subject)]


def test_types_with_gpus_are_told_their_floors_and_others_nothing() -> None:
    ((state, what),) = told(worker_instance_type="p5.48xlarge", efa=True)
    assert state == OK
    assert "each H100 multiplies at 494 TFLOP/s or more (NVIDIA H100 data sheet" in what
    assert "all GPUs of two nodes add up at 200 GB/s or more" in what
    ((_, over_tcp),) = told(worker_instance_type="p4d.24xlarge")
    assert "add up at 0.312 GB/s or more" in over_tcp
    assert told(worker_instance_type="c5.2xlarge") == []


def test_what_has_no_published_figure_is_said_to_be_measured_and_not_judged() -> None:
    ((state, what),) = told(worker_instance_type="g4dn.xlarge")
    assert (state, "the allreduce is measured, not judged" in what) == (OK, True)
    ((state, what),) = told(worker_instance_type="g7e.2xlarge")
    assert (state, what.partition(" GPUs")[0]) == (
        WARN,
        "g7e.2xlarge: no published figure of RTX PRO Server 6000",
    )
