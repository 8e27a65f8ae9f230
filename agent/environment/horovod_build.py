"""Build Horovod's source distribution into a wheel for the TensorFlow, Python and settings at hand.

The build environment adds what current versions of TensorFlow need: two more include folders of TensorFlow's own
wheel, and one forwarding header (`include` beside this module). `horovod_source` patches Horovod's source.
Wheels are cached outside the tree under a fingerprint of their inputs. Run this module with the Python that has
TensorFlow:

    python -m agent.environment.horovod_build build    # 1 to 3 minutes on two cores; the last line is the wheel's path
    python -m agent.environment.horovod_build prove    # after installing it: two ranks, an allreduce, a training step

Supported: Linux, Python 3.11 to 3.13, TensorFlow 2.15 to 2.21, on CPUs over Gloo and over Open MPI 4. The wheel finds
Open MPI's library relative to itself, in the virtual environment's `lib`, so the environment can be at any path.
For GPUs (`--operations gpu --cc 90`) Horovod is built with the NCCL of NVIDIA's package, which the wheel also finds
relative to itself. This was run on one H200 with at most two ranks.
PyTorch (`--frameworks torch`, or `tensorflow,torch` with TensorFlow) was built and run with 2.13 on CPUs, and with 2.11
for CUDA 13.0 on one H200.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.environment.horovod_build_settings import XLA_BUILDER, Settings, environment, fingerprint
from agent.environment.horovod_selftest import prove
from agent.environment.horovod_source import VERSION, download_arguments, unpack
from agent.environment.toolchain import (
    HorovodError,
    NotCoveredError,
    Toolchain,
    check_capabilities,
    cuda_major,
    detect,
    find_compiler,
    find_toolkit,
)
from agent.environment.virtual_environment import print_line, print_made
from agent.files.build_once import build_once, temporary_files_beside
from agent.hardware.machine import Platform, base_python
from agent.spec.frameworks import HOROVOD_FILE, TENSORFLOW

ERROR_LINE: Final = re.compile(r"\berror:|\bError\b|undefined reference|Killed|No space left|fatal:|not found$")
SHOWN_LINES: Final = 12


class BuildError(HorovodError):
    """Report a failed build. Carries the path of the build `log` and the log's error `lines`."""

    def __init__(self, step: str, log: Path, lines: Sequence[str]) -> None:
        self.log, self.lines = log, tuple(lines)
        errors = "\n".join(f"    {line}" for line in lines)
        super().__init__(f"{step} failed. Last errors:\n{errors}\nCorrect their cause, then repeat. Full log: {log}")


def link_nccl(home: Path, scratch: Path) -> Path:
    """Create the folder `nccl` under `scratch` with links to the NCCL in `home`; return the folder's path.

    The linker looks for libnccl.so, but NVIDIA's Python package contains only libnccl.so.2. Raises NotCoveredError if
    `home` lacks NCCL's library or header.
    """
    library = home / "lib" / "libnccl.so.2"
    if not library.exists() or not (home / "include" / "nccl.h").exists():
        raise NotCoveredError(
            f"{home} lacks include/nccl.h or lib/libnccl.so.2",
            "Reinstall NVIDIA's package of NCCL: nvidia-nccl-cu12, or nvidia-nccl-cu13 for CUDA 13.",
        )
    linked = scratch / "nccl"
    (linked / "lib").mkdir(parents=True)
    (linked / "include").symlink_to(home / "include")
    for name in ("libnccl.so", "libnccl.so.2"):
        (linked / "lib" / name).symlink_to(library)
    return linked


def packaged_nccl(search_path: Sequence[str]) -> Path:
    """Return the folder of NVIDIA's NCCL package in the first entry of `search_path` that contains it.

    GPU builds of TensorFlow and PyTorch require the package. Raises NotCoveredError if no entry contains it.
    """
    for entry in search_path:
        if (home := Path(entry) / "nvidia" / "nccl").is_dir():
            return home
    raise NotCoveredError(
        f"NCCL is not installed for {sys.executable}",
        "Install tensorflow[and-cuda] or a PyTorch for CUDA; both include NCCL.",
    )


