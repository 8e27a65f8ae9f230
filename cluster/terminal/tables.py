"""Tables and JSON for what the tasks found. The rows are pure; rich is imported to print them."""

from __future__ import annotations

import dataclasses
import datetime
import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster import answers
from cluster.aws import guard
from cluster.aws.guard import Bound
from cluster.aws.inventory import Inventory
from cluster.aws.pricing import Prices, shown, total_per_hour
from cluster.runs.display import duration
from cluster.terminal import wrap


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Hold a table before it is printed."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    footer: tuple[str, ...] = ()
    expendable: tuple[str, ...] = ()
    """Columns that a narrow terminal may do without, in the order in which they go."""


def status_table(inventory: Inventory, prices: Mapping[str, float | None], now: datetime.datetime) -> Table:
    """Build the table of a cluster's nodes."""
    rows = tuple(
        (
            i.role,
            i.id,
            f"{i.type} (spot)" if i.spot else i.type,
            i.state if i.lifecycle == "InService" else f"{i.state} ({i.lifecycle})",
            i.private_ip,
            i.public_ip or "-",
            i.zone,
            duration((now - i.launched).total_seconds()),
            _at_most(prices.get(i.type), spot=i.spot),
        )
        for i in inventory.instances
    )
    total = total_per_hour([i.type for i in inventory.instances], prices)
    workers = len(inventory.workers)
    on_spot = any(i.spot for i in inventory.instances)
    return Table(
        title=f"stack {inventory.stack.name}: {inventory.stack.status}",
        columns=("role", "instance", "type", "state", "private", "public", "zone", "age", "price"),
        rows=rows,
        footer=(
            f"workers: {workers} of {inventory.desired_workers} wanted, {inventory.max_workers} at most",
            f"instances together: {_at_most(total, spot=on_spot)}" + _spent(inventory, prices, now),
        ),
        expendable=("zone", "type", "private"),
    )


def _at_most(usd_per_hour: float | None, *, spot: bool) -> str:
    """Write a price; a spot instance costs the on-demand price, which is what is known, at most."""
    return f"{'at most ' if spot and usd_per_hour is not None else ''}{shown(usd_per_hour)}"


def usd_so_far(inventory: Inventory, prices: Mapping[str, float | None], now: datetime.datetime) -> float | None:
    """Return what the running instances have cost since their launch, USD; None where a price is unknown.

    On-demand prices; instances that have gone, storage and the NAT gateway are not in it.
    """
    total = 0.0
    for instance in inventory.instances:
        price = prices.get(instance.type)
        if price is None:
            return None
        total += price * max(0.0, (now - instance.launched).total_seconds()) / 3600
    return total


def _spent(inventory: Inventory, prices: Mapping[str, float | None], now: datetime.datetime) -> str:
    spent = usd_so_far(inventory, prices, now)
    return "" if spent is None else f", ${spent:,.2f} since their launch"


def status_document(inventory: Inventory, prices: Mapping[str, float | None], now: datetime.datetime) -> dict[str, Any]:
    """Build the same as JSON values. Ages in seconds, prices in USD per hour, null where unknown."""
    nodes = [
        {
            **{key: value for key, value in dataclasses.asdict(i).items() if key != "launched"},
            "launched": i.launched.isoformat(),
            "age_s": round((now - i.launched).total_seconds()),
            "usd_per_hour": prices.get(i.type),
        }
        for i in inventory.instances
    ]
    return {
        "stack": dataclasses.asdict(inventory.stack),
        "desired_workers": inventory.desired_workers,
        "nodes": nodes,
        "usd_per_hour": total_per_hour([i.type for i in inventory.instances], prices),
        "usd_so_far": usd_so_far(inventory, prices, now),
    }


