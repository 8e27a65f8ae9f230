"""Runs on GPUs: NCCL is used, with EFA if there is EFA, speeds reach the minimum, and no fault passes silently."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from agent.preflight import node_checks
from agent.preflight.gpu_checks import FOR_HANG, FOR_PAIR, UNTESTED
from agent.preflight.node_facts import NodeFacts
from agent.preflight.report import COLUMNS, Finding, Report
from agent.spec.run import RunSpec
from agent.spec.run_limits import Floors
from tests.factories import make_node, make_nodes, make_spec

GPU_KIND = "x86_64-sm90-py3.12"
NODES = make_nodes(2, kind=GPU_KIND)
NAMES = [node.name for node in NODES]
FLOORS = Floors(matmul_tflops=494.5, allreduce_gb_s=200)
SPEC = make_spec(hosts=NODES, floors=FLOORS, efa=True)
FACTS = NodeFacts(
    time=0.0, boot_id="a", free_bytes=1, shared_free_bytes=1, spec_sha256="5pec", interface="ens5", versions=(),
    gpu_devices=1, visible_gpus=1, efa_domains=("rdmap16s27-rdm",),
)  # fmt: skip
CLEAN = Report(cells=tuple((name, *["ok"] * (len(COLUMNS) - 2), "-") for name in NAMES), findings=())
WELL = {"device": "GPU", "matmul_tflops": 650.0, "bus_gb_s": 310.0}


def nccl(host: str, *, ranks: int = 2, efa: bool = True, nccl_version: str = "2.31.2", plugin: str = "1.21.1") -> str:
    versions = [f"NCCL version {nccl_version}+cuda12.9", f"NET/OFI Initializing aws-ofi-nccl {plugin}"]
    network = "NET/OFI Selected provider is efa, fabric is efa (found 32 nics)" if efa else "Using network Socket"
    done = f"ncclCommInitRank comm 0x55 rank 0 nranks {ranks} cudaDev 0 - Init COMPLETE"
    return "".join(
        f"{host}:7:9 [0] NCCL INFO {text}\n" for text in (*(versions if efa else versions[:1]), network, done)
    )


def output(*, log: str = "", **changes: object) -> str:
    """Return the output of two ranks. The second one has these figures; "" omits a figure."""
    ranks = []
    for host, figures in zip(NAMES, (WELL, {**WELL, **changes}), strict=True):
        told = {"host": host, "error": 0.0, "ranks": 2, "seconds": 0.01, "process": f"{host}:7", **figures}
        ranks.append(f"deepcdk-allreduce {json.dumps({name: value for name, value in told.items() if value != ''})}\n")
    here = [f'deepcdk-here {{"host": "{host}"}}\n' for host in NAMES]
    return "".join([*here, *ranks, log or "".join(map(nccl, NAMES))])


def judged(text: str, spec: RunSpec = SPEC, facts: NodeFacts = FACTS) -> Report:
    return node_checks.judge_allreduce(spec, CLEAN, 0, text, dict.fromkeys(NAMES, facts))


def test_fast_nccl_over_efa_passes_and_its_figures_are_shown() -> None:
    report = judged(output())
    assert report.findings == ()
    assert [row[-1] for row in report.cells] == ["ok, EFA, 310 GB/s, 650 TFLOP/s a GPU, 10 ms"] * 2


@pytest.mark.parametrize(
    ("changes", "log", "node", "what"),
    [
        ({"device": "CPU"}, "", NAMES[1], "the allreduce runs on the CPU, not with NCCL"),
        ({}, nccl(NAMES[0]), NAMES[1], "the allreduce has 2 ranks, but NCCL connects none of them"),
        ({}, nccl(NAMES[0]) + nccl(NAMES[1], ranks=1), NAMES[1], "the allreduce has 2 ranks, but NCCL connects only 1"),
        ({}, nccl(NAMES[0]) + nccl(NAMES[1], efa=False), NAMES[1], "NCCL uses TCP instead of the EFA devices"),
        ({"matmul_tflops": 100.04}, "", NAMES[1], "matrix product on a GPU at 100 TFLOP/s; at least 494 expected"),
        ({"matmul_tflops": ""}, "", NAMES[1], "a rank did not report the time of its matrix product"),
        ({"bus_gb_s": 12.51}, "", "", "allreduce over all nodes at 12.5 GB/s; at least 200 GB/s expected"),
    ],
)  # fmt: skip
def test_wasted_gpus_are_rejected_with_node_value_minimum_and_fix(
    changes: dict[str, object], log: str, node: str, what: str
) -> None:
    report = judged(output(log=log, **changes))
    assert [(f.node, f.what, f.degraded) for f in report.findings] == [(node, what, True)]
    assert report.findings[0].remedy
    assert report.summary.endswith("; or run anyway, with --allow-degraded")


# Not recorded on GPUs: the lines are from test_nccl_log.
def test_untested_nccl_pair_over_efa_is_only_a_warning() -> None:
    """aws-ofi-nccl #1055: NCCL 2.28.9 deadlocks with plug-in 1.17."""
    log = "".join(nccl(name, nccl_version="2.32.3", plugin="1.18.0") for name in NAMES)
    report = judged(output(log=log))
    assert report.findings == ()
    assert report.summary == (
        "pre-flight: 2 nodes are healthy; warning: NCCL 2.32.3 with aws-ofi-nccl 1.18.0, a pair that AWS does not list "
        f"as tested, which may hang; do: {FOR_PAIR}"
    )
    assert [each["what"] for each in report.to_document()["warnings"]] == [report.warnings[0].what]