def write_compiler(scratch: Path, search_path: str, *, cxx17: bool) -> Path:
    """Write a wrapper around the C++ compiler in `search_path` to the folder `scratch`; return the wrapper's path.

    It adds the options that Horovod 0.28.1 needs. Horovod's common.h uses std::logic_error without including
    <stdexcept>. Only some versions of GCC include it through other headers, so the wrapper always includes it first.
    Wheels that build without it are unchanged.

    With `cxx17` the wrapper appends -std=gnu++17. PyTorch's headers need C++17 since 2.1, but Horovod sets C++14
    (horovod/horovod#3996; fixed by #3998 after the last release). CMake's own -std comes earlier on the command line,
    and the last -std is the effective one.

    nvcc calls the wrapper too. When nvcc preprocesses Horovod's kernels, the wrapper keeps nvcc's own -std. The result
    (.cudafe1.cpp) already contains all headers, so the wrapper adds nothing when it is compiled.

    -g0 turns off the debug information that Horovod's build type asks for. Raises NotCoveredError without a suitable
    compiler.
    """
    wrapper = scratch / "c++"
    last = " -g0 -std=gnu++17" if cxx17 else " -g0"
    found = shlex.quote(str(find_compiler(search_path)))
    wrapper.write_text(
        "#!/bin/sh\n"
        'case " $*" in\n'
        f'  *.cudafe1.cpp*) exec {found} "$@" ;;\n'
        f'  *" -D__CUDACC__"*) exec {found} -include stdexcept "$@" ;;\n'
        "esac\n"
        f'exec {found} -include stdexcept "$@"{last}\n'
    )
    wrapper.chmod(0o755)
    return wrapper


def error_lines(log: str) -> list[str]:
    """Return at most SHOWN_LINES lines of a build's `log`: the last lines that report an error, or else its last lines.

    Blank lines are left out.
    """
    lines = [line.rstrip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if ERROR_LINE.search(line)]
    return (errors or lines)[-SHOWN_LINES:]


def wheel_name(platform: Platform) -> str:
    """Return the file name of Horovod's wheel for a platform."""
    tag = platform.python_tag
    return f"horovod-{VERSION}-{tag}-{tag}-linux_{platform.machine}.whl"


def cached_wheel(directory: Path) -> Path | None:
    """Return the path of Horovod's wheel in a folder, such as the cache folder of a fingerprint.

    Return the first by name if there are several, and None if there is none.
    """
    return next(iter(sorted(directory.glob("horovod-*.whl"))), None)


def build(
    settings: Settings,
    toolchain: Toolchain,
    *,
    cache: Path,
    base: Mapping[str, str],
    report: Callable[[str], None],
    sdist: Path | None = None,
) -> Path:
    """Return the path of Horovod's wheel for `toolchain` in `cache`. A missing wheel is fetched or built, in minutes.

    It is first looked up in the wheelhouse of `settings`. If another process is building it, this waits. `base` has the
    environment variables to start from. `report` receives a line before each step that takes time. `sdist` is the
    source distribution; None: pip downloads it. Raises HorovodError, for example BuildError, or WheelhouseError for a
    wheelhouse that cannot be read or a wheel that cannot be imported.
    """
    # The commands of a build run in other directories.
    directory = cache.absolute() / "horovod" / fingerprint(settings, toolchain)
    lock = directory.with_suffix(".lock")

    def make_wheel() -> Path:
        with temporary_files_beside(directory) as scratch:  # the objects take some 300 MiB
            built = _published(settings, toolchain, scratch, report) if settings.wheelhouse else None
            if built is None:
                report(
                    f"building Horovod {VERSION} for {built_for(toolchain)}, {toolchain.platform.python_tag}, "
                    f"{settings.operations}; this takes 1 to 3 minutes on two cores"
                )
                env = _build_environment(settings, toolchain, base=base, scratch=scratch)
                built = _build_in(scratch, env, directory.with_suffix(".log"), sdist)
            directory.mkdir(exist_ok=True)
            partial = directory / f"{built.name}.part"
            shutil.copyfile(built, partial)
            return partial.rename(directory / built.name)

    return build_once(
        lambda: cached_wheel(directory),
        make_wheel,
        lock=lock,
        on_wait=lambda: report(f"waiting for another build of Horovod ({lock})"),
    )


