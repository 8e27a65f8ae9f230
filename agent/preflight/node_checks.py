"""Judge the nodes before a run: from their facts and the output of the allreduce to a table with findings and fixes.

Pure functions. The supervisor runs the commands.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from agent.preflight import gpu_checks
from agent.preflight.allreduce import BLIND, HERE, HOROVOD_TENSORFLOW, HOROVOD_TORCH, MARK, WITHOUT, marked
from agent.preflight.node_facts import NodeFacts
from agent.preflight.report import COLUMNS, Finding, Report, replace_remedy
from agent.remote.ssh import Completed
from agent.spec.frameworks import TORCH
from agent.spec.launchers import HOROVOD, TORCHRUN
from agent.spec.nodes import Node
from agent.spec.run import RunSpec

CLOCK_LIMIT_S: Final = 1.0
"""Maximum clock error. With a larger error, the times in logs and records of a run cannot be ordered."""
FREE_LEAST: Final = 256 << 20
SHARED_FREE_LEAST: Final = 8 << 20
MAX_LAST_LINE: Final = 500
"""Maximum characters of a line from ranks in a finding."""
OK: Final = "ok"
CPU_BUILD: Final = "tensorflow-cpu"
GPUS_SINCE_BOOT: Final = "at its boot, the node had no GPUs, so it has TensorFlow's build for CPUs: "
NO_PYTORCH: Final = "not checked: PyTorch is not installed"
ADD_PYTORCH: Final = "add torch to the program's requirements, or launch the program with --launcher plain"
PYTORCH_FOR_GPUS: Final = "require a build of PyTorch for the nodes' GPUs and driver"
READ_LOG: Final = "read preflight.log (`fab fetch`)"
PROOF_TIMEOUT_S: Final = 240.0
"""Enough for a slow node's import of TensorFlow and Horovod's own time-outs."""


def is_everyone_here(spec: RunSpec, output: str) -> bool:
    """Return whether all ranks of the allreduce have started, according to their output."""
    return len(marked(output, HERE)) >= spec.ranks


def uses_tensorflow(spec: RunSpec) -> bool:
    """Return whether Horovod reduces TensorFlow's tensors in this run; otherwise they are PyTorch's."""
    return spec.rank_launcher == HOROVOD and spec.horovod_for != (TORCH,)


def allreduce_command(python: str, spec: RunSpec) -> list[str]:
    """Build the command of each rank of the allreduce in a run with Horovod.

    It uses the same interface as the run's ranks.
    """
    framework = HOROVOD_TENSORFLOW if uses_tensorflow(spec) else HOROVOD_TORCH
    proof = ["-m", "agent.preflight.allreduce", spec.run_directory, framework]
    return [python, "-m", "agent.launch.rank", spec.run_directory, *proof]


def judge(spec: RunSpec, answers: Mapping[str, Completed], spec_sha256: str) -> tuple[Report, dict[str, NodeFacts]]:
    """Judge the nodes by their facts, before the allreduce; return the report, and the facts by node.

    `answers` has the result of the command on each host. Nodes without readable facts get a finding. `spec_sha256` is
    the hash of the run's spec, as the master reads it.
    """
    facts: dict[str, NodeFacts] = {}
    cells: dict[str, dict[str, str | Finding]] = {}
    for host in spec.hosts:
        answer = answers[host.name]
        try:
            if answer.status != 0:
                raise ValueError((answer.output.strip().splitlines() or [f"exit status {answer.status}"])[-1])
            facts[host.name] = NodeFacts.parse(answer.output)
        except ValueError as error:
            trouble = Finding(node=host.name, check="ssh", what=str(error), remedy=replace_remedy(host.name))
            cells[host.name] = {"ssh": trouble}
    common = _most(dict(found.versions).items() for found in facts.values())
    efa_wanted = max((len(found.efa_domains or ()) for found in facts.values()), default=0)
    for host in spec.hosts:
        if found := facts.get(host.name):
            judged = _judge_node(host, found, answers[host.name], spec_sha256, common, efa_wanted)
            judged["gpus"] = _judge_gpus(host, found, tensorflow=uses_tensorflow(spec))
            cells[host.name] = judged
    findings = [cell for each in cells.values() for name in COLUMNS if isinstance(cell := each.get(name), Finding)]
    rows = []
    for host in spec.hosts:
        row = [cells[host.name].get(column, "-") for column in COLUMNS[1:]]
        rows.append((host.name, *(cell.what if isinstance(cell, Finding) else cell for cell in row)))
    return Report(cells=tuple(rows), findings=tuple(findings)), facts


def _judge_node(
    host: Node, found: NodeFacts, answer: Completed, spec_sha256: str, common: Mapping[str, str], efa_wanted: int
) -> dict[str, str | Finding]:
    """Return a cell of the table for each check of one node: a value if all is well, else a finding.

    `found` are the node's facts, and `answer` is the result of the command that collected them. `common` has the most
    common version of each distribution. `efa_wanted` is the largest number of EFA devices of a node.
    """

    def wrong(check: str, what: str, remedy: str = "") -> Finding:
        return Finding(node=host.name, check=check, what=what, remedy=remedy or replace_remedy(host.name))

    cells: dict[str, str | Finding] = dict.fromkeys(("ssh", "clock", "shared files", "versions"), OK)
    cells |= {"disk": f"{_gib(found.free_bytes)} free", "interface": found.interface}
    cells["efa"] = "-" if found.efa_domains is None else f"{len(found.efa_domains)} devices"
    skew = clock_skew_s(found.time, answer.began, answer.ended, found.began)
    if abs(skew) > CLOCK_LIMIT_S:
        remedy = f"`fab run -- sudo chronyc makestep`, or {replace_remedy(host.name)}"
        cells["clock"] = wrong("clock", f"the clock is {abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}", remedy)
    if found.free_bytes < FREE_LEAST:
        cells["disk"] = wrong(
            "disk",
            f"the disk has {_mib(found.free_bytes)} free, {_mib(FREE_LEAST)} needed",
            f"free space with `fab clean`, or {replace_remedy(host.name)}",
        )
    if found.spec_sha256 != spec_sha256:
        what = "the run's spec on this node differs from the master's"
        what = what if found.spec_sha256 else "the run's directory is missing on this node"
        cells["shared files"] = wrong("shared files", what)
    elif found.shared_free_bytes < SHARED_FREE_LEAST:
        free = f"the shared file system has {_mib(found.shared_free_bytes)} free, {_mib(SHARED_FREE_LEAST)} needed"
        cells["shared files"] = wrong(
            "shared files", free, "remove unused files with `fab clean`, or a run with `fab rm`"
        )
    if not found.interface:
        cells["interface"] = wrong("interface", f"no network interface has the address {host.address}")
    mine = dict(found.versions)
    if differing := [name for name in sorted({*mine, *common}) if common.get(name) != mine.get(name)]:
        what = ", ".join(f"{n} {mine.get(n, 'none')}, on other nodes {common.get(n, 'none')}" for n in differing)
        cells["versions"] = wrong("versions", what)
    if found.efa_domains is not None and len(found.efa_domains) < efa_wanted:
        cells["efa"] = wrong("efa", f"{len(found.efa_domains)} of {efa_wanted} EFA devices found")
    return cells


def _judge_gpus(host: Node, found: NodeFacts, *, tensorflow: bool) -> str | Finding:
    """Return a finding about a node's GPUs, or else the table's cell: their names, or "-" without GPUs.

    A working driver is not enough: if TensorFlow sees no GPU, it silently computes on the CPU. If the ranks do not use
    the nodes' TensorFlow, the allreduce checks PyTorch instead (`agent.preflight.allreduce`).
    """
    there = max(len(found.gpus), found.gpu_devices)

    def finding(what: str, detail: str = "", remedy: str = "", *, degraded: bool = False) -> Finding:
        remedy = remedy or replace_remedy(host.name)
        return Finding(node=host.name, check="gpus", what=what, remedy=remedy, detail=detail, degraded=degraded)

    if found.gpu_trouble:
        return finding(found.gpu_trouble)
    well = f"{len(found.gpus)} x {found.gpus[0].name}, driver {found.gpus[0].driver}" if found.gpus else "-"
    if not there:
        return well
    if there < host.slots:
        return finding(f"{there} of {host.slots} GPUs found", degraded=True)
    if errors := sum(gpu.uncorrected_errors or 0 for gpu in found.gpus):
        return finding(f"the GPUs report {errors} uncorrected memory errors")
    if not tensorflow:
        return well
    if found.framework_trouble:
        return finding(f"TensorFlow cannot count its GPUs: {found.framework_trouble}", _driver_shows(found))
    if (found.visible_gpus or 0) < host.slots:
        for_cpus = CPU_BUILD in dict(found.versions)
        said = f"; TensorFlow's last message: {found.framework_complaint}" if found.framework_complaint else ""
        remedy = GPUS_SINCE_BOOT + replace_remedy(host.name) if for_cpus else ""
        what = f"TensorFlow sees {found.visible_gpus or 0} of {there} GPUs"
        return finding(what, _driver_shows(found) + said, remedy, degraded=True)
    return well


def _driver_shows(found: NodeFacts) -> str:
    """Return the GPUs that the driver lists, by model, or the number of device files if it lists none."""
    if not found.gpus:
        return f"nvidia-smi shows no GPU, but there are {found.gpu_devices} device files"
    models = Counter((gpu.name, gpu.driver) for gpu in found.gpus)
    return "nvidia-smi shows " + ", ".join(f"{n} x {name}, driver {driver}" for (name, driver), n in models.items())


def clock_skew_s(node_time: float, began: float, ended: float, node_began: float | None = None) -> float:
    """Return the minimum error of a node's clock, s: positive if the clock is ahead, negative if it is behind.

    It is 0 if the node's times are between `began` and `ended`, the master's times of the question and the answer.
    `node_time` and `node_began` are by the node's clock. `node_began` is an earlier time, if there is one.
    """
    return (
        node_time - ended if node_time > ended else min(0.0, (node_time if node_began is None else node_began) - began)
    )


def judge_allreduce(
    spec: RunSpec, report: Report, status: int, output: str, facts: Mapping[str, NodeFacts] | None = None
) -> Report:
    """Return the report with the result of the allreduce added.

    `status` and `output` are the launcher's. `facts` are the nodes' facts, which show whether they have GPUs. If ranks
    did not start or have wrong sums, only their nodes get a finding, because then no rank finishes. After right sums on
    GPUs, the use of NCCL and the speeds are judged too. If the ranks have no PyTorch, the report states that the
    allreduce was not tested.
    """
    if is_unchecked(output):
        return _without_pytorch(spec, report)
    blind: dict[str, str] = {}
    for found in marked(output, BLIND):
        seen, ranks = (gpu_checks.numbers([found], name) for name in ("seen", "ranks"))
        blind[found["host"]] = f"PyTorch sees {seen[0] if seen else 0:g} of {ranks[0] if ranks else 0:g} GPUs"
    figures = marked(output, MARK)
    here = {str(found.get("host")) for found in marked(output, HERE)}
    findings: list[Finding] = []

    def add(node: str, what: str, remedy: str = "", *, degraded: bool = False) -> None:
        findings.append(Finding(node=node, check="allreduce", what=what, remedy=remedy, degraded=degraded))

    for host in spec.hosts:
        if host.name in blind:
            add(host.name, blind[host.name], PYTORCH_FOR_GPUS, degraded=True)
        mine = [found for found in figures if found.get("host") == host.name]
        wrong_sums = [found for found in mine if found.get("error") != 0 or found.get("ranks") != spec.ranks]
        if wrong_sums:
            largest = max(gpu_checks.numbers(wrong_sums, "error"), default=math.inf)
            add(host.name, f"the allreduce has wrong sums, error up to {largest:g}", replace_remedy(host.name))
        elif host.name not in here:
            add(host.name, "the ranks of the allreduce did not start", replace_remedy(host.name))
        elif len(mine) < host.slots:
            add(host.name, "the allreduce did not finish")
    # If one node does not start its ranks, no rank finishes. Only that node is at fault.
    absent = [finding for finding in findings if finding.remedy and not finding.degraded]
    degraded = [finding for finding in findings if finding.degraded and not spec.allow_degraded]
    findings = absent or degraded or findings
    if any(not finding.remedy for finding in findings):
        hanging = gpu_checks.hanging(spec, status, output, PROOF_TIMEOUT_S)
        remedy = "" if hanging else READ_LOG
        findings = [dataclasses.replace(each, remedy=each.remedy or remedy) for each in findings] + hanging
    if not findings and status != 0:
        last = (output.strip().splitlines() or ["no output"])[-1][:MAX_LAST_LINE]
        add("", f"the allreduce failed with exit status {status}: {last}", READ_LOG)
    judged = not findings and gpu_checks.has_gpus(spec, facts or {})
    wasted = gpu_checks.judge_ranks(spec, facts or {}, figures, output) if judged else []
    warnings = gpu_checks.untested_pairs(spec, facts or {}, figures, output) if judged else []
    seconds = max(gpu_checks.numbers(figures, "seconds"), default=0.0)
    wrong = {finding.node: finding.what for finding in (*findings, *wasted)}
    cells, alone = [], len(spec.hosts) == 1
    for row, host in zip(report.cells, spec.hosts, strict=True):
        well = f"{OK}, {gpu_checks.summary(host, figures, output, alone=alone)}{seconds * 1000:.0f} ms"
        cells.append((*row[:-1], wrong.get(host.name, "-" if findings else well)))
    all_findings = (*report.findings, *findings, *wasted)
    return dataclasses.replace(report, cells=tuple(cells), findings=all_findings, warnings=tuple(warnings))


def is_unchecked(output: str) -> bool:
    """Return whether the allreduce was not tested because the ranks have no PyTorch."""
    return bool(marked(output, WITHOUT))


def _without_pytorch(spec: RunSpec, report: Report) -> Report:
    """Return the report after an allreduce that was not tested, because the ranks have no PyTorch.

    Only under torchrun, this is a finding.
    """
    cells = tuple((*row[:-1], NO_PYTORCH) for row in report.cells)
    needed = Finding(
        node="", check="allreduce", what="torchrun is part of PyTorch, which is not installed", remedy=ADD_PYTORCH
    )
    wrong = (needed,) if spec.rank_launcher == TORCHRUN else ()
    return dataclasses.replace(report, cells=cells, findings=(*report.findings, *wrong))


def key(spec: RunSpec, python: str, facts: Mapping[str, NodeFacts]) -> str:
    """Return a hash of the nodes, boot ids, Python and settings that a result of the allreduce test depends on.

    A successful test is not repeated while the hash is the same, unless the run asks for a full pre-flight.
    """
    nodes = sorted((host.name, host.instance_id, host.address, host.slots) for host in spec.hosts)
    boots = sorted((name, found.boot_id) for name, found in facts.items())
    proved = [nodes, boots, python, spec.interface, spec.controller, spec.rank_launcher]
    if gpu_checks.has_gpus(spec, facts):
        proved += [spec.efa, dataclasses.asdict(spec.floors)]
    text = json.dumps(proved)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def software(facts: Mapping[str, NodeFacts]) -> dict[str, str]:
    """Return the most common version of each distribution among the nodes, and the GPU driver's; {} without facts."""
    found = _most(dict(each.versions).items() for each in facts.values())
    drivers = Counter(gpu.driver for each in facts.values() for gpu in each.gpus)
    return {**found, **({"driver": drivers.most_common(1)[0][0]} if drivers else {})}


def _most(versions: Any) -> dict[str, str]:
    """Return the most common version of each name. `versions` contains the pairs (name, version) of each node."""
    counts: dict[str, Counter[str]] = {}
    for pairs in versions:
        for name, version in pairs:
            counts.setdefault(name, Counter())[version] += 1
    return {name: counter.most_common(1)[0][0] for name, counter in counts.items()}


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
