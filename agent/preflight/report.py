"""The report of a pre-flight: a table of all checks by node, the findings, and how to fix them. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

from agent.spec.nodes import WORKER_PREFIX

COLUMNS: Final = ("node", "ssh", "clock", "disk", "shared files", "interface", "versions", "gpus", "efa", "allreduce")
COMMON_PREFIX: Final = WORKER_PREFIX.removesuffix("worker")
PROVED: Final = "tested before"
ALLOW: Final = "or run anyway, with --allow-degraded"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem with one node, or with all nodes together if `node` is empty."""

    node: str
    check: str
    """The check's column in the table."""
    what: str
    remedy: str = ""
    detail: str = ""
    """Details from the node, for the summary and the record. They are too long for a cell of the table."""
    degraded: bool = False
    """Whether a run's results would still be correct, but waste its GPUs. --allow-degraded permits such findings."""

    @property
    def line(self) -> str:
        """Return the finding as one line, without its remedy."""
        said = f"{self.node}: {self.what}" if self.node else self.what
        return f"{said} ({self.detail})" if self.detail else said


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The result of a pre-flight: the table of cells, and the findings."""

    cells: tuple[tuple[str, ...], ...]
    """A row for each node, with cells in the order of COLUMNS."""
    findings: tuple[Finding, ...]
    """Findings that prevent the run from starting."""
    allowed: tuple[Finding, ...] = ()
    """Findings that --allow-degraded permits."""
    warnings: tuple[Finding, ...] = ()
    """Possible problems later in the run. The run starts anyway."""

    def allowing_degraded(self) -> Report:
        """Return the report with the degraded findings moved to `allowed`."""
        degraded = tuple(finding for finding in self.findings if finding.degraded)
        rest = tuple(finding for finding in self.findings if not finding.degraded)
        return dataclasses.replace(self, findings=rest, allowed=(*self.allowed, *degraded))

    @property
    def summary(self) -> str:
        """Return the result as one line: healthy nodes, or the findings with their remedies, and warnings."""
        return "; warning: ".join([self._outcome, *(f"{found.line}; do: {found.remedy}" for found in self.warnings)])

    @property
    def _outcome(self) -> str:
        if not self.findings:
            nodes = len(self.cells)
            if self.allowed:
                return f"pre-flight: degraded, but permitted by --allow-degraded: {_lines(self.allowed)}"
            return f"pre-flight: {nodes} nodes are healthy" if nodes != 1 else "pre-flight: 1 node is healthy"
        remedies = dict.fromkeys(f.remedy for f in self.findings if f.remedy)
        if all(finding.degraded for finding in self.findings):
            remedies[ALLOW] = None
        return f"pre-flight: {_lines(self.findings)}" + (f"; do: {'; '.join(remedies)}" if remedies else "")

    def to_document(self) -> dict[str, Any]:
        """Return the report as JSON values: `columns`, `rows`, `findings`, `allowed`, `warnings`, and `lines`."""
        return {
            "columns": list(COLUMNS),
            "rows": [list(row) for row in self.cells],
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "allowed": [dataclasses.asdict(finding) for finding in self.allowed],
            "warnings": [dataclasses.asdict(finding) for finding in self.warnings],
            "lines": self.lines(),
        }

    def lines(self) -> list[str]:
        """Return the table as aligned text without empty columns, followed by the summary.

        A node has no library for tables.
        """
        kept = [n for n in range(len(COLUMNS)) if any(row[n] != "-" for row in self.cells)]
        # Without the common prefix of the names, the table fits on a terminal of 80 columns.
        short = [(row[0].removeprefix(COMMON_PREFIX), *row[1:]) for row in self.cells]
        rows = [[row[n] for n in kept] for row in (COLUMNS, *short)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return [*table, self.summary]


def _lines(findings: Iterable[Finding]) -> str:
    return "; ".join(finding.line for finding in findings)


class PreflightError(RuntimeError):
    """Report nodes that failed the checks. Carries the `report`."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(report.summary)


def as_proved_before(report: Report) -> Report:
    """Return the report with the note PROVED in each row, instead of a result: the nodes passed an allreduce before."""
    return dataclasses.replace(report, cells=tuple((*row[:-1], PROVED) for row in report.cells))


def replace_remedy(node: str) -> str:
    """Return the remedy for a node that should be replaced: the command `fab replace` with the node's short name."""
    return f"`fab replace {node.removeprefix('deeplearning-')}`"