def built_for(toolchain: Toolchain) -> str:
    """Return as text what Horovod is built for, such as `TensorFlow 2.21.0 and PyTorch 2.13.0`."""
    versions = (("TensorFlow", toolchain.tensorflow), ("PyTorch", toolchain.torch))
    return " and ".join(f"{name} {version}" for name, version in versions if version)


def _published(settings: Settings, toolchain: Toolchain, scratch: Path, report: Callable[[str], None]) -> Path | None:
    """Fetch the wheel from the wheelhouse to `scratch`, check that it can be imported, and return its path.

    Return None if the wheelhouse lacks it. `report` receives a line in both cases. Raises WheelhouseError.
    """
    from agent.environment import horovod_wheelhouse  # Not at the top: preparing a node needs it only for a build.

    name = f"{fingerprint(settings, toolchain)}/{wheel_name(toolchain.platform)}"
    fetched = scratch / wheel_name(toolchain.platform)
    if not horovod_wheelhouse.fetch(settings.wheelhouse, name, fetched):
        report(f"{settings.wheelhouse} does not contain {name}")
        return None
    libraries = [Path(sys.prefix) / "lib", *([packaged_nccl(sys.path) / "lib"] if settings.gpu else [])]
    horovod_wheelhouse.check(fetched, settings.wheelhouse, settings.frameworks, libraries, scratch)
    report(f"using Horovod's wheel from {settings.wheelhouse}: {name}")
    return fetched


def _build_environment(
    settings: Settings, toolchain: Toolchain, *, base: Mapping[str, str], scratch: Path
) -> dict[str, str]:
    nccl = link_nccl(packaged_nccl(sys.path), scratch) if settings.gpu else None
    headers = toolchain.tensorflow_include
    lacks_header = headers is not None and not (headers / XLA_BUILDER).exists()
    compiler = write_compiler(scratch, base.get("PATH", os.defpath), cxx17=bool(toolchain.torch))
    temporary = scratch / "tmp"
    temporary.mkdir()
    return {
        **environment(
            settings, toolchain, base=base, jobs=default_jobs(), lacks_header=lacks_header, compiler=compiler, nccl=nccl
        ),
        "TMPDIR": str(temporary),  # for pip's and the compilers' own files
    }


def _build_in(scratch: Path, env: Mapping[str, str], log: Path, sdist: Path | None) -> Path:
    """Unpack and build Horovod in the folder `scratch`; return the wheel's path. If `sdist` is None, download it first.

    Writes the output of all commands to `log`. Raises HorovodError, also if the build makes no wheel.
    """
    with log.open("w") as output:

        def run(step: str, *command: str, cwd: Path = scratch) -> None:
            """Run one command of the build and append its output to the log. Raises BuildError if the command fails."""
            done = subprocess.run(command, cwd=cwd, env=env, stdout=output, stderr=subprocess.STDOUT, check=False)
            if done.returncode != 0:
                raise BuildError(step, log, error_lines(log.read_text(errors="replace")))

        if sdist is None:
            # The environment has no pip. `venv` installs Python's bundled pip, which can work on another environment.
            run("Creating an environment with pip", base_python(), "-m", "venv", str(scratch / "pip"))
            pip = [str(scratch / "pip" / "bin" / "python"), "-m", "pip", "--python", sys.executable]
            run("Downloading Horovod", *pip, *download_arguments(scratch))
        else:
            (scratch / "sdist").mkdir()
            shutil.copyfile(sdist, scratch / "sdist" / HOROVOD_FILE)
        source = unpack(scratch)
        build = ["setup.py", "bdist_wheel", "--dist-dir", str(scratch)]
        run("Building Horovod", sys.executable, *build, cwd=source)
    built = cached_wheel(scratch)
    if built is None:
        raise BuildError("Building Horovod", log, ["the build produced no wheel"])
    return built


