"""Judge the results of ranks on GPUs: NCCL must add up, over EFA if there is EFA, and at the minimum speeds.

Pure functions. `--allow-degraded` permits the findings of `judge_ranks`: the run's results would be correct, but its
GPUs would be wasted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent.preflight import nccl_log
from agent.preflight.nccl_log import NcclProcess
from agent.preflight.node_facts import NodeFacts
from agent.preflight.report import Finding, replace_remedy
from agent.spec.nodes import Node
from agent.spec.run import RunSpec

CHECK: Final = "allreduce"
FOR_NCCL: Final = (
    "read NCCL's messages in preflight.log (`fab fetch`); your own program needs a framework built for GPUs"
)
FOR_EFA: Final = (
    "use an image with libfabric and its NCCL plug-in, such as AWS's Deep Learning Base images, or set efa = false in "
    "cdk.json"
)
FOR_BANDWIDTH: Final = (
    "put all workers into one zone and placement group (`placement_group = true`), and repeat with "
    "--full-preflight; if it is still slow, `fab replace` the nodes one by one"
)
FOR_PAIR: Final = (
    f"use an image with aws-ofi-nccl {nccl_log.PLUGIN} (EFA installer 1.50.0), for the runtime's NCCL "
    f"{nccl_log.LOCKED}; for a program with another NCCL, see docs/compute.md#nccl-and-its-plug-in-for-efa"
)
FOR_HANG: Final = "read in preflight.log (`fab fetch`) how far NCCL got on each node"
UNTESTED: Final = "a pair that AWS does not list as tested, which may hang"
MAX_PAIRS: Final = 4
"""Maximum number of pairs of NCCL and its plug-in to report, because any program can write such lines."""
TIMED_OUT: Final = 124
"""Status of an allreduce that was terminated after its time-out, as in coreutils' timeout."""


def has_gpus(spec: RunSpec, facts: Mapping[str, NodeFacts]) -> bool:
    """Return whether the hosts have GPUs, by the kind that they have registered or by their facts."""
    kind = spec.runtime_kind
    return bool(kind and kind.has_gpus) or any(found.gpus or found.gpu_devices for found in facts.values())


def judge_ranks(
    spec: RunSpec, facts: Mapping[str, NodeFacts], results: Sequence[Mapping[str, Any]], output: str
) -> list[Finding]:
    """Return the findings about GPUs that would be wasted, after an allreduce that all ranks have finished.

    A host gets at most one finding: for ranks that do not use NCCL, or not EFA, or for a slow GPU. Without any, a slow
    allreduce is a finding about all nodes. `results` are the ranks' reports. `output` is the launcher's, with NCCL's
    log lines.
    """
    logged = nccl_log.parse(output)
    wants_efa = _wants_efa(spec, facts)
    findings = []
    for host in spec.hosts:
        mine = [found for found in results if found.get("host") == host.name]
        if trouble := _trouble(spec, mine, logged):
            findings.append(_finding(host.name, trouble, FOR_NCCL))
        elif wants_efa and (trouble := _past_efa(mine, logged)):
            findings.append(_finding(host.name, trouble, FOR_EFA))
        elif trouble := _slow_gpu(spec, mine):
            findings.append(_finding(host.name, trouble, replace_remedy(host.name)))
    slowest = min(numbers(results, "bus_gb_s"), default=0.0)
    if not findings and len(numbers(results, "bus_gb_s")) == len(results) and slowest < spec.floors.allreduce_gb_s:
        what = (
            f"allreduce over all nodes at {slowest:.3g} GB/s; at least {spec.floors.allreduce_gb_s:.3g} GB/s expected"
        )
        findings.append(_finding("", what, FOR_BANDWIDTH))
    return findings


def _wants_efa(spec: RunSpec, facts: Mapping[str, NodeFacts]) -> bool:
    """Return whether NCCL must use EFA: there are several hosts, and the spec or their facts report EFA devices."""
    return len(spec.hosts) > 1 and (spec.efa or any(found.efa_domains for found in facts.values()))


def untested_pairs(
    spec: RunSpec, facts: Mapping[str, NodeFacts], results: Sequence[Mapping[str, Any]], output: str
) -> list[Finding]:
    """Return a warning for each pair of NCCL and its plug-in that ranks use over EFA without AWS having tested it.

    At most MAX_PAIRS are returned, [] if the hosts do not use EFA. The parameters are as in `judge_ranks`.
    """
    if not _wants_efa(spec, facts):
        return []
    logged, ours = nccl_log.parse(output), {host.name for host in spec.hosts}
    hosts: dict[NcclProcess, dict[str, None]] = {}
    for found in results:
        mine = logged.get(str(found.get("process")), NcclProcess())
        if mine.route == "EFA" and found.get("host") in ours:
            pair = NcclProcess(nccl=mine.nccl, plugin=mine.plugin, provider=mine.provider)
            hosts.setdefault(pair, {})[found["host"]] = None
    return [
        Finding(
            node="",
            check=CHECK,
            what=f"{pair.pair}, {UNTESTED}",
            remedy=FOR_PAIR,
            detail=f"on {_some(tuple(names))}" if len(hosts) > 1 else "",
        )
        for pair, names in hosts.items()
        if not pair.is_tested
    ][:MAX_PAIRS]


