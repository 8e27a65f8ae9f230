"""Threads of one rank, as variables to be set before its program starts. Pure; docs/tuning.md has the reasons.

MKL and OpenBLAS follow OMP_NUM_THREADS as long as their own variables are not set, so that these are left to the user.
"""

from __future__ import annotations

from typing import Final

OMP_THREADS: Final = "OMP_NUM_THREADS"
OMP_WAIT: Final = "KMP_BLOCKTIME"
ONEDNN: Final = "TF_ENABLE_ONEDNN_OPTS"
CALLER_THREAD: Final = "TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD"
INTRA_OP: Final = "TF_NUM_INTRAOP_THREADS"
INTER_OP: Final = "TF_NUM_INTEROP_THREADS"
"""TensorFlow reads these two where a program has set no threads by `tf.config.threading`."""


def thread_variables(threads: int, vector_bits: int) -> dict[str, str]:
    """Return the variables of a rank with so many threads within an operation, whatever it runs.

    `vector_bits`: width of the cores' vectors.
    """
    variables = {OMP_THREADS: str(threads), OMP_WAIT: "1"}
    if vector_bits >= 256:  # x86: TensorFlow leaves oneDNN off on cores without instructions made for networks
        variables[ONEDNN] = "1"
        if threads == 1:  # the pool's one thread would compute while the thread that called it waits
            variables[CALLER_THREAD] = "1"
    return variables