def default_cache(environ: Mapping[str, str]) -> Path:
    """Return the folder of the build cache: $XDG_CACHE_HOME/deepcdk or ~/.cache/deepcdk.

    The variable is ignored if it is not an absolute path.
    """
    base = environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "deepcdk"


def default_jobs() -> int:
    """Return the number of concurrent compilers: one per core, but at most one per 1.5 GiB of memory."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return max(1, min(len(os.sched_getaffinity(0)), int(memory_gib / 1.5)))


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that `settings_from` reads."""
    parser.add_argument(
        "--operations", choices=("cpu", "gpu"), default="cpu", help="where Horovod computes; default: cpu"
    )
    parser.add_argument(
        "--cuda-home",
        type=Path,
        metavar="DIR",
        help="CUDA toolkit for gpu; default: the latest in /usr/local that fits the frameworks",
    )
    parser.add_argument("--cc", default="", metavar="LIST", help="CUDA compute capabilities for gpu, for example 80,90")
    parser.add_argument(
        "--frameworks", default=TENSORFLOW, metavar="LIST", help="tensorflow (default), torch, or tensorflow,torch"
    )
    parser.add_argument(
        "--horovod-wheelhouse",
        default="",
        metavar="ADDRESS",
        help="use Horovod's wheel from this directory, bucket or web server if it is there",
    )


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Return the Settings from the parsed options that `add_settings` adds.

    Raises ValueError if an option is invalid.
    """
    numbers = [number for number in arguments.cc.split(",") if number]
    if wrong := [number for number in numbers if not re.fullmatch("[1-9][0-9]{1,2}", number)]:
        raise ValueError(f"--cc {wrong[0]}: must be a compute capability without the dot, such as 90 for 9.0")
    return Settings(
        operations=arguments.operations,
        cuda_home=arguments.cuda_home,
        compute_capabilities=tuple(int(number) for number in numbers),
        frameworks=tuple(arguments.frameworks.split(",")),
        wheelhouse=arguments.horovod_wheelhouse,
    )


def main(argv: Sequence[str]) -> int:
    """Build Horovod, or run its self-test (`prove`), with the options in `argv`.

    Print the wheel's path, the result of the test, or the error. Return the exit status, 0 or 1.
    """
    parser = argparse.ArgumentParser(
        prog="python -m agent.environment.horovod_build", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "command", choices=("build", "prove"), help="build: make the wheel; prove: test the installed Horovod"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="folder of built files; default: $XDG_CACHE_HOME/deepcdk or ~/.cache/deepcdk",
    )
    parser.add_argument(
        "--sdist", type=Path, metavar="FILE", help="Horovod's source distribution; default: download it"
    )
    add_settings(parser)
    arguments = parser.parse_args(argv)

    def make() -> Path:
        settings = settings_from(arguments)
        major = cuda_major(settings.frameworks)
        cuda = find_toolkit(settings.cuda_home, major=major) if settings.gpu else None
        if cuda is not None:
            check_capabilities(cuda, settings.compute_capabilities)
        toolchain = detect(search_path=os.environ.get("PATH", os.defpath), cuda=cuda, frameworks=settings.frameworks)
        cache = arguments.cache or default_cache(os.environ)
        return build(settings, toolchain, cache=cache, base=os.environ, report=print_line, sdist=arguments.sdist)

    return print_made(make if arguments.command == "build" else lambda: prove(environ=os.environ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
