"""The pre-flight check: a bad node is reported with the fault and the fix, and a good node never is."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.hardware.gpus import GpuInfo
from agent.preflight import node_checks
from agent.preflight.allreduce import BLIND, HERE
from agent.preflight.allreduce import MARK as PROOF
from agent.preflight.node_facts import MARK, NodeFacts
from agent.preflight.report import COLUMNS, Report
from agent.remote.ssh import Completed
from tests.factories import make_node, make_nodes, make_program_spec, make_spec

NODES = make_nodes(3)
SPEC = make_spec(hosts=NODES)
WELL = NodeFacts(
    time=100.5, boot_id="a", free_bytes=10 << 30, shared_free_bytes=1 << 40, spec_sha256="5pec", interface="ens5",
    versions=(("python", "3.12.1"), ("tensorflow", "2.21.0")),
)  # fmt: skip
NAMES = [node.name for node in NODES]


def answer(facts: NodeFacts) -> Completed:
    line = MARK + json.dumps(dataclasses.asdict(facts))
    return Completed(status=0, output=f"a banner\n{line}\n", began=100.0, ended=101.0)


def judged(**changes: object) -> Report:
    """Judge three nodes; the facts of the second one have these changes."""
    answers = {name: answer(WELL) for name in NAMES}
    answers[NAMES[1]] = answer(dataclasses.replace(WELL, **changes))  # type: ignore[arg-type]  # the tests' own
    return node_checks.judge(SPEC, answers, "5pec")[0]


def blamed(report: Report) -> tuple[str, ...]:
    """Return the nodes with findings, each once."""
    return tuple(dict.fromkeys(finding.node for finding in report.findings if finding.node))


def test_healthy_nodes_give_a_table_and_no_finding() -> None:
    report = judged()
    assert report.findings == ()
    header, *rows, summary = report.lines()
    assert header.split() == ["node", "ssh", "clock", "disk", "shared", "files", "interface", "versions"]
    assert rows[0].split() == ["worker1", "ok", "ok", "10.0", "GiB", "free", "ok", "ens5", "ok"]
    assert [line for line in (header, *rows) if line != line.rstrip()] == []
    assert summary == "pre-flight: 3 nodes are healthy"
    assert Report(cells=(("worker1",),), findings=()).summary == "pre-flight: 1 node is healthy"


@pytest.mark.parametrize(
    ("changes", "check", "what"),
    [
        ({"time": 96.0}, "clock", "the clock is 4.0 s behind"),
        ({"time": 105.0}, "clock", "the clock is 4.0 s ahead"),
        ({"free_bytes": 1 << 20}, "disk", "the disk has 1 MiB free, 256 MiB needed"),
        ({"spec_sha256": "old"}, "shared files", "the run's spec on this node differs from the master's"),
        ({"shared_free_bytes": 1 << 20}, "shared files", "the shared file system has 1 MiB free, 8 MiB needed"),
        ({"interface": ""}, "interface", "no network interface has the address 10.0.1.2"),
        ({"versions": (("python", "3.12.1"), ("tensorflow", "2.15.0"))}, "versions",
         "tensorflow 2.15.0, on other nodes 2.21.0"),
        ({"versions": (("python", "3.12.1"),)}, "versions", "tensorflow none, on other nodes 2.21.0"),
        ({"gpu_trouble": "No devices were found"}, "gpus", "No devices were found"),
        ({"gpus": (GpuInfo(name="T4", driver="1", memory="1", uncorrected_errors=3),)}, "gpus",
         "the GPUs report 3 uncorrected memory errors"),
    ],
)  # fmt: skip
def test_fault_of_one_node_is_reported_for_that_node_only(changes: dict[str, object], check: str, what: str) -> None:
    report = judged(**changes)
    assert [(f.node, f.check, f.what) for f in report.findings] == [(NAMES[1], check, what)]
    assert report.cells[1][COLUMNS.index(check)] == what
    assert f"{NAMES[1]}: {what}; do: " in report.summary
    assert blamed(report) == (NAMES[1],)


T4 = GpuInfo(name="Tesla T4", driver="570.86.15", memory="15360 MiB", uncorrected_errors=0)
FOR_CPUS = (*WELL.versions[:1], ("tensorflow-cpu", "2.21.0"))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"gpus": (T4,), "visible_gpus": 0}, "TensorFlow sees 0 of 1 GPUs"),
        ({"gpu_devices": 4, "visible_gpus": 0}, "TensorFlow sees 0 of 4 GPUs"),
        ({"gpus": (T4,), "visible_gpus": None, "framework_trouble": "ImportError: libcudart.so.12"},
         "TensorFlow cannot count its GPUs: ImportError: libcudart.so.12"),
        ({"gpus": (T4,), "visible_gpus": 1}, ""),
        ({"visible_gpus": None}, ""),
    ],
)  # fmt: skip
def test_node_with_gpus_invisible_to_tensorflow_is_rejected(changes: dict[str, object], what: str) -> None:
    report = judged(**changes)
    assert [(f.node, f.check, f.what) for f in report.findings] == ([(NAMES[1], "gpus", what)] if what else [])


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"gpus": (T4,), "visible_gpus": 0, "framework_complaint": "failed call to cuInit"},
         "nvidia-smi shows 1 x Tesla T4, driver 570.86.15; TensorFlow's last message: failed call to cuInit"),
        ({"gpu_devices": 4, "visible_gpus": 0}, "nvidia-smi shows no GPU, but there are 4 device files"),
        ({"gpus": (T4, T4), "framework_trouble": "ImportError"}, "nvidia-smi shows 2 x Tesla T4, driver 570.86.15"),
    ],
)  # fmt: skip
def test_rejection_shows_driver_and_tensorflow_messages(changes: dict[str, object], detail: str) -> None:
    report = judged(**changes)
    (finding,) = report.findings
    assert finding.detail == detail
    assert f"{NAMES[1]}: {finding.what} ({detail}); do: `fab replace worker2`" in report.summary
    assert report.cells[1][COLUMNS.index("gpus")] == finding.what


def test_each_rank_of_node_needs_a_visible_gpu() -> None:
    eight = make_spec(hosts=make_nodes(3, slots=8))
    facts = dataclasses.replace(WELL, gpus=(T4,) * 8, visible_gpus=7)
    report, _ = node_checks.judge(eight, {name: answer(facts) for name in NAMES}, "5pec")
    assert [(f.node, f.what) for f in report.findings] == [(name, "TensorFlow sees 7 of 8 GPUs") for name in NAMES]


def test_gpus_of_node_with_cpu_build_are_reported() -> None:
    facts = dataclasses.replace(WELL, gpus=(T4,), visible_gpus=0, versions=FOR_CPUS)
    summary = node_checks.judge(SPEC, {name: answer(facts) for name in NAMES}, "5pec")[0].summary
    assert "do: at its boot, the node had no GPUs, so it has TensorFlow's build for CPUs: `fab replace" in summary
    assert "`fab replace worker2`" in judged(gpus=(T4,), visible_gpus=0).summary


def test_unresponsive_node_is_reported_with_its_last_line() -> None:
    answers = {name: answer(WELL) for name in NAMES}
    answers[NAMES[2]] = Completed(status=255, output="ssh: connect to host deeplearning-worker3: timed out\n")
    report, facts = node_checks.judge(SPEC, answers, "5pec")
    assert (blamed(report), sorted(facts)) == ((NAMES[2],), NAMES[:2])
    assert "timed out" in report.cells[2][1]
    answers[NAMES[2]] = Completed(status=0, output=MARK + "{}")
    assert blamed(node_checks.judge(SPEC, answers, "5pec")[0]) == (NAMES[2],)


def test_fewer_gpus_than_ranks_and_fewer_efa_devices_than_on_other_nodes_are_reported() -> None:
    gpu = GpuInfo(name="NVIDIA A100-SXM4-40GB", driver="570.1", memory="40960 MiB", uncorrected_errors=0)
    eight = make_spec(hosts=make_nodes(3, slots=8))
    full = dataclasses.replace(WELL, gpus=(gpu,) * 8, visible_gpus=8, efa_domains=("rdmap0", "rdmap1"))
    answers = {name: answer(full) for name in NAMES}
    answers[NAMES[0]] = answer(dataclasses.replace(full, gpus=(gpu,) * 7, efa_domains=("rdmap0",)))
    report, _ = node_checks.judge(eight, answers, "5pec")
    assert [(f.check, f.what) for f in report.findings] == [
        ("gpus", "7 of 8 GPUs found"),
        ("efa", "1 of 2 EFA devices found"),
    ]
    assert report.cells[1][-3:-1] == ("8 x NVIDIA A100-SXM4-40GB, driver 570.1", "2 devices")


@given(
    skew=st.floats(-100, 100),
    asked=st.floats(0, 1e9),
    took=st.floats(0, 60),
    at=st.floats(0, 1),
    prepared=st.floats(0, 600),
)
def test_clock_skew_is_not_overestimated_nor_hidden_by_a_long_preparation(
    skew: float, asked: float, took: float, at: float, prepared: float
) -> None:
    first = asked + took * at + skew
    found = node_checks.clock_skew_s(first + prepared, asked, asked + took + prepared, first)
    assert abs(found) <= abs(skew) + 1e-6
    assert found == 0 or (found > 0) == (skew > 0)
    assert abs(found) >= abs(skew) - took - 1e-6


def proof(*hosts: str, error: float = 0.0, ranks: int = 3) -> str:
    """Return the output of ranks on these hosts that complete the allreduce."""
    return "".join(
        f'[{n}]<stdout>:deepcdk-allreduce {{"host": "{host}", "error": {error}, "ranks": {ranks}, "seconds": 0.01}}\n'
        for n, host in enumerate(hosts)
    )


def here(*hosts: str) -> str:
    return "".join(f'[0]<stdout>:deepcdk-here {{"host": "{host}"}}\n' for host in hosts)


def test_correct_allreduce_on_all_nodes_passes() -> None:
    report = node_checks.judge_allreduce(SPEC, judged(), 0, here(*NAMES) + proof(*NAMES))
    assert [row[-1] for row in report.cells] == ["ok, 10 ms"] * 3
    assert report.findings == ()


def test_wrong_sum_is_reported_with_node() -> None:
    output = here(*NAMES) + proof(NAMES[0], NAMES[2]) + proof(NAMES[1], error=2.0)
    report = node_checks.judge_allreduce(SPEC, judged(), 0, output)
    assert [(f.node, f.what) for f in report.findings] == [(NAMES[1], "the allreduce has wrong sums, error up to 2")]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "9" * 5000,
        '{"host": ["a"], "error": 0}',
        '{"host": 1}',
        f'{{"host": "{NAMES[0]}"}}',
        f'{{"host": "{NAMES[0]}", "error": "x", "seconds": "x", "ranks": [], "seen": {{}}}}',
        '{{"host": "{}", "error": {}}}'.format(NAMES[0], "9" * 5000),
    ],
)
@pytest.mark.parametrize("mark", [BLIND, HERE, PROOF])
def test_any_rank_report_gives_a_finding_or_none(mark: str, text: str) -> None:
    output = here(*NAMES) + proof(*NAMES) + f"[0]<stdout>:{mark}{text}\n"
    report = node_checks.judge_allreduce(SPEC, judged(), 0, output)
    assert set(blamed(report)) <= {NAMES[0]}
    assert len(json.dumps(report.to_document())) < 20_000


def test_last_line_that_a_finding_repeats_is_cut() -> None:
    report = node_checks.judge_allreduce(SPEC, judged(), 1, here(*NAMES) + proof(*NAMES) + "x" * (1 << 20))
    assert max(len(finding.what) for finding in report.findings) < 1000


def test_only_missing_node_is_blamed() -> None:
    report = node_checks.judge_allreduce(SPEC, judged(), 124, here(NAMES[0], NAMES[2]))
    assert [(f.node, f.what) for f in report.findings] == [(NAMES[1], "the ranks of the allreduce did not start")]
    assert [row[-1] for row in report.cells] == ["-", "the ranks of the allreduce did not start", "-"]


def test_hanging_allreduce_names_all_nodes_and_failed_one_shows_last_line() -> None:
    hung = node_checks.judge_allreduce(SPEC, judged(), 124, here(*NAMES))
    assert blamed(hung) == tuple(NAMES)
    failed = node_checks.judge_allreduce(SPEC, judged(), 1, here(*NAMES) + proof(*NAMES) + "Segmentation fault\n")
    assert "status 1: Segmentation fault" in failed.summary


def test_allreduce_result_is_valid_for_same_instances_boot_and_runtime() -> None:
    facts = dict.fromkeys(NAMES, WELL)
    key = node_checks.key(SPEC, "/runtime/bin/python", facts)
    assert key == node_checks.key(make_spec(hosts=NODES, run_id="two"), "/runtime/bin/python", facts)
    rebooted = {**facts, NAMES[0]: dataclasses.replace(WELL, boot_id="b")}
    replaced = make_spec(hosts=(make_node(1, instance_id="i-00000009"), *NODES[1:]))
    others = {
        node_checks.key(SPEC, "/runtime/bin/python", rebooted),
        node_checks.key(replaced, "/runtime/bin/python", facts),
        node_checks.key(SPEC, "/other/bin/python", facts),
    }
    on_gpus = {name: dataclasses.replace(WELL, gpus=(T4,)) for name in NAMES}
    others |= {
        node_checks.key(dataclasses.replace(SPEC, efa=efa), "/runtime/bin/python", on_gpus) for efa in (False, True)
    }
    assert key not in others
    assert len(others) == 5


def test_torchrun_without_pytorch_is_rejected_before_allreduce() -> None:
    output = "".join(f'[0]<stdout>:deepcdk-no-pytorch {{"host": "{name}"}}\n' for name in NAMES)
    report = judged()
    for launcher, blamed_checks in (("plain", []), ("torchrun", ["allreduce"])):
        spec = make_program_spec(hosts=NODES, rank_launcher=launcher)
        found = node_checks.judge_allreduce(spec, report, 0, output)
        assert {row[-1] for row in found.cells} == {"not checked: PyTorch is not installed"}
        assert [finding.check for finding in found.findings] == blamed_checks
    assert (node_checks.is_unchecked(output), node_checks.is_unchecked(proof(*NAMES))) == (True, False)


def test_pytorch_program_does_not_depend_on_gpus_of_tensorflow() -> None:
    plain = make_program_spec(hosts=NODES, rank_launcher="plain")
    by_horovod = make_program_spec(hosts=NODES, own_environment=True, horovod_for=("torch",))
    for_both = make_program_spec(hosts=NODES, own_environment=True, horovod_for=("tensorflow", "torch"))
    # Its environment has no TensorFlow.
    trouble = "ModuleNotFoundError: No module named 'tensorflow'"
    gpus = dataclasses.replace(WELL, gpus=(T4,), visible_gpus=None, framework_trouble=trouble)
    for each, refused in ((SPEC, True), (plain, False), (by_horovod, False), (for_both, True)):
        report, _ = node_checks.judge(each, {name: answer(gpus) for name in NAMES}, "5pec")
        assert bool(report.findings) == refused


def test_pytorch_that_does_not_see_gpus_is_rejected_with_counts() -> None:
    blind = "".join(
        f'[0]<stdout>:deepcdk-blind-pytorch {{"host": "{name}", "seen": 0, "ranks": 8}}\n' for name in NAMES
    )
    spec = make_program_spec(hosts=NODES, rank_launcher="plain")
    found = node_checks.judge_allreduce(spec, judged(), 1, here(*NAMES) + blind)
    assert [(each.node, each.what) for each in found.findings] == [(name, "PyTorch sees 0 of 8 GPUs") for name in NAMES]
    assert "do: require a build of PyTorch for the nodes' GPUs and driver" in found.summary


def test_record_has_the_versions_of_most_nodes_including_cuda_and_driver() -> None:
    cuda = (("nvidia-cuda-runtime-cu12", "12.9.79"), ("nvidia-cudnn-cu12", "9.28.0.42"), ("nvidia-nccl-cu12", "2.32.3"))
    well = dataclasses.replace(WELL, gpus=(T4,), versions=(*WELL.versions, *cuda))
    older = dataclasses.replace(well, versions=(*WELL.versions[:1], ("tensorflow", "2.15.0"), *cuda))
    found = node_checks.software({"a": well, "b": older, "c": well})
    assert found == {"python": "3.12.1", "tensorflow": "2.21.0", **dict(cuda), "driver": T4.driver}
    assert node_checks.software({"a": WELL}) == dict(WELL.versions)
    assert node_checks.software({}) == {}