@pytest.mark.parametrize(
    ("second", "warned"),
    [
        ({}, []),
        ({"nccl_version": "2.28.9", "plugin": "1.20.0"}, []),
        ({"plugin": "1.22.0"}, [f"NCCL 2.31.2 with aws-ofi-nccl 1.22.0, {UNTESTED} (on {NAMES[1]})"]),
        ({"plugin": "git-6e504db"}, [f"NCCL 2.31.2 with aws-ofi-nccl git-6e504db, {UNTESTED} (on {NAMES[1]})"]),
    ],
)
def test_warning_names_only_nodes_with_untested_pair(second: dict[str, Any], warned: list[str]) -> None:
    report = judged(output(log=nccl(NAMES[0]) + nccl(NAMES[1], **second)))
    assert [found.line for found in report.warnings] == warned


def test_missing_versions_are_reported_over_efa_and_ignored_over_tcp() -> None:
    lines = "".join(map(nccl, NAMES)).splitlines(keepends=True)
    silent = "".join(line for line in lines if "NCCL version" not in line and "Initializing" not in line)
    assert "unknown version" in judged(output(log=silent)).summary
    by_tcp = "".join(nccl(name, efa=False, nccl_version="2.32.3") for name in NAMES)
    without = dataclasses.replace(FACTS, efa_domains=None)
    assert judged(output(log=by_tcp), dataclasses.replace(SPEC, efa=False, floors=Floors()), without).warnings == ()


def test_many_pairs_and_foreign_hosts_do_not_fill_the_report() -> None:
    ranks = [
        f"deepcdk-allreduce {json.dumps({**WELL, 'host': host, 'error': 0.0, 'ranks': 2, 'process': f'h{n}:7'})}\n"
        for n, host in enumerate([*NAMES * 50, "foreign" * 1000])
    ]
    log = "".join(nccl(f"h{n}", plugin=f"0.{n}") for n in range(101))
    report = judged("".join(f'deepcdk-here {{"host": "{host}"}}\n' for host in NAMES) + "".join(ranks) + log)
    assert len(report.warnings) == 4
    assert "foreign" not in report.summary


@pytest.mark.parametrize(
    ("status", "log", "what", "remedy"),
    [
        (
            124,
            nccl(NAMES[0], nccl_version="2.28.9", plugin="1.17.1"),
            f"no result within 240 s by NCCL 2.28.9 with aws-ofi-nccl 1.17.1 over EFA, {UNTESTED}",
            FOR_PAIR,
        ),
        (
            124,  # hangs before NCCL selects its network
            nccl(NAMES[0], nccl_version="2.28.9", plugin="1.17.1").partition(
                f"{NAMES[0]}:7:9 [0] NCCL INFO NET/OFI Sel"
            )[0],
            f"no result within 240 s by NCCL 2.28.9 with aws-ofi-nccl 1.17.1, {UNTESTED}",
            FOR_PAIR,
        ),
        (
            134,
            nccl(NAMES[0], plugin="1.17.1"),
            f"no result before exit status 134 by NCCL 2.31.2 with aws-ofi-nccl 1.17.1 over EFA, {UNTESTED}",
            FOR_PAIR,
        ),
        (124, nccl(NAMES[0]), "no result within 240 s by NCCL 2.31.2 with aws-ofi-nccl 1.21.1 over EFA", FOR_HANG),
        (124, nccl(NAMES[0], efa=False), "no result within 240 s by NCCL 2.31.2 over TCP", FOR_HANG),
        (
            124,
            nccl(NAMES[0]) + nccl(NAMES[1], plugin="1.18.0"),
            f"no result within 240 s by NCCL 2.31.2 with aws-ofi-nccl 1.18.0 over EFA, {UNTESTED}",
            FOR_PAIR,
        ),
    ],
)
def test_hanging_first_sum_is_reported_with_versions_and_network(status: int, log: str, what: str, remedy: str) -> None:
    """aws-ofi-nccl #1055; 134 is the exit status of PyTorch's own timeout."""
    here = "".join(f'deepcdk-here {{"host": "{name}"}}\n' for name in NAMES)
    report = node_checks.judge_allreduce(SPEC, CLEAN, status, here + log, dict.fromkeys(NAMES, FACTS))
    assert [finding.what for finding in report.findings] == ["the allreduce did not finish"] * 2 + [what]
    assert report.summary.endswith(f"; do: {remedy}")
    assert not report.allowing_degraded().allowed


