"""Write the figures of a benchmark beside what was measured: JSON and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from agent.files.atomic_write import replace_file
from cluster.bench.measurements import Bench
from cluster.errors import DeepcdkError
from cluster.plots.bench import draw_bench
from cluster.plots.style import save

JSON_FILE: Final = "bench.json"
PICTURE: Final = "bench.png"


def write_results(directory: Path, bench: Bench) -> tuple[Path, Path]:
    """Write both files into the directory, over those of an earlier time; return them. Raises DeepcdkError."""
    document, picture = directory / JSON_FILE, directory / PICTURE
    try:
        replace_file(document, (json.dumps(bench.document(), indent=2) + "\n").encode())
    except OSError as error:
        raise DeepcdkError(f"cannot write {document} ({error.strerror})") from None
    save(draw_bench(bench), picture)
    return document, picture
