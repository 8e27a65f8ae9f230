"""Horovod's source distribution: download, verify, unpack and patch it. Standard library only.

The patch of its CMake files leaves out what a build does not use. Gloo is compiled once instead of twice.
xla_mpi_ops.cc is compiled only for GPUs, because without them it includes XLA's headers but defines nothing. Without
GPUs, the 30 files of horovod/common are compiled in three units (CMake's unity build), because they include the same
headers. mpi_ops.cc comes first, because it takes long.

The patch of its code makes Horovod stop at a lost connection over Gloo. Unpatched, Horovod's background thread reports
the failed allreduce to the framework and continues. It negotiates the next collective with the other ranks, by an
allreduce of 8 bytes over the same context, with the same tag. A rank whose neighbor has not yet noticed the loss then
receives that neighbor's share of the tensor instead of 8 bytes, and Gloo aborts the process in one of its own threads
(`enforce fail at gloo/transport/tcp/pair.cc:510, op.preamble.length <= op.nbytes`, seen with 8 ranks after one was
killed). Such a SIGABRT looks like the first failure of the run, so the supervisor would blame a healthy host. Programs
that define process sets are still aborted: to remove the sets, Horovod negotiates once more among all ranks.
"""

from __future__ import annotations

import dataclasses
import hashlib
import tarfile
from pathlib import Path
from typing import Final

from agent.environment.toolchain import HorovodError
from agent.spec.frameworks import HOROVOD_FILE, HOROVOD_SHA256, HOROVOD_VERSION

VERSION: Final = HOROVOD_VERSION
FILE: Final = "horovod/common/operations.cc"
CMAKE: Final = "CMakeLists.txt"
TENSORFLOW_CMAKE: Final = "horovod/tensorflow/CMakeLists.txt"
_XLA: Final = 'list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")\n'
_LIBRARY: Final = "add_library(${TF_TARGET_LIB} SHARED "
_UNITY: Final = """\
if(NOT HAVE_CUDA)
    set_target_properties(${TF_TARGET_LIB} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
    set_source_files_properties(${TF_SOURCES} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endif()
"""


@dataclasses.dataclass(frozen=True)
class Edit:
    """A passage of a file and its replacement."""

    old: str
    new: str
    file: str = FILE


EDITS: Final = (
    Edit("add_subdirectory(third_party/gloo)\n", "add_subdirectory(third_party/gloo EXCLUDE_FROM_ALL)\n", CMAKE),
    Edit(f"\n{_XLA}", f"\nif(HAVE_CUDA)\n    {_XLA}endif()\n", TENSORFLOW_CMAKE),
    Edit(
        f"{_LIBRARY}${{SOURCES}} ${{TF_SOURCES}})\n",
        f"{_LIBRARY}${{TF_SOURCES}} ${{SOURCES}})\n{_UNITY}",
        TENSORFLOW_CMAKE,
    ),
    Edit(
        '#include "gloo/gloo_controller.h"\n',
        '#include "gloo/common/error.h"\n#include "gloo/gloo_controller.h"\n',
    ),
    Edit(
        """\
  Status status;
  try {
    // process_set is passed here only for the case of Response::JOIN where
""",
        """\
  Status status;
  std::exception_ptr lost_connection;
  try {
    // process_set is passed here only for the case of Response::JOIN where
""",
    ),
    Edit(
        """\
  } catch (const std::exception& ex) {
    LOG(DEBUG, horovod_global.global_controller->GetRank())
        << "ExecuteOperation Failed";
""",
        """\
#if HAVE_GLOO
  } catch (const ::gloo::IoException& ex) {
    status = Status::UnknownError(ex.what());
    lost_connection = std::current_exception();
#endif
  } catch (const std::exception& ex) {
    LOG(DEBUG, horovod_global.global_controller->GetRank())
        << "ExecuteOperation Failed";
""",
    ),
    Edit(
        """\
      e.FinishWithCallback(status);
    }
  }
}

#if HAVE_MPI
""",
        """\
      e.FinishWithCallback(status);
    }
  }
  if (lost_connection) {
    std::rethrow_exception(lost_connection);
  }
}

#if HAVE_MPI
""",
    ),
)
DIGEST: Final = hashlib.sha256(
    "\0".join(text for edit in EDITS for text in dataclasses.astuple(edit)).encode()
).hexdigest()
"""SHA-256 of the patch, an input of the wheel's fingerprint."""


def patch(source: Path) -> None:
    """Patch the unpacked release in the folder `source`. Raises HorovodError unless each passage occurs once."""
    texts = {name: (source / name).read_text() for name in {edit.file for edit in EDITS}}
    for edit in EDITS:
        count = texts[edit.file].count(edit.old)
        if count != 1:
            raise HorovodError(
                f"cannot patch {source / edit.file}: expected this passage once, found {count}; adapt EDITS in "
                f"agent/environment/horovod_source.py to Horovod {VERSION}:\n{edit.old}"
            )
        texts[edit.file] = texts[edit.file].replace(edit.old, edit.new)
    for name, text in texts.items():
        (source / name).write_text(text)


def download_arguments(scratch: Path) -> list[str]:
    """Return pip's arguments that download the source distribution to scratch/sdist and check its hash.

    Writes the requirements file that the arguments refer to.
    """
    wanted = scratch / "horovod.txt"
    wanted.write_text(f"horovod=={VERSION} --hash=sha256:{HOROVOD_SHA256}\n")
    # No isolation: the installed setuptools are pinned. The version that pip would download lacks pkg_resources.
    options = ["--no-deps", "--no-binary", "horovod", "--no-build-isolation", "--require-hashes"]
    return ["download", *options, "--requirement", str(wanted), "--dest", str(scratch / "sdist")]


def unpack(scratch: Path) -> Path:
    """Verify, unpack and patch the source distribution in scratch/sdist; return the unpacked folder.

    Raises HorovodError if the SHA-256 differs from the release's, or if the source cannot be patched.
    """
    archive = scratch / "sdist" / HOROVOD_FILE
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != HOROVOD_SHA256:
        raise HorovodError(
            f"{archive.name} has SHA-256 {found} instead of {HOROVOD_SHA256}, so it is not the file that PyPI has for "
            f"Horovod {VERSION}; download it from there again"
        )
    with tarfile.open(archive) as tar:
        # Pythons before 3.11.4 have no filters; the archive's contents are pinned by its hash.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        tar.extractall(scratch)  # noqa: S202  # see above
    source = scratch / f"horovod-{VERSION}"
    patch(source)
    return source