def _some(names: Sequence[str], shown: int = 4) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def hanging(spec: RunSpec, status: int, output: str, timeout_s: float) -> list[Finding]:
    """Return one finding about an allreduce that started on all ranks but did not finish; [] if NCCL logged nothing.

    It names NCCL, its plug-in and its network, and warns of a pair that AWS does not list as tested. `status` is the
    launcher's, TIMED_OUT if it was terminated after at least `timeout_s`. A single host needs no network.
    """
    logged = nccl_log.parse(output).values()
    first = max(logged, key=lambda each: (each.is_suspect, bool(each.plugin), bool(each.nccl)), default=NcclProcess())
    if not (first.nccl or first.plugin):
        return []
    ended = f"no result within {timeout_s:g} s" if status == TIMED_OUT else f"no result before exit status {status}"
    alone = len(spec.hosts) == 1
    what = f"{ended} by {first.pair}" + (f" over {first.route}" if first.route and not alone else "")
    if alone or not first.is_suspect:
        return [Finding(node="", check=CHECK, what=what, remedy=FOR_HANG)]
    return [Finding(node="", check=CHECK, what=f"{what}, {UNTESTED}", remedy=FOR_PAIR)]


def _finding(node: str, what: str, remedy: str) -> Finding:
    return Finding(node=node, check=CHECK, what=what, remedy=remedy, degraded=True)


def _trouble(spec: RunSpec, mine: Iterable[Mapping[str, Any]], logged: Mapping[str, NcclProcess]) -> str:
    """Return why NCCL does not compute the sums of one host's ranks, or "" if it does.

    The allreduce may run on the CPU, or NCCL may connect too few ranks. `mine` are the reports of the host's ranks,
    `logged` is the result of `nccl_log.parse`.
    """
    for found in mine:
        if found.get("device") != "GPU":
            return "the allreduce runs on the CPU, not with NCCL"
        ranks = logged.get(str(found.get("process")), NcclProcess()).ranks
        if spec.ranks > 1 and ranks != spec.ranks:
            connected = f"NCCL connects only {ranks}" if ranks else "NCCL connects none of them"
            return f"the allreduce has {spec.ranks} ranks, but {connected}"
    return ""


def _past_efa(mine: Iterable[Mapping[str, Any]], logged: Mapping[str, NcclProcess]) -> str:
    """Return which network NCCL uses instead of EFA for a rank of one host, or "" if all its ranks use EFA.

    `mine` are the reports of the host's ranks, `logged` is the result of `nccl_log.parse`.
    """
    for found in mine:
        route = logged.get(str(found.get("process")), NcclProcess()).route
        if route != "EFA":
            return f"NCCL uses {route or 'an unknown network'} instead of the EFA devices"
    return ""


def _slow_gpu(spec: RunSpec, mine: Sequence[Mapping[str, Any]]) -> str:
    """Return why the GPU of a rank of one host is too slow for `floors` in the spec, or "" if none is.

    `mine` are the reports of the host's ranks. A rank without a result counts as slow.
    """
    measured, floor = numbers(mine, "matmul_tflops"), spec.floors.matmul_tflops
    if len(measured) < len(mine):
        return "a rank did not report the time of its matrix product"
    if measured and min(measured) < floor:
        return f"matrix product on a GPU at {min(measured):.3g} TFLOP/s; at least {floor:.3g} expected"
    return ""


def numbers(results: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    """Return the numbers that ranks reported under a name. Reports without a number are skipped."""
    return [float(found[name]) for found in results if isinstance(found.get(name), int | float)]


def summary(host: Node, results: Sequence[Mapping[str, Any]], output: str, *, alone: bool) -> str:
    """Return one host's results for its cell of the table, such as "EFA, 310 GB/s, 640 TFLOP/s a GPU, ".

    Return "" without results. `alone` means that it is the only host, so its ranks need no network. NCCL still logs the
    network that it would use.
    """
    mine = [found for found in results if found.get("host") == host.name]
    logged = {} if alone else nccl_log.parse(output)
    routes = dict.fromkeys(logged.get(str(found.get("process")), NcclProcess()).route for found in mine)
    words = [route for route in routes if route]
    if rates := numbers(mine, "bus_gb_s"):
        words.append(f"{min(rates):.3g} GB/s")
    if products := numbers(mine, "matmul_tflops"):
        words.append(f"{min(products):.3g} TFLOP/s a GPU")
    return "".join(f"{word}, " for word in words)
