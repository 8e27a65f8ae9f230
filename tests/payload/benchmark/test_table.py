from __future__ import annotations

import dataclasses
import json

import pytest

from agent.hardware.machine import Machine
from payload.benchmark.config import Cell
from payload.benchmark.table import CellOutputError, CellResult, Figures, describe, document, table

CELL = Cell(
    network="resnet50",
    batch_size=32,
    image_size=224,
    mode="training",
    variant="tuned",
    steps=3,
    warmup_steps=2,
    intra_op_threads=0,
    inter_op_threads=1,
)
FIGURES = Figures(
    step_seconds=(4.0, 9.0, 5.0),
    first_step_seconds=20.0,
    cores_used=1.934,
    peak_memory_mib=2345.6,
    parameters=25_557_032,
    chosen="intra-op 2",
    tensorflow="2.21.0",
    keras="3.15.1",
)
SLOWER = dataclasses.replace(FIGURES, step_seconds=(8.0, 8.0, 8.1))
OFF = dataclasses.replace(CELL, variant="onednn-off")
MACHINE = Machine(processor="Some CPU", cores=2, memory_gib=16.0, load=0.5)


def test_images_per_second_are_those_of_the_median_step() -> None:
    result = CellResult(cell=CELL, figures=FIGURES)
    assert result.images_per_s == pytest.approx(32 / 5)
    assert FIGURES.spread == pytest.approx(1.0)


def test_a_table_has_a_line_a_cell() -> None:
    one = CellResult(cell=dataclasses.replace(CELL, batch_size=1), figures=SLOWER)
    assert table([one, CellResult(cell=CELL, figures=FIGURES)]).splitlines() == [
        "network   batch  pixels  images/s  step ms  spread  cores   MiB",
        "resnet50      1     224     0.125   8000.0      1%   1.93  2346",
        "resnet50     32     224       6.4   5000.0    100%   1.93  2346",
    ]


def test_a_comparison_is_a_ratio_beside_its_cell() -> None:
    lines = table([CellResult(cell=CELL, figures=FIGURES), CellResult(cell=OFF, figures=SLOWER)]).splitlines()
    assert lines[0].endswith("  MiB  oneDNN off  cores off  ratio")
    assert lines[1].split()[-3:] == ["4", "1.93", "1.60"]
    assert len(lines) == 2


def test_several_comparisons_stand_side_by_side() -> None:
    stock = dataclasses.replace(CELL, variant="stock")
    results = [(CELL, FIGURES), (OFF, SLOWER), (stock, FIGURES)]
    lines = table([CellResult(cell=cell, figures=figures) for cell, figures in results]).splitlines()
    assert lines[0].endswith("  MiB  stock  cores stock  ratio  oneDNN off  cores off  ratio")
    assert lines[1].split()[-6:] == ["6.4", "1.93", "1.00", "4", "1.93", "1.60"]
    assert describe(stock) == "resnet50, batch 32, stock"


def test_a_comparison_not_yet_measured_or_failed_is_left_open() -> None:
    done = CellResult(cell=CELL, figures=FIGURES)
    other = CellResult(cell=dataclasses.replace(CELL, batch_size=1), figures=FIGURES)
    lines = table([done, CellResult(cell=OFF, failure="killed"), other]).splitlines()
    assert lines[1].split()[-3:] == ["failed", "-", "-"]
    assert lines[2].split()[-3:] == ["-", "-", "-"]
    assert lines[3] == "resnet50, batch 32, oneDNN off: killed"


def test_a_failed_cell_is_named_with_its_reason_below_the_table() -> None:
    failed = CellResult(cell=CELL, failure="killed; most likely out of memory")
    lines = table([failed, CellResult(cell=OFF, figures=SLOWER)]).splitlines()
    assert lines[1].split() == ["resnet50", "32", "224", "failed", "-", "-", "-", "-", "4", "1.93", "-"]
    assert lines[2] == f"{describe(CELL)}: killed; most likely out of memory"


def test_a_table_of_nothing_is_its_headings() -> None:
    assert table([]).split() == ["network", "batch", "pixels", "images/s", "step", "ms", "spread", "cores", "MiB"]


def test_the_document_holds_machine_cells_figures_and_failures() -> None:
    results = [CellResult(cell=CELL, figures=FIGURES), CellResult(cell=OFF, failure="killed")]
    read = json.loads(document(MACHINE, results))
    assert read["machine"] == {"processor": "Some CPU", "cores": 2, "memory_gib": 16.0, "load": 0.5}
    assert read["cells"][0]["images_per_s"] == pytest.approx(6.4)
    assert read["cells"][0]["step_seconds"] == [4.0, 9.0, 5.0]
    assert read["cells"][1]["failure"] == "killed" and read["cells"][1]["images_per_s"] is None


def test_figures_are_the_last_line_of_the_output() -> None:
    text = "some library's greeting\n" + json.dumps(dataclasses.asdict(FIGURES)) + "\n"
    assert Figures.from_output(text) == FIGURES


@pytest.mark.parametrize("output", ["", "\n", "no json", "[1]", '{"step_seconds": [1]}', '{"step_seconds": 3}', "3"])
def test_other_output_is_refused(output: str) -> None:
    with pytest.raises(CellOutputError, match="printed no figures"):
        Figures.from_output(output)
