"""Bring one node to what a run's ranks need beyond the runtime: enough processors, and the program's own packages.

python -m payload.equipment RUN_DIRECTORY RUNTIME_PYTHON     # the last line: the Python of the ranks
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from payload.launch import NODE_PYTHON, Launch, LaunchError, Node
from payload.layer import Layer, LayerError, LayerMaker
from payload.rank import interface_with, read_address
from payload.vault import TAKEN

DEVICES: Final = Path("/dev")


class EquipmentError(RuntimeError):
    """Report a node that cannot take its ranks."""


def script(launch: Launch, clear: Sequence[str]) -> str:
    """Return the shell line that prepares a node for a run: it ends with the path of the ranks' Python."""
    wheelhouse = f"{launch.efs_mount}/payloads/.wheelhouse"
    ensure = shlex.join([NODE_PYTHON, "-m", "payload.runtime", "ensure", "--wheelhouse", wheelhouse])
    first = f'rm -rf "$HOME/{TAKEN}" && {shlex.join(clear)}'  # what a crash left of another run
    if not (launch.needs_layer or launch.ranks_per_node):
        return f"{first} && exec {ensure}"
    equip = shlex.join([NODE_PYTHON, "-m", "payload.equipment", launch.run_directory])
    return f'{first} && runtime=$({ensure}) && exec {equip} "$runtime"'


def layer_of(launch: Launch, runtime: Path, home: Path) -> Layer | None:
    """Return the layer that a run's program needs over the runtime; None where the runtime is enough."""
    if not launch.needs_layer:
        return None
    return Layer(
        runtime=runtime,
        program=Path(launch.program_directory),
        requirements=launch.requirements,
        further=launch.further_requirements,
        root=home / ".cache" / "deepcdk" / "layers",
        wheelhouse=Path(launch.efs_mount) / "payloads" / ".wheelhouse",
    )


def check_slots(host: Node, *, gpus: int, cores: int) -> None:
    """Raise EquipmentError where a node is to take more ranks than it has GPUs or, without GPUs, cores."""
    have, what = (gpus, "GPUs") if gpus else (cores, "cores")
    if host.slots > have:
        raise EquipmentError(f"{host.slots} ranks are asked of {host.name}, which has {have} {what}")


def count_gpus(devices: Path) -> int:
    """Return the number of NVIDIA's device files."""
    return len([path for path in devices.glob("nvidia*") if re.fullmatch(r"nvidia[0-9]+", path.name)])


def this_host(launch: Launch) -> Node | None:
    """Return the host of the run that this node is, by its address; None for the master."""
    names = [name for _, name in socket.if_nameindex()]
    return next((host for host in launch.hosts if interface_with(host.address, names, read_address)), None)


def main(argv: Sequence[str]) -> int:
    """Prepare this node; return the exit status."""
    directory, runtime = map(Path, argv)
    try:
        launch = Launch.from_json((directory / "spec.json").read_text(encoding="utf-8"))
        if launch.ranks_per_node and (host := this_host(launch)) is not None:
            check_slots(host, gpus=count_gpus(DEVICES), cores=len(os.sched_getaffinity(0)))
        layer = layer_of(launch, runtime, Path.home())
        maker = LayerMaker(layer=layer, report=lambda line: print(line, file=sys.stderr, flush=True)) if layer else None
        print(maker.ensure() if maker else runtime)
    except (EquipmentError, LayerError, LaunchError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