def runs_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """Build the table of runs, newest first, from the supervisor's `status --list`."""
    rows = []
    for run in reversed(runs):
        epoch = run.get("epoch") or {}
        accuracy = epoch.get("test_accuracy", epoch.get("validation_accuracy"))
        rows.append(
            (
                str(run["run_id"]),
                " ".join(str(word) for word in (run["state"], run.get("position")) if word),
                str(len(run.get("hosts", ()))),
                str(epoch.get("epoch", "-")),
                f"{accuracy:.2%}" if isinstance(accuracy, int | float) else "-",
                "-" if run.get("position") else duration(float(run["updated"]) - float(run["started"])),
                _shortened(str(run.get("reason") or "")),
            )
        )
    return Table(
        title="runs",
        columns=("run", "state", "nodes", "epochs", "test accuracy", "time", "reason"),
        rows=tuple(rows),
        expendable=("reason",),
    )


def record_table(record: Mapping[str, Any]) -> Table:
    """Build the table of one run's record, from the supervisor's `show`."""
    state, spec, result = record["state"], record.get("spec") or {}, record.get("result") or {}
    took, found = float(state["updated"]) - float(state["started"]), record["checkpoints"]
    command = list(spec.get("launcher") or ["python", *spec.get("command", ())])
    rows: list[tuple[str, str]] = [
        ("state", str(state["state"]) + (f": {state['reason']}" if state.get("reason") else "")),
        ("started", f"{datetime.datetime.fromtimestamp(state['started'], datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"),
        ("time", duration(took) + (f", attempt {record['attempts']}" if record["attempts"] > 1 else "")),
        ("nodes", ", ".join(f"{h['name']} ({h['address']}, {h['slots']} slots)" for h in spec.get("hosts", ()))),
        ("command", shlex.join(command)),
        *([("launched", shlex.join(launched["command"]))] if (launched := record.get("launch")) else []),
        ("payload", str(spec.get("payload", "-"))),
        *([("program", str(spec["program"]))] if spec.get("program") else []),
        ("commit", str(spec.get("git_commit") or "-")),
        ("directory", str(record["directory"])),
        *_origin_rows(record),
        ("checkpoints", ", ".join([str(len(found)), *(f"last {name}" for name in found[-1:])])),
        ("size", f"{record['files']} files, {record['bytes']:,} bytes"),
    ]
    if state.get("exit_code") is not None:
        rows.append(("exit code", str(state["exit_code"])))
    rows += [(key.replace("_", " "), _plain(key, value)) for key, value in result.items() if _is_plain(value)]
    lines = tuple(f"  {line}" for line in (state.get("last_lines") or ())[-5:])
    return Table(title=f"run {record['run_id']}", columns=("", ""), rows=tuple(rows), footer=lines)