def test_hanging_sum_on_one_host_is_not_blamed_on_network() -> None:
    spec, clean = dataclasses.replace(SPEC, hosts=SPEC.hosts[:1]), dataclasses.replace(CLEAN, cells=CLEAN.cells[:1])
    text = f'deepcdk-here {{"host": "{NAMES[0]}"}}\n' + nccl(NAMES[0], plugin="1.17.1")
    found = node_checks.judge_allreduce(spec, clean, 124, text, {NAMES[0]: FACTS}).findings[-1]
    assert (found.what, found.remedy) == ("no result within 240 s by NCCL 2.31.2 with aws-ofi-nccl 1.17.1", FOR_HANG)


def test_unstarted_ranks_are_blamed_instead_of_versions() -> None:
    here = f'deepcdk-here {{"host": "{NAMES[0]}"}}\n'
    report = node_checks.judge_allreduce(
        SPEC, CLEAN, 124, here + nccl(NAMES[0], plugin="1.17.1"), dict.fromkeys(NAMES, FACTS)
    )
    assert [finding.what for finding in report.findings] == ["the ranks of the allreduce did not start"]


def test_nccl_must_use_detected_efa_devices_even_if_the_spec_has_none() -> None:
    by_tcp = "".join(nccl(name, efa=False) for name in NAMES)
    spec = dataclasses.replace(SPEC, efa=False, floors=Floors())
    assert [f.what for f in judged(output(log=by_tcp), spec).findings] == [
        "NCCL uses TCP instead of the EFA devices"
    ] * 2
    without = dataclasses.replace(FACTS, efa_domains=None)
    assert judged(output(log=by_tcp), spec, without).findings == ()
    assert judged(output(log=by_tcp), SPEC, without).findings != ()


def test_single_rank_needs_no_nccl_and_single_node_no_efa() -> None:
    told = {**WELL, "host": NAMES[0], "error": 0.0, "ranks": 1, "seconds": 0.01, "process": f"{NAMES[0]}:7"}
    alone = {name: value for name, value in told.items() if name != "bus_gb_s"}
    text = f'deepcdk-here {{"host": "{NAMES[0]}"}}\ndeepcdk-allreduce {json.dumps(alone)}\n'
    spec = make_spec(hosts=(make_node(1, kind=GPU_KIND),), floors=FLOORS, efa=True)
    clean = dataclasses.replace(CLEAN, cells=CLEAN.cells[:1])
    report = node_checks.judge_allreduce(spec, clean, 0, text + nccl(NAMES[0], ranks=1, efa=False), {NAMES[0]: FACTS})
    # NCCL prints a network although it needs none.
    assert (report.findings, report.cells[0][-1]) == ((), "ok, 650 TFLOP/s a GPU, 10 ms")


def test_nccl_is_not_checked_without_gpus() -> None:
    on_cpus = make_spec(hosts=make_nodes(2))
    facts = dataclasses.replace(FACTS, gpu_devices=0, visible_gpus=None, efa_domains=None)
    report = judged(output(device="CPU", log="nothing of NCCL\n"), on_cpus, facts)
    assert report.findings == ()


def test_allow_degraded_turns_only_wasted_gpus_into_warning() -> None:
    slow = judged(output(matmul_tflops=100.0)).allowing_degraded()
    assert slow.findings == ()
    assert slow.summary == (
        "pre-flight: degraded, but permitted by --allow-degraded: "
        f"{NAMES[1]}: matrix product on a GPU at 100 TFLOP/s; at least 494 expected"
    )
    document = slow.to_document()
    assert [(each["node"], each["degraded"]) for each in document["allowed"]] == [(NAMES[1], True)]
    assert document["lines"][-1] == slow.summary
    broken = dataclasses.replace(slow, findings=(Finding(node=NAMES[0], check="disk", what="1 MiB free"),))
    assert broken.allowing_degraded().findings == broken.findings
    assert "--allow-degraded" not in broken.summary


def test_allow_degraded_does_not_accept_a_hanging_allreduce() -> None:
    spec = dataclasses.replace(SPEC, allow_degraded=True)
    blind = f'deepcdk-blind-pytorch {{"host": "{NAMES[0]}", "seen": 0, "ranks": 1}}\n'
    here = "".join(f'deepcdk-here {{"host": "{name}"}}\n' for name in NAMES)
    report = node_checks.judge_allreduce(
        spec, CLEAN, 124, here + blind, dict.fromkeys(NAMES, FACTS)
    ).allowing_degraded()
    assert [finding.what for finding in report.allowed] == ["PyTorch sees 0 of 1 GPUs"]
    assert {(each.node, each.what, each.remedy) for each in report.findings} == {
        (name, "the allreduce did not finish", "read preflight.log (`fab fetch`)") for name in NAMES
    }
