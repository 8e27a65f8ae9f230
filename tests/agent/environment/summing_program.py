"""Run Gloo allreduces in ranks on this machine, kill one rank, and print how each of the others exits, as JSON."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from multiprocessing.queues import SimpleQueue
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import horovod.tensorflow as hvd
import tensorflow as tf
from horovod.runner.common.util.hosts import SlotInfo, get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousServer

HOST = "127.0.0.1"
NUMBERS = 150_000
"""Numbers per tensor: enough that the sum can be interrupted in the middle."""
LEARNED = 7
"""Exit status of a rank that Horovod told about the loss of another one."""


def add_up(slot: SlotInfo, ports: SimpleQueue[int], ready: SimpleQueue[int]) -> None:
    """Run one rank."""
    places = {"RANK": slot.rank, "SIZE": slot.size, "LOCAL_RANK": slot.local_rank, "LOCAL_SIZE": slot.local_size}
    places |= {"CROSS_RANK": slot.cross_rank, "CROSS_SIZE": slot.cross_size}
    meeting = {"HOSTNAME": HOST, "GLOO_RENDEZVOUS_ADDR": HOST, "GLOO_RENDEZVOUS_PORT": ports.get()}
    gloo = {"CONTROLLER": "gloo", "CPU_OPERATIONS": "gloo", "GLOO_IFACE": "lo", "CYCLE_TIME": 1}
    os.environ.update({f"HOROVOD_{name}": str(value) for name, value in (places | meeting | gloo).items()})
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init()
    tensors = [tf.fill([NUMBERS], 1.0) for _ in range(3)]

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step() -> Any:
        return [hvd.allreduce(tensor, op=hvd.Sum, name=f"tensor{index}") for index, tensor in enumerate(tensors)]

    step()
    ready.put(slot.rank)
    try:
        while True:
            step()
    except tf.errors.OpError as error:
        print(f"rank {slot.rank}: {error}", file=sys.stderr, flush=True)
        time.sleep(2.0)  # messages that the others still send can arrive
        os._exit(LEARNED)


def main(ranks: int, killed: int) -> None:
    """Start the ranks, kill one, and print the exit statuses of the others (negative for a signal)."""
    # Fork after TensorFlow has been imported and before the server starts threads.
    context = multiprocessing.get_context("fork")
    ports: SimpleQueue[int] = context.SimpleQueue()
    ready: SimpleQueue[int] = context.SimpleQueue()
    slots = get_host_assignments(parse_hosts(f"{HOST}:{ranks}"), ranks)
    processes = [context.Process(target=add_up, args=(slot, ports, ready), daemon=True) for slot in slots]
    for process in processes:
        process.start()
    server = RendezvousServer(0)
    port = server.start()
    server.init(slots)
    for _ in processes:
        ports.put(port)
    for _ in processes:
        ready.get()
    time.sleep(0.5)
    processes[killed].kill()
    for process in processes:
        process.join()
    server.stop()
    print(json.dumps([process.exitcode for process in processes if process is not processes[killed]]))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
