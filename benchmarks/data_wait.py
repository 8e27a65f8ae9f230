"""Measure how long the ImageNet recipe waits for its images: python -m benchmarks.data_wait, on a quiet machine.

    python -m benchmarks.data_wait [--networks NAMES] [--ranks N ...] [--steps N] [--output FILE]

The recipe `imagenet-90` trains on record files of drawn JPEG, 400 x 350 and about 60 KB each, cropped to 224 x 224 as
ever, in float32 and 16 images a rank and step, with everything else as published: on one rank with all cores, and on
two with half of them each. Decoding and training share the cores. Two measurements of the same run are stated:

- profile: the marks `wait for images` of rank 0 within the profile of all steps but the first two, beside the steps
- epoch: what the run itself records, the longest wait of all ranks, the first batch of the epoch included

Wanted: the model never waits, which is taken as 1% of the profile. A network so small that it must wait, as
`--networks lenet`, shows that the measurement can fail.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import replace_file
from agent.hardware.machine import this_machine
from benchmarks.input_pipeline import picture, write

ROOT: Final = Path(__file__).parents[1]
BATCH: Final = 16
UNTRACED: Final = 2
"""Steps before the profile: graphs are built in the first."""
AIM: Final = 0.01
CPU: Final = ("--precision", "float32", "--loss-scale", "0", "--compression", "none")
"""What the recipe has for GPUs, left out."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waits:
    """The result of one run."""

    network: str
    ranks: int
    steps: int
    """Steps in the profile."""
    step_ms: float
    """Mean of those steps, the waits before them included."""
    wait_ms: float
    """Mean wait before them."""
    epoch_part: float
    """Longest wait of all ranks over the whole epoch, 0 to 1 of the training time."""
    images_per_s: float

    @property
    def part(self) -> float:
        """Return the part of the profile that was waited."""
        return self.wait_ms / self.step_ms


def run(network: str, ranks: int, steps: int, data: Path, run_dir: Path) -> Waits:
    """Train so many steps; return their waits. Raises RuntimeError with the run's last lines where it fails."""
    flags = ["--recipe", "imagenet-90", "--network", network, "--run-dir", str(run_dir), "--data-dir", str(data), *CPU]
    flags += ["--global-batch", str(BATCH * ranks), "--train-limit", str(BATCH * ranks * steps), "--epochs", "1"]
    flags += ["--warmup-epochs", "0", "--profile-steps", f"{UNTRACED + 1}-{steps}"]
    launcher = [
        sys.executable,
        "-m",
        "agent.launch.horovodrun",
        "-np",
        str(ranks),
        "-H",
        f"localhost:{ranks}",
        "--gloo",
    ]
    program = [sys.executable, "-m", "payload.train", *flags]
    done = subprocess.run(
        # The launcher takes flags that begin as its own do for its own.
        [*launcher, "sh", "-c", shlex.join(program)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    if done.returncode:
        raise RuntimeError(
            f"{network} on {ranks} ranks ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}"
        )
    result = json.loads((run_dir / "result.json").read_text())
    (profile,) = run_dir.rglob("*.xplane.pb")
    trained, waited = traced(profile.read_bytes())
    # The wait for the first of these steps is before the profile.
    return Waits(
        network=network,
        ranks=ranks,
        steps=len(trained),
        step_ms=(sum(trained) + sum(waited)) / len(trained),
        wait_ms=sum(waited) / len(waited),
        epoch_part=result["data_wait_seconds"] / result["training_seconds"],
        images_per_s=result["images_per_s"],
    )


def traced(profile: bytes) -> tuple[list[float], list[float]]:
    """Return the times of the steps and of the waits in a profile, ms."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    found: dict[str, list[float]] = {"train": [], "wait for images": []}
    for plane in xplane_pb2.XSpace.FromString(profile).planes:
        for line in plane.lines:
            for event in line.events:
                times = found.get(plane.event_metadata[event.metadata_id].name)
                if times is not None:
                    times.append(event.duration_ps / 1e9)
    return found["train"], found["wait for images"]


def table(found: Sequence[Waits]) -> str:
    """Return the runs as a table, one a line."""
    lines = [f"{'':24} {'images/s':>9} {'step, ms':>9} {'wait, ms':>9} {'profile':>8} {'epoch':>7}  wanted"]
    for one in found:
        verdict = "kept" if one.part <= AIM else "NOT kept"
        figures = f"{one.images_per_s:>9.4g} {one.step_ms:>9.5g} {one.wait_ms:>9.3g} {one.part:>8.2%}"
        lines.append(
            f"{f'{one.network}, ranks: {one.ranks}':24} {figures} {one.epoch_part:>7.2%}  {AIM:.0%}: {verdict}"
        )
    return "\n".join(lines)


def document(machine: Mapping[str, Any], found: Sequence[Waits]) -> str:
    """Return all that was measured as JSON."""
    return json.dumps({"machine": dict(machine), "runs": [dataclasses.asdict(one) for one in found]}, indent=1) + "\n"


def main(argv: Sequence[str]) -> int:
    """Print the waits; return 1 where a run waited longer than wanted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data_wait", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--networks", default="resnet50", help="names with commas between")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=12, help="at least 6")
    parser.add_argument("--output", type=Path, help="file for all that was measured")
    given = parser.parse_args(argv)
    if given.steps < 2 * UNTRACED + 2:
        parser.error(f"--steps {given.steps}: must be at least {2 * UNTRACED + 2}")
    machine, found = this_machine(), []
    print(machine, flush=True)
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        data.mkdir()
        write(data)
        from tests.payload.data.drawings import record

        (data / "validation-00000-of-00001").write_bytes(
            b"".join(record(picture(n % 4, 10_000 + n), n % 4) for n in range(8))
        )
        for network in given.networks.split(","):
            for ranks in given.ranks:
                found.append(run(network, ranks, given.steps, data, Path(name) / f"{network}-{ranks}"))
    print(table(found), flush=True)
    if given.output:
        replace_file(given.output, document(dataclasses.asdict(machine), found).encode())
    return 0 if all(one.part <= AIM for one in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
