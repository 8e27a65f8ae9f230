"""One rank of the proof that the nodes of a run can add up a tensor: exact sums, on every rank.

Started by the pre-flight as the run itself is, on the same hosts with the same slots. Each rank says when it is there
and when it has joined, so that a node that never does is named.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from agent.launch.rank import environment, local_interface_with
from agent.spec.run import RunSpec

MARK: Final = "deepcdk-allreduce "
HERE: Final = "deepcdk-here "
ELEMENTS: Final = 1_000_000
"""4 MB of float32: enough to pass by the collectives of small tensors."""


def report(mark: str, **values: object) -> None:
    """Print one line for the pre-flight to read."""
    print(mark + json.dumps(values), flush=True)


def marked(output: str, mark: str) -> list[dict[str, Any]]:
    """Return what ranks reported under a mark; Horovod's launcher puts the rank before each line."""
    found = []
    for line in output.splitlines():
        if mark in line:
            try:
                found.append(json.loads(line.partition(mark)[2]))
            except ValueError:
                continue  # Two ranks' lines in one.
    return found


def join(run_directory: str) -> str:
    """Report that this rank is there, and set its environment as the run's own ranks have it; return its host."""
    spec = RunSpec.from_json((Path(run_directory) / "spec.json").read_text(encoding="utf-8"))
    host = os.environ.get("HOROVOD_HOSTNAME", "")
    report(HERE, host=host)
    addresses = [each.address for each in spec.hosts if each.name == host]
    interface = local_interface_with(addresses[0]) if addresses else ""
    os.environ.update(environment(spec, os.environ, sys.executable, interface))
    return host


def main(argv: Sequence[str]) -> int:
    """Prove it; the argument is the run's directory."""
    host = join(argv[0])
    # TensorFlow reads its variables when it is imported, which takes seconds: the node is there by then.
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    size = hvd.size()
    # Whole numbers below 2**24 add up exactly in float32, in any order.
    values = tf.cast(tf.math.floormod(tf.range(ELEMENTS), 1000), tf.float32)
    expected = values * size + size * (size - 1) / 2
    hvd.allreduce(values, op=hvd.Sum, name="warm-up")
    began = time.monotonic()
    summed = hvd.allreduce(values + float(hvd.rank()), op=hvd.Sum, name="proof")
    error = float(tf.reduce_max(tf.abs(summed - expected)))
    report(MARK, host=host, error=error, ranks=size, seconds=round(time.monotonic() - began, 4))
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