def _origin_rows(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Say where a run came from and what it cost, as far as its record knows."""
    origin, course = record.get("origin") or {}, record.get("course") or {}
    rows = []
    if origin.get("diff_bytes"):
        rows.append(("changed since", f"{origin['diff_bytes']:,} bytes in source.diff"))
    if origin.get("template_sha256"):
        rows.append(("template", str(origin["template_sha256"])[:16]))
    if record.get("usd") is not None:
        rows.append(("cost", f"about ${record['usd']:.2f} for its instances"))
    if course.get("archive"):
        trouble = course.get("trouble")
        rows.append(("copy", course["archive"] + (f" (not whole: {trouble})" if trouble else "")))
    return rows


def _shortened(text: str, length: int = 60) -> str:
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= length else line[: length - 3] + "..."


def result_table(directory: Path) -> Table:
    """Build the table of a fetched run's result.json: its plain values, in the order written."""
    path = directory / "result.json"
    try:
        result = answers.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        result = None
    if not isinstance(result, dict):
        return Table(title=f"no result of {directory.name}", columns=("", ""), rows=_state_rows(directory))
    rows = [(key.replace("_", " "), _plain(key, value)) for key, value in result.items() if _is_plain(value)]
    return Table(title=f"result of {directory.name}", columns=("", ""), rows=tuple(rows))


def _state_rows(directory: Path) -> tuple[tuple[str, str], ...]:
    """Tell how a run without a result stood when it was fetched."""
    try:
        state = answers.parse((directory / "state.json").read_text(encoding="utf-8"))
        return tuple((key, str(state[key])) for key in ("state", "reason") if state[key])
    except (OSError, ValueError, KeyError, TypeError):
        return (("state", "unknown"),)


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return len(value) <= 16 and all(isinstance(item, str | int | float) for item in value)
    return isinstance(value, str | int | float)


def _plain(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "finished" and not answers.moment(value) and isinstance(value, int | float):
        return f"{datetime.datetime.fromtimestamp(value, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, int):
        return f"{value:,}" if key != "seed" else str(value)
    if isinstance(value, float):
        return f"{value:.2%}" if "accuracy" in key else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, list):
        return ", ".join(_plain(key, item) for item in value)
    return str(value)


def fitted(table: Table, columns: int) -> Table:
    """Leave out expendable columns until the table, as plain lines, fits into so many columns of a terminal."""
    for name in table.expendable:
        if sum(_widths(table)) + 2 * (len(table.columns) - 1) <= columns:
            break
        kept = [n for n, column in enumerate(table.columns) if column != name]
        table = dataclasses.replace(
            table,
            columns=tuple(table.columns[n] for n in kept),
            rows=tuple(tuple(row[n] for n in kept) for row in table.rows),
        )
    return table


def _widths(table: Table) -> list[int]:
    return [max(map(len, cells)) for cells in zip(table.columns, *table.rows, strict=True)]


def plain_lines(table: Table) -> Iterable[str]:
    """Write a table as aligned text, for a pipe or a narrow terminal: no box, no colour, nothing cut off."""
    rows = [table.columns, *table.rows] if any(table.columns) else list(table.rows)
    widths = _widths(table)
    yield table.title
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield from table.footer


def print_status(
    found: Inventory, prices: Prices, *, wait_s: float, as_json: bool = False, bound: tuple[Bound, ...] | str = ()
) -> None:
    """Print a cluster's nodes, with the prices that are known within `wait_s` seconds, and what bounds the workers."""
    known = prices.per_hour([i.type for i in found.instances], wait_s)
    now = datetime.datetime.now(datetime.UTC)
    if as_json:
        known_bounds = None if isinstance(bound, str) else [each.to_document(now) for each in bound]
        print(json.dumps({**status_document(found, known, now), "bounds": known_bounds}, indent=1))
    else:
        table = status_table(found, known, now)
        print_table(dataclasses.replace(table, footer=(*table.footer, *guard.lines(bound, now))))


def _printable(table: Table) -> Table:
    """Return a table without control characters: much of what it holds comes from the nodes."""
    return dataclasses.replace(
        table,
        title=wrap.printable(table.title),
        rows=tuple(tuple(wrap.printable(cell) for cell in row) for row in table.rows),
        footer=tuple(wrap.printable(line) for line in table.footer),
    )


def print_table(table: Table, tell: Callable[[str], None] | None = None) -> None:
    """Print a table: in a box on a terminal that is wide enough, as plain lines elsewhere, and to `tell` if given."""
    table = _printable(table)
    if tell:
        for line in plain_lines(table):
            tell(line)
        return
    terminal = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    boxed = sum(_widths(table)) + 3 * len(table.columns) + 1
    # A table without headings is a list of facts, whose long values may well be folded.
    if not terminal or (boxed > terminal and any(table.columns)):
        for line in plain_lines(fitted(table, terminal) if terminal else table):
            print(wrap.fold(line, terminal) if terminal else line)
        return
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console()
    shown_table = RichTable(title=Text(table.title), title_justify="left", show_header=any(table.columns))
    for column in table.columns:
        shown_table.add_column(column, overflow="fold")
    for row in table.rows:
        shown_table.add_row(*(Text(cell) for cell in row))
    console.print(shown_table)
    for line in table.footer:
        print(wrap.fold(line, terminal))
