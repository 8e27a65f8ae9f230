"""Build the workers' runtime for GPUs on this machine, import it, and print what it contains: `make gpu-runtime`.

This needs a CUDA toolkit, as in AWS's Deep Learning images, but no GPU. It shows that the packages exist, that Horovod
compiles and links with NCCL, and that everything can be imported. It does not compute on a GPU. As on a worker,
`agent.environment.runtime` makes the runtime, for each compute capability that the toolkit supports. It takes 7 GB in
<cache>/gpu-runtime, where <cache> is $XDG_CACHE_HOME/deepcdk or ~/.cache/deepcdk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from agent.environment.horovod_build import default_cache
from agent.environment.toolchain import CudaToolkit, HorovodError, NotCoveredError, check_capabilities, find_toolkit
from stacks.gpus import CAPABILITIES, FIRST_SUPPORTED

ROOT: Final = Path(__file__).resolve().parent.parent
CONTENTS: Final = """
import importlib.metadata, json, platform
import horovod.tensorflow as hvd, keras, tensorflow as tf
build, names = tf.sysconfig.get_build_info(), ("cuda-runtime", "cudnn", "nccl")
print(json.dumps({
    "Python": platform.python_version(), "TensorFlow": tf.__version__, "Keras": keras.__version__,
    "TensorFlow was built with CUDA": build["cuda_version"], "with cuDNN": build["cudnn_version"],
    "and for": " ".join(build["cuda_compute_capabilities"]),
    **{f"nvidia-{name}-cu12": importlib.metadata.version(f"nvidia-{name}-cu12") for name in names},
    "hvd.nccl_built()": hvd.nccl_built(), "hvd.cuda_built()": hvd.cuda_built(), "hvd.mpi_built()": hvd.mpi_built(),
    "hvd.gloo_built()": hvd.gloo_built(), "GPUs that TensorFlow sees": len(tf.config.list_physical_devices("GPU")),
}))
"""
"""Runs in the runtime's own Python, and prints its contents."""


def compiled_for(toolkit: CudaToolkit, wanted: Iterable[int]) -> tuple[int, ...]:
    """Return the compute capabilities in `wanted` that a toolkit supports, ascending."""
    found = []
    for capability in sorted(set(wanted)):
        try:
            check_capabilities(toolkit, [capability])
        except NotCoveredError:
            continue
        found.append(capability)
    return tuple(found)


def size_gb(folder: Path) -> float:
    """Return the size of all files below a folder in GB."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e9


def build(root: Path, toolkit: CudaToolkit, capabilities: Sequence[int]) -> Path:
    """Build the runtime below `root` as on a worker; return its Python. Raises subprocess.CalledProcessError."""
    options = ["--operations", "gpu", "--cc", ",".join(map(str, capabilities)), "--cuda-home", str(toolkit.home)]
    command = [sys.executable, "-m", "agent.environment.runtime", "ensure", "--root", str(root), *options]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.splitlines()[-1])


def main(argv: Sequence[str]) -> int:
    """Build the runtime for GPUs, import it and print its contents; return 1 if that fails, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu_runtime", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--cuda-home", type=Path, metavar="DIR", help="default: the newest of CUDA 12 in /usr/local")
    parser.add_argument("--root", type=Path, default=default_cache(os.environ) / "gpu-runtime", metavar="DIR")
    arguments = parser.parse_args(argv)
    began = time.monotonic()
    try:
        toolkit = find_toolkit(arguments.cuda_home)
        known = [capability for capability in CAPABILITIES.values() if capability >= FIRST_SUPPORTED]
        capabilities = compiled_for(toolkit, known)
        print(f"CUDA {toolkit.version} in {toolkit.home}, compute capabilities {', '.join(map(str, capabilities))}")
        python = build(arguments.root.absolute(), toolkit, capabilities)
        output = subprocess.run([python, "-c", CONTENTS], stdout=subprocess.PIPE, text=True, check=True).stdout
    except (HorovodError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:  # the failed command has printed its error
        print(
            f"building or importing the runtime for GPUs failed with exit status {error.returncode}; fix the cause "
            "that is shown above, then repeat",
            file=sys.stderr,
        )
        return 1
    for name, value in json.loads(output.splitlines()[-1]).items():
        print(f"  {name:32} {value}")
    took = f"{time.monotonic() - began:.0f} s, {size_gb(python.parents[1]):.1f} GB"
    print(f"built and imported the runtime for GPUs in {took}: {python}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
