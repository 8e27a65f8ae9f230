"""Set up TensorFlow in one rank before its first operation: its threads, and its GPU."""

from __future__ import annotations

import tensorflow as tf

from payload.training.rank_setup import RankSetup


def set_up_tensorflow(rank_setup: RankSetup, local_rank: int) -> None:
    """Start as many threads as this rank has cores, and take one GPU.

    TensorFlow would start as many threads as the host has, per rank. It computes on the first GPU that it sees, and
    takes memory on all of them: a rank that is shown several, since it was not placed or the user has set
    CUDA_VISIBLE_DEVICES, takes the one with its number on this host.
    """
    tf.config.threading.set_intra_op_parallelism_threads(rank_setup.tuning.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(rank_setup.tuning.inter_op_threads)
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) > 1:
        tf.config.set_visible_devices(gpus[local_rank % len(gpus)], "GPU")
