"""The figures of a benchmark as tables."""

from __future__ import annotations

from cluster.bench.measurements import Bench
from cluster.terminal.tables import Table
from payload.settings.bench import ALLREDUCE, INPUT, READ, TRAINING, WRITE


def training_table(bench: Bench) -> Table:
    """Build the table of networks by batch and nodes."""
    rows = []
    for each in bench.of_kind(TRAINING):
        efficiency = bench.efficiency(each)
        rows.append(
            (
                each.cell.program,
                str(each.cell.batch_per_rank),
                str(each.cell.nodes),
                str(each.ranks),
                f"{each.images_per_s:,.4g}" if each.images_per_s < 1000 else f"{each.images_per_s:,.0f}",
                f"{efficiency:.1%}",
                f"{each.median_s * 1e3:.4g} ms",
                f"{each.spread:.1%}",
            )
        )
    columns = ("network", "batch", "nodes", "ranks", "images/s", "efficiency", "step", "spread")
    return Table(title=f"training, benchmark {bench.run_id}", columns=columns, rows=tuple(rows), expendable=("ranks",))


def allreduce_table(bench: Bench) -> Table:
    """Build the table of allreduces by size and nodes."""
    rows = tuple(
        (
            f"{each.cell.message_bytes:,}",
            str(each.cell.nodes),
            str(each.ranks),
            f"{each.median_s * 1e6:,.0f}",
            f"{each.algorithm_bytes_per_s / 1e9:.3f}",
            f"{each.bus_bytes_per_s / 1e9:.3f}",
            f"{each.spread:.1%}",
        )
        for each in bench.of_kind(ALLREDUCE)
    )
    columns = ("bytes", "nodes", "ranks", "time us", "algbw GB/s", "busbw GB/s", "spread")
    return Table(title=f"allreduce, benchmark {bench.run_id}", columns=columns, rows=rows, expendable=("ranks",))


def input_table(bench: Bench) -> Table:
    """Build the table of the input pipeline by nodes."""
    rows = tuple(
        (
            str(each.cell.image_size),
            str(each.cell.nodes),
            str(each.ranks),
            f"{each.images_per_s:,.0f}",
            f"{each.images_per_s / each.ranks:,.0f}",
            f"{each.spread:.1%}",
        )
        for each in bench.of_kind(INPUT)
    )
    columns = ("pixels", "nodes", "ranks", "images/s", "a rank", "spread")
    return Table(title=f"input pipeline, benchmark {bench.run_id}", columns=columns, rows=rows, expendable=("ranks",))


def storage_table(bench: Bench) -> Table:
    """Build the table of files written and read by place and nodes."""
    rows = tuple(
        (
            each.cell.place,
            each.cell.kind,
            str(each.cell.nodes),
            f"{each.cell.message_bytes >> 20:,}",
            f"{each.file_bytes_per_s / 1e6:,.0f}",
            f"{each.file_bytes_per_s / each.cell.nodes / 1e6:,.0f}",
            f"{each.spread:.1%}",
        )
        for each in bench.of_kind(WRITE, READ)
    )
    columns = ("files", "", "nodes", "MiB a node", "MB/s", "a node", "spread")
    return Table(title=f"storage, benchmark {bench.run_id}", columns=columns, rows=rows)


def tables(bench: Bench) -> tuple[Table, ...]:
    """Return the tables that have a row."""
    made = (training_table(bench), allreduce_table(bench), input_table(bench), storage_table(bench))
    return tuple(table for table in made if table.rows)
