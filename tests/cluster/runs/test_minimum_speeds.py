"""Minimum GPU speeds: half of the published values for the hosts' types, or none if a type has no value."""

from __future__ import annotations

import pytest

from agent.errors import SpecError
from agent.spec.run import RunSpec
from agent.spec.run_limits import Floors
from cluster.runs.minimum_speeds import floors, with_floors
from tests.factories import make_nodes, make_spec


@pytest.mark.parametrize(
    ("types", "efa", "expected"),
    [
        # H100: 989 TFLOP/s; 3200 Gbit/s are 400 GB/s, less than NVLink's 450.
        (("p5.48xlarge",) * 2, True, Floors(matmul_tflops=494.5, allreduce_gb_s=200, allreduce_mib=1907)),
        (("p5.48xlarge",), True, Floors(matmul_tflops=494.5, allreduce_gb_s=225, allreduce_mib=2048)),
        # Four cards with 100 Gbit/s are 50 GB/s; over TCP, the rate of one flow: 5 Gbit/s.
        (("p4d.24xlarge",) * 4, True, Floors(matmul_tflops=156, allreduce_gb_s=25)),
        (("p4d.24xlarge",) * 4, False, Floors(matmul_tflops=156, allreduce_gb_s=0.3125)),
        # "Up to 25 Gigabit" is a peak; a T4 sustains 24 TFLOP/s of its 65.
        (("g4dn.xlarge",) * 2, False, Floors(matmul_tflops=12)),
        (("g4dn.8xlarge",) * 2, True, Floors(matmul_tflops=12, allreduce_gb_s=3.125)),
        (("g5.xlarge", "g5.8xlarge"), False, Floors(matmul_tflops=35)),
        # Eight L40S on PCI Express, without a published value.
        (("g6e.48xlarge",) * 2, True, Floors(matmul_tflops=181)),
        (("p5.48xlarge", "none.large"), True, Floors()),
        ((), True, Floors()),
    ],
)
def test_minimum_is_half_of_published_speed_of_weakest_host(
    types: tuple[str, ...], efa: bool, expected: Floors
) -> None:
    assert floors(types, efa=efa) == expected


def test_fewer_ranks_than_gpus_have_a_share_of_the_network() -> None:
    p5 = ("p5.48xlarge",) * 2
    assert floors(p5, efa=True, ranks=(4, 4)).allreduce_gb_s == 100
    assert floors(p5, efa=True, ranks=(1, 1)).allreduce_gb_s == 25
    assert floors(p5, efa=True, ranks=(8, 2)).allreduce_gb_s == 50
    assert floors(("g6e.48xlarge",) * 2, efa=True, ranks=(1, 1)).allreduce_gb_s == 3.125
    assert floors(("p4d.24xlarge",) * 2, efa=False, ranks=(1, 1)).allreduce_gb_s == 0.3125
    spec = make_spec(hosts=make_nodes(2, kind="x86_64-sm90-py3.12", slots=4))
    assert with_floors(spec, {f"i-{n:08x}": "p5.48xlarge" for n in (1, 2)}, efa=True).floors.allreduce_gb_s == 100


def on(kind: str) -> RunSpec:
    return make_spec(hosts=make_nodes(2, kind=kind, slots=8))


def test_only_hosts_with_gpus_have_minimum_speeds() -> None:
    types = {f"i-{index:08x}": "p4d.24xlarge" for index in (1, 2)}
    spec = with_floors(on("x86_64-sm80-py3.12"), types, efa=True)
    assert (spec.efa, spec.floors.allreduce_gb_s) == (True, 25)
    assert with_floors(on("x86_64-py3.12"), types, efa=True) == on("x86_64-py3.12")
    assert with_floors(spec, {"i-00000001": "p4d.24xlarge"}, efa=True).floors == Floors()


def test_minimum_speeds_reach_master_unchanged_and_invalid_do_not() -> None:
    spec = with_floors(on("x86_64-sm80-py3.12"), {f"i-{n:08x}": "p4d.24xlarge" for n in (1, 2)}, efa=True)
    assert RunSpec.from_json(spec.to_json()) == spec
    for wrong in ("-1", "NaN", '"fast"', "1e400"):
        with pytest.raises(SpecError, match="floors: matmul_tflops = "):
            RunSpec.from_json(spec.to_json().replace('"matmul_tflops": 156.0', f'"matmul_tflops": {wrong}'))
    with pytest.raises(SpecError, match="allreduce_mib = 0: must be a whole number"):
        RunSpec.from_json(spec.to_json().replace('"allreduce_mib": 256', '"allreduce_mib": 0'))


def test_checks_on_gpus_are_skipped_only_with_allow_degraded() -> None:
    with pytest.raises(SpecError, match="--skip-preflight needs --allow-degraded"):
        make_spec(hosts=make_nodes(2, kind="x86_64-sm80-py3.12"), preflight="skip")
    make_spec(hosts=make_nodes(2, kind="x86_64-sm80-py3.12"), preflight="skip", allow_degraded=True)
    make_spec(hosts=make_nodes(2), preflight="skip")
