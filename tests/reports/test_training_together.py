"""Public reports about ranks that do not train together: such programs are detected and get a suitable launcher.

The programs have the structure of the public ones that each test names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from agent.spec.horovod import Knobs
from agent.spec.launchers import HOROVOD, PLAIN, TORCHRUN
from cluster.errors import DeepcdkError, UsageError
from cluster.programs.environment_choice import pack
from cluster.programs.import_check import missing
from cluster.programs.keras3_lint import KerasTrapError
from cluster.programs.launcher_choice import Joining
from cluster.programs.python_environment import RUNTIME
from cluster.programs.user_program import Program
from cluster.runs.run_options import RankOptions, RunOptions
from cluster.runs.train_request import TrainRequest, ask_to_train_apart, ask_to_train_without_gpus, with_launcher
from tests.factories import make_master, make_node

NANOGPT: Final = """\
import os, torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed import init_process_group
backend = 'nccl'
exec(open('configurator.py').read())
if int(os.environ.get('RANK', -1)) != -1:
    init_process_group(backend=backend)
    torch.cuda.set_device(f"cuda:{os.environ['LOCAL_RANK']}")
"""
HYDRA: Final = "import hydra\nfrom lightning import Trainer\ndef train(cfg) -> Trainer: ...\n"
TUTORIAL: Final = """\
import os, torch
import torch.multiprocessing as mp
from torch.distributed import init_process_group
def ddp_setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    init_process_group(backend="nccl", rank=rank, world_size=world_size)
mp.spawn(ddp_setup, nprocs=torch.cuda.device_count())
"""
KERAS_GUIDE: Final = """\
import json, os
import tensorflow as tf
os.environ['TF_CONFIG'] = json.dumps({'cluster': {'worker': ["localhost:12345"]}, 'task': {'index': 0}})
strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
"""
MWMS: Final = "import tensorflow as tf\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
JAX: Final = "import jax, os\njax.distributed.initialize(process_id=int(os.getenv('PROCESS_ID')))\n"
HVD: Final = "import torch\nimport horovod.torch as hvd\nimport torch.utils.data.distributed\nhvd.init()\n"
DDP: Final = "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
SPAWN: Final = """\
import os
import torch.distributed as dist
import torch.multiprocessing as mp
def f(i, n): dist.init_process_group("gloo", rank=i, world_size=n)
mp.spawn(f, args=(2,), nprocs=2)
"""
ALONE: Final = "import torch\nmodel = torch.nn.Linear(4, 1)\n"
OPTIONAL: Final = "try:\n    import horovod.torch as hvd\n    hvd.init()\nexcept ImportError:\n    hvd = None\n"
SOCKETS: Final = "import os\nrank = int(os.environ['RANK'])\n"


def examined(root: Path, entry: str, files: dict[str, str], further: tuple[str, ...] = ()) -> Joining:
    """Write a program, and return what its sources reveal. A name without a suffix in `files` is a Python file."""
    for name, text in files.items():
        path = root / (name if "." in name else f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return Program.from_arguments(str(root), entry, further).joining


@pytest.mark.parametrize(
    ("entry", "files", "launcher", "why"),
    [
        ("train.py config/small.py", {"train": NANOGPT, "config/small": ""}, TORCHRUN, "init_process_group"),
        ("src/train.py trainer=ddp", {"src/train": HYDRA}, TORCHRUN, "src/train.py:2 uses lightning.Trainer"),
        ("-m src.train", {"src/train": HYDRA}, TORCHRUN, "lightning.Trainer"),
        ("t.py", {"t": "from accelerate import Accelerator\n"}, TORCHRUN, "accelerate.Accelerator"),
        ("t.py", {"t": "import torch\ntorch.distributed.init_process_group()\n"}, TORCHRUN, "t.py:2"),
        ("t.py", {"t": "from transformers import Trainer\n"}, TORCHRUN, "transformers.Trainer"),
        ("t.py", {"t": "from torch import distributed\n"}, TORCHRUN, "torch.distributed"),
        ("t.py", {"t": HVD}, HOROVOD, "t.py:2 uses horovod.torch"),
        ("t.py", {"t": HVD + "from pytorch_lightning import Trainer\n"}, HOROVOD, "horovod.torch"),
        ("t.py", {"t": MWMS}, PLAIN, "MultiWorkerMirroredStrategy"),
        ("t.py", {"t": "from tensorflow import distribute as d\nd.MultiWorkerMirroredStrategy()\n"}, PLAIN, "t.py:2"),
        ("t.py", {"t": JAX}, PLAIN, "t.py:2 uses jax.distributed.initialize"),
        ("t.py", {"t": "from jax import distributed\ndistributed.initialize()\n"}, PLAIN, "jax.distributed.initialize"),
        ("t.py", {"t": SOCKETS}, PLAIN, "t.py:2 uses RANK"),
        ("t.py", {"t": "import os\nos.environ['HOROVOD_RANK']\n"}, HOROVOD, "HOROVOD_RANK"),
        ("t.py", {"t": ALONE}, HOROVOD, "the default"),
        # Through imports: from the directory, relative, from a package's __init__, from src/, by name.
        ("t.py", {"t": "import lib.deep\n", "lib/__init__": DDP, "lib/deep": ""}, TORCHRUN, "lib/__init__.py:2"),
        ("-m p.t", {"p/t": "from . import u\n", "p/u": DDP}, TORCHRUN, "p/u.py"),
        ("-m p.q.t", {"p/q/t": "from ..u import f\n", "p/u": DDP}, TORCHRUN, "p/u.py"),
        ("t.py", {"t": "import own\n", "src/own/__init__": DDP}, TORCHRUN, "src/own/__init__.py"),
        ("t.py", {"t": "import importlib\nimportlib.import_module('u')\n", "u": JAX}, PLAIN, "u.py"),
        ("t.py", {"t": "import runpy\nrunpy.run_path('u.py')\n", "u": MWMS}, PLAIN, "u.py"),
        # The entry's own file decides if modules contradict it.
        ("t.py", {"t": DDP + "import other\n", "other": HVD}, TORCHRUN, "t.py:2"),
        ("t.py", {"t": JAX + "import other\n", "other": DDP}, PLAIN, "jax"),
        # Shell scripts and commands.
        ("./start.sh", {"start.sh": "#!/bin/sh\nexec python -u t.py \\\n  --x 1\n", "t": DDP}, TORCHRUN, "t.py:2"),
        ("sh start.sh", {"start.sh": "#!/bin/sh\ncd sub && python t.py\n", "sub/t": MWMS}, PLAIN, "sub/t.py"),
        ("bash -c 'python -m pkg.t --x'", {"pkg/t": HVD}, HOROVOD, "pkg/t.py"),
        ("./a.sh", {"a.sh": "#!/bin/bash\nbash b.sh\n", "b.sh": 'python "$DIR/t.py"\n', "t": DDP}, TORCHRUN, "t.py"),
        ("env A=1 python -u t.py", {"t": JAX}, PLAIN, "t.py"),
        ("python -c 'import horovod.torch'", {}, HOROVOD, "python -c"),
        ("torchrun --nnodes {num_nodes} t.py", {"t": DDP}, PLAIN, "the entry starts torchrun"),
        ("./a.sh", {"a.sh": "#!/bin/sh\naccelerate launch --num_machines 2 t.py\n", "t": DDP}, PLAIN, "accelerate"),
        *((f"sh -c '{before} torchrun --nnodes 2 t.py'", {"t": DDP}, PLAIN, "starts torchrun") for before in (
            "A=1", "exec", "time", "nohup", "env -u B A=1", "numactl -N 0 -m 0", "srun -n 1", "uv run --frozen",
            "conda run -n x", "timeout 60", "if true; then",
        )),
        # Mentioning a launcher does not start it.
        *((f"sh -c '{before}; python t.py'", {"t": DDP}, TORCHRUN, "t.py:2") for before in (
            "pip install deepspeed", "which mpirun", "command -v torchrun", "echo torchrun", "uv pip install deepspeed",
        )),
        ("./a.sh", {"a.sh": "#!/bin/sh\ncat <<EOF\ntorchrun\nEOF\npython t.py\n", "t": DDP}, TORCHRUN, "t.py:2"),
        # Through the arguments of a shell script, a module that runs another one, an inline text, a console script.
        ("./a.sh t.py", {"a.sh": '#!/bin/sh\nexec python "$@"\n', "t": DDP}, TORCHRUN, "t.py:2"),
        ("./a.sh -m p.t", {"a.sh": '#!/bin/sh\nexec python $*\n', "p/t": DDP}, TORCHRUN, "p/t.py:2"),
        ("sh a.sh t.py", {"a.sh": 'python "$1" --x\n', "t": DDP}, TORCHRUN, "t.py:2"),
        ("./a.sh --nnodes 2 t.py", {"a.sh": '#!/bin/sh\ntorchrun "$@"\n', "t": DDP}, PLAIN, "starts torchrun"),
        # Modules and scripts of the program with the name of a launcher.
        ("python -m tune --lr 1", {"tune": DDP}, TORCHRUN, "tune.py:2"),
        ("python -m composer", {"composer/__main__": DDP}, TORCHRUN, "composer/__main__.py:2"),
        ("bin.d/composer -n 2", {"bin.d/composer": f"#!/usr/bin/env python\n{DDP}"}, TORCHRUN, "bin.d/composer:3"),
        ("sh -c 'python -m accelerate.commands.launch --num_machines 2 t.py'", {"t": DDP}, PLAIN, "starts accelerate"),
        ("sh -c 'python -m accelerate launch --num_machines 2 t.py'", {"t": DDP}, PLAIN, "starts accelerate"),
        ("sh -c 'python -m accelerate env'", {}, TORCHRUN, "accelerate"),
        *((f"sh -c 'python -m {name} t.py'", {"t": DDP}, TORCHRUN, "t.py:2") for name in (
            "cProfile -o x", "pdb", "debugpy --listen 5678", "coverage run",
        )),
        ("python -c 'import t; t.main()'", {"t": DDP}, TORCHRUN, "t.py:2"),
        ("fit", {"pyproject.toml": "[project.scripts]\nfit = 'p.t:main'\n", "p/t": DDP}, TORCHRUN, "p/t.py:2"),
        ("fit", {"pyproject.toml": "[project.scripts]\nfit = 'p:main'\n", "src/p/__init__": DDP}, TORCHRUN, "src/p"),
        ("fit", {}, HOROVOD, "the program's sources were not found; if it needs another launcher, give --launcher"),
        # An import that may fail is only a hint.
        ("t.py", {"t": OPTIONAL + "from lightning import Trainer\n"}, TORCHRUN, "lightning.Trainer"),
        ("t.py", {"t": OPTIONAL}, HOROVOD, "horovod.torch"),
    ],
)  # fmt: skip
def test_launcher_is_chosen_from_sources(
    tmp_path: Path, entry: str, files: dict[str, str], launcher: str, why: str
) -> None:
    """Sources: nanoGPT, lightning-hydra-template, accelerate, tensorflow #39753, training-operator's JAX example."""
    found = examined(tmp_path, entry, files)
    chosen, reason = found.choose()
    assert (chosen, why in reason) == (launcher, True), reason


def test_sources_matching_two_launchers_are_rejected_with_both_locations(tmp_path: Path) -> None:
    found = examined(tmp_path, "t.py", {"t": HVD + DDP})
    with pytest.raises(UsageError, match=r"must be given.*t.py:2 uses horovod.torch.*t.py:6 uses torch.distributed"):
        found.choose()
    assert found.choose("--cycle-time-ms")[0] == HOROVOD


@pytest.mark.parametrize(
    ("entry", "files", "launcher", "says"),
    [
        ("main.py", {"main": ALONE}, TORCHRUN, "nothing in main.py joins the ranks"),
        ("p/adder.py", {"p/adder": "from m.trainer import T\n", "m/trainer": ALONE}, HOROVOD, "p/adder.py and"),
        ("t.py", {"t": NANOGPT}, HOROVOD, "give --launcher torchrun"),
        ("t.py", {"t": HVD}, TORCHRUN, "give --launcher horovod"),
        ("t.py", {"t": MWMS}, TORCHRUN, "give --launcher plain"),
        ("t.py", {"t": "from accelerate import Accelerator\n"}, HOROVOD, "give --launcher torchrun"),
        ("t.py", {"t": TUTORIAL}, TORCHRUN, "t.py:5 sets MASTER_ADDR"),
        ("t.py", {"t": KERAS_GUIDE}, PLAIN, "t.py:3 sets TF_CONFIG"),
        ("t.py", {"t": "from mpi4py import MPI\n"}, HOROVOD, "--controller mpi"),
        ("./a.sh", {"a.sh": "#!/bin/sh\npython t.py\n", "t": ALONE}, PLAIN, "nothing in t.py"),
        ("torchrun --standalone t.py", {"t": DDP}, PLAIN, "torchrun in the entry starts the ranks of one node only"),
        ("accelerate launch t.py", {"t": DDP}, PLAIN, "accelerate in the entry starts the ranks of one node only"),
        ("horovodrun -np 4 python t.py", {"t": HVD}, PLAIN, "the program that it starts, with --launcher horovod"),
        ("accelerate-launch t.py", {"t": DDP}, PLAIN, "accelerate-launch in the entry starts the ranks of one node"),
        ("sh -c 'python -m torch.distributed.run --nproc-per-node 2 t.py'", {"t": DDP}, PLAIN, "one node only"),
        ("fabric run --accelerator=cpu t.py", {"t": DDP}, PLAIN, "fabric in the entry starts the ranks of one node"),
        ("composer -n 2 t.py", {"t": DDP}, PLAIN, "composer in the entry starts the ranks of one node only"),
        ("tune run --nproc_per_node 2 t.py", {"t": DDP}, PLAIN, "tune in the entry starts the ranks of one node only"),
        *((f"torchrun {flags} t.py --nnodes 2 --node_rank 1", {"t": DDP}, PLAIN, says) for flags, says in (
            ("--nnodes=1 --nproc_per_node=2 --rdzv_endpoint=localhost:5972", "one node only"),
            ("--nnodes=1:1 --rdzv-backend c10d", "one node only"),
            ("--nnodes 2", "leave the launcher out, and give the program that it starts, with --launcher torch"),
            ("--nnodes=2 --node_rank=0 --master_addr=192.0.2.1", "the node_rank 0 instead of {node_rank}"),
            ("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29501", "to itself at 127.0.0.1:29501 instead"),
        )),
        *((f"accelerate launch {flags} t.py", {"t": DDP, "c.yaml": config}, PLAIN, says) for flags, config, says in (
            ("--config_file c.yaml", "num_machines: 2\nmachine_rank: 0  # of this node\n", "the machine_rank 0"),
            ("--config_file=c.yaml", "distributed_type: MULTI_GPU\nnum_machines: 1\n", "one node only"),
            ("--config_file c.yaml --machine_rank {node_rank}", "num_machines: 2\nmachine_rank: 0\n", ""),
            ("--config_file c.yaml", "num_machines: 2\nmachine_rank: 0\nrdzv_backend: c10d\n", ""),
            ("--config_file ~/.cache/on-the-nodes.yaml", "", ""),
            ("--num_machines 2", "", "one node only"),
            ("--num_machines {num_nodes} --machine_rank {node_rank} --main_process_ip {master_addr}", "", ""),
        )),
        *((f"accelerate launch {flags} --num_machines 2 --machine_rank {{node_rank}} t.py", {"t": DDP}, PLAIN, says)
          for flags, says in (
            ("--multi_gpu", "no --main_process_ip, so the nodes do not find each other"),
            ("--use_fsdp", "no --main_process_ip"),
            ("--multi_gpu --main_process_ip {master_addr}", ""),
            ("--cpu", ""),
        )),
        # Variables of other launchers.
        *(("t.py", {"t": f"import os\n{DDP}rank = {text}\n"}, TORCHRUN, says) for text, says in (
            ("int(os.environ['SLURM_PROCID'])", "t.py:4 uses SLURM_PROCID, which --launcher torchrun does not set: "
             "start --entry with `env SLURM_PROCID={rank} python`"),
            ("os.environ.get('PMI_RANK', 0)", "env PMI_RANK={rank} python"),
            ("os.environ.get('SLURM_PROCID', os.environ.get('RANK'))", ""),
            ("0\nif 'SLURM_PROCID' in os.environ:\n    rank = int(os.environ['SLURM_PROCID'])", ""),
        )),
        ("t.py", {"t": f"{JAX}os.environ['NUM_PROCESSES']\n"}, PLAIN, "t.py:2 uses PROCESS_ID, which --launcher plain "
         "does not set: start --entry with `env PROCESS_ID={rank} NUM_PROCESSES={world_size} python`"),
        ("env PROCESS_ID={rank} python t.py", {"t": JAX}, PLAIN, ""),
        ("t.py", {"t": "import os, jax\njax.distributed.initialize()\nos.environ['NUM_PROCESSES']\n"}, PLAIN, ""),
        ("t.py", {"t": f"import os\n{DDP}os.environ['PROCESS_ID'] = '3'\n"}, TORCHRUN, ""),
        ("env SLURM_PROCID={rank} python t.py", {"t": f"import os\n{DDP}os.environ['SLURM_PROCID']\n"}, TORCHRUN, ""),
        ("t.py", {"t": "import os\nrank = os.environ['OMPI_COMM_WORLD_RANK']\n"}, HOROVOD, "or give --controller mpi"),
        ("t.py", {"t": f"{HVD}import os\nrank = os.environ['OMPI_COMM_WORLD_RANK']\n"}, HOROVOD, ""),
        *((f"torchrun --nnodes 2 --node_rank {{node_rank}} {flag} t.py", {"t": DDP}, launcher, says)
          for flag, launcher, says in (
            ("--master_addr {master_addr}", TORCHRUN, "the entry starts torchrun under another torchrun"),
            ("--master_addr {master_addr} --master_port {master_port}", TORCHRUN, "under another torchrun"),
            ("--master_addr {master_addr}", PLAIN, ""),
            ("--rdzv-endpoint {master_addr}:29501", TORCHRUN, ""),
            ("--master-addr={master_addr} --master-port=29501", TORCHRUN, ""),
            ("", PLAIN, "no --master-addr, so each node connects only to itself at localhost"),
            ("--rdzv-backend c10d", PLAIN, "no --rdzv-endpoint"),
            ("--rdzv-backend c10d --master_addr {master_addr}", PLAIN, "no --rdzv-endpoint"),
        )),
        ("fabric run --num-nodes {num_nodes} --node-rank {node_rank} t.py", {"t": DDP}, PLAIN, "no --main-address"),
        ("fabric run --num-nodes {num_nodes} --node-rank {node_rank} --main-address {master_addr} t.py", {"t": DDP},
         PLAIN, ""),
        *((command, {"t": DDP}, PLAIN, says) for command, says in (
            ("sh -c 'torchrun $DISTRIBUTED_ARGS t.py'", ""),
            ("sh -c 'torchrun --nnodes 2 --node_rank $NODE_RANK $FLAGS t.py'", ""),
            ("sh -c 'PET_NNODES=2 PET_NODE_RANK=$NODE_RANK PET_MASTER_ADDR=$MASTER_ADDR torchrun t.py'", ""),
            ("deepspeed -H hosts t.py", ""),
            ("deepspeed t.py", "one node only"),
            ("sh -c 'torchrun --standalone t.py && torchrun --standalone t.py'", "one node only"),
        )),
        *(("./a.sh", {"a.sh": f"#!/bin/sh\nif [ $R = 0 ]; then torchrun {first} t.py; else torchrun {other} t.py; fi",
                      "t": DDP}, PLAIN, says) for first, other, says in (
            *((f"{flags} --node_rank 0", f"{flags} --node_rank {other}", says)
              for flags in ("--nnodes 2 --master_addr $MASTER_ADDR",)
              for other, says in (("1", ""), ("0", "gives each node the node_rank 0"))),
            ("--standalone", "--nnodes 2 --node_rank $NODE_RANK --master_addr $MASTER_ADDR", ""),
        )),
        ("torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint {master_addr}:29501 t.py", {"t": DDP}, PLAIN, ""),
        ("./a.sh", {"a.sh": "#!/bin/sh\ntorchrun --nnodes 2 --node_rank $R --master_addr $M t.py", "t": DDP},
         PLAIN, ""),
        # Addresses and a size of the local node, in a call or in the entry.
        ("t.py", {"t": DDP.replace("'gloo'", "'gloo', 'tcp://127.0.0.1:23456'")}, TORCHRUN, "connects to an addr"),
        ("t.py", {"t": DDP.replace("'gloo'", "init_method='tcp://localhost:1'")}, TORCHRUN, "node itself: other nodes"),
        ("t.py", {"t": DDP.replace("'gloo'", "'gloo', rank=0, world_size=1")}, TORCHRUN, "only one rank"),
        ("t.py", {"t": DDP.replace("'gloo'", "init_method='tcp://10.0.0.1:1', world_size=2")}, TORCHRUN, ""),
        ("t.py", {"t": DDP.replace("'gloo'", "init_method='file:///tmp/shared', rank=r")}, TORCHRUN, "itself: other"),
        ("t.py", {"t": DDP.replace("'gloo'", "init_method='file:///mnt/efs/data/shared', rank=r")}, TORCHRUN, ""),
        ("t.py --dist-url file:///dev/shm/a", {"t": DDP}, TORCHRUN, "file:///dev/shm/a in the entry"),
        # Processes that the program starts on its own node.
        *((entry, {"t": text}, launcher, says)
          for launcher in (TORCHRUN, PLAIN) for entry, text, says in (
            ("t.py", SPAWN, "t.py:5 uses torch.multiprocessing.spawn, which starts processes on its own node"),
            ("t.py", SPAWN.replace("mp.spawn", "mp.spawn.spawn"), "t.py:5 uses torch.multiprocessing.spawn.spawn, "),
            ("t.py", SPAWN.replace("mp.spawn", "mp.start_processes"), "uses torch.multiprocessing.start_processes, "),
            ("t.py", SPAWN.replace("mp.spawn(", "os.environ['MASTER_ADDR'] = '10.0.0.1'\nmp.spawn("), "t.py:6 uses"),
            ("t.py -nr {node_rank}", SPAWN, ""),
            ("t.py", SPAWN.replace("rank=i", "rank=int(os.environ['NODE_RANK']) * 2 + i"), ""),
            ("t.py", SPAWN.replace("mp.spawn(", "if 'RANK' in os.environ:\n    f(0)\nelse:\n    mp.spawn("), ""),
            ("t.py", SPAWN.replace("dist.init_process_group", "print"), ""),
            ("t.py", f"{SPAWN}dist.init_process_group()", ""),
            ("t.py", SPAWN.replace("mp.spawn", "dist.init_process_group()\nmp.spawn"), ""),
        )),
        *(("t.py", {"t": f"import os, jax\njax.distributed.initialize({words})\n"}, PLAIN, says) for words, says in (
            ("'localhost:1234', 1, 0", "t.py:2 connects to an address of the node itself"),
            ("coordinator_address='127.0.0.1:1', num_processes=2", "node itself: other nodes"),
            ("num_processes=1", "joins only one rank"),
            ("'10.0.0.1:1234', 2, 0", ""),
        )),
        *(("t.py", {"t": f"import os\n{text}\n{DDP}"}, TORCHRUN, says) for text, says in (
            ("os.environ['WORLD_SIZE'] = '1'", "t.py:2 sets WORLD_SIZE to 1: other nodes do not join"),
            ("os.environ.update(MASTER_ADDR='127.0.0.1')", "t.py:2 sets MASTER_ADDR"),
            ("os.environ.update({'RANK': '0', 'MASTER_ADDR': 'localhost'})", "t.py:2 sets MASTER_ADDR"),
            ("os.environ.setdefault('MASTER_ADDR', 'localhost')", ""),
            ("if 'RANK' not in os.environ:\n    os.environ.update(WORLD_SIZE='1', MASTER_ADDR='localhost')", ""),
        )),
        ("t.py --dist-url tcp://127.0.0.1:1234", {"t": DDP}, TORCHRUN, "tcp://127.0.0.1:1234 in the entry"),
        ("t.py --dist-url=tcp://{master_addr}:1234", {"t": DDP}, TORCHRUN, ""),
        ("t.py distributed.init_method=tcp://localhost:1", {"t": DDP}, TORCHRUN, "in the entry is an address of the"),
        ("t.py --scheduler tcp://localhost:8786", {"t": DDP}, TORCHRUN, ""),
        ("t.py --scheduler=tcp://localhost:8786", {"t": DDP}, TORCHRUN, ""),
        *(("t.py", {"t": text}, launcher, "") for text, launcher in (
            (NANOGPT, TORCHRUN), (NANOGPT, PLAIN), (MWMS, PLAIN), (HVD, HOROVOD), (SOCKETS, PLAIN),
            (JAX.replace("PROCESS_ID", "MY_ID"), PLAIN),
            ("import os\nos.environ['DEEPCDK_NODES']\n", HOROVOD),
        )),
        ("t.py --rank={rank}", {"t": ALONE}, HOROVOD, ""),
        ("sh -c 'R=$RANK exec python t.py'", {"t": ALONE}, PLAIN, ""),
        ("sleep 60", {}, PLAIN, ""),
        ("./a.sh", {"a.sh": "#!/bin/sh\n./compiled\n"}, PLAIN, ""),
    ],
)  # fmt: skip
def test_programs_with_independent_ranks_are_reported(
    tmp_path: Path, entry: str, files: dict[str, str], launcher: str, says: str
) -> None:
    """Sources: minGPT, nanoGPT, pytorch/examples mnist and ddp-tutorial-series, accelerate, keras.io's guide."""
    found = examined(tmp_path, entry, files).trouble(launcher, "auto", nodes=2)
    assert (says in found) if says else found == "", found


OWN_NODE: Final = "dist.init_process_group('gloo', init_method='tcp://127.0.0.1:29500', rank=0, world_size=1)\n"
OWN_MASTER: Final = "os.environ['MASTER_ADDR'] = 'localhost'\n"


@pytest.mark.parametrize("line", [OWN_NODE, OWN_MASTER])
@pytest.mark.parametrize(
    ("text", "is_alone"),
    [
        ("LINE", True),
        ("def setup():\n    LINE\nsetup()\n", True),
        ("class A:\n    def __init__(self):\n        LINE\n", True),
        ("@app.command()\ndef train():\n    LINE\napp()\n", True),
        ("if __name__ == '__main__':\n    LINE", True),
        ("if 'RANK' in os.environ:\n    dist.init_process_group('gloo')\nelse:\n    LINE", False),
        ("is_ddp = int(os.environ.get('RANK', -1)) != -1\nif is_ddp:\n    pass\nelse:\n    LINE", False),
        ("args.ddp, _ = os.getenv('WORLD_SIZE'), 1\nif not args.ddp:\n    LINE", False),
        ("if not dist.is_torchelastic_launched():\n    LINE", False),
        ("try:\n    dist.init_process_group('gloo')\nexcept ValueError:\n    LINE", False),
        ("try:\n    pass\nexcept:\n    LINE", False),
        ("def unused():\n    LINE\n", False),
        ("import lib\n", False),
    ],
)
def test_loopback_address_counts_only_in_code_run_by_launcher(
    tmp_path: Path, line: str, text: str, is_alone: bool
) -> None:
    """minGPT-ddp and timm: `if "RANK" in os.environ`, else a process group of one rank."""
    header = "import os\nimport torch.distributed as dist\n"
    lib = f"{header}if __name__ == '__main__':\n    {line}"
    assert bool(examined(tmp_path, "t.py", {"t": header + text.replace("LINE", line), "lib": lib}).alone) == is_alone


def test_single_rank_group_in_addition_to_another_group_is_allowed(tmp_path: Path) -> None:
    """Public DDP examples decide this with their own flag: `if args.distributed`."""
    for other in ("dist.init_process_group('nccl')", "deepspeed.init_distributed()"):
        text = f"import deepspeed, torch.distributed as dist\nif args.distributed:\n    {other}\nelse:\n    {OWN_NODE}"
        assert examined(tmp_path, "t.py", {"t": text}).alone == []


@pytest.mark.parametrize(
    ("text", "is_alone"),
    [
        ("if args.local:\n    ADDRESS\ndist.init_process_group('gloo')", False),
        ("if multi:\n    dist.init_process_group()\nelse:\n    ADDRESS\n    ALONE", False),
        (
            "def main():\n    if 'RANK' in os.environ:\n        dist.init_process_group()\n        return\n    BOTH",
            False,
        ),
        ("def main():\n    if 'RANK' in os.environ:\n        return join()\n    BOTH", False),
        ("def main():\n    with a:\n        if 'RANK' in os.environ:\n            return\n    BOTH", False),
        ("if 'RANK' in os.environ:\n    main()\n    sys.exit()\nBOTH", False),
        ("if 'RANK' in os.environ:\n    raise SystemExit(main())\nBOTH", False),
        ("def main():\n    if args.multi:\n        dist.init_process_group()\n        return\n    BOTH", False),
        ("def one():\n    BOTH\nif 'RANK' in os.environ:\n    dist.init_process_group()\nelse:\n    one()", False),
        ("def one():\n    ADDRESS\nif args.local:\n    one()\ndist.init_process_group()", False),
        ("match a:\n    case 1:\n        if 'RANK' in os.environ:\n            sys.exit()\nBOTH", False),
        ("def a():\n    if 'RANK' in os.environ:\n        return\na()\nBOTH", True),
        ("def main():\n    if 'RANK' in os.environ:\n        print()\n    BOTH", True),
        ("def setup():\n    ADDRESS\n    dist.init_process_group()\nif args.multi:\n    setup()", True),
        ("def setup():\n    ADDRESS\ndef work():\n    setup()\nmp.spawn(work)", True),
        ("def main():\n    if 'RANK' not in os.environ:\n        x = 1\n    else:\n        x = 2\n    ALONE", True),
    ],
)
def test_loopback_address_as_fallback_is_allowed(tmp_path: Path, text: str, is_alone: bool) -> None:
    """Programs with a fallback for one node, such as a flag `--local`, were not started."""
    indent = text[: text.find("BOTH")].rpartition("\n")[2] if "BOTH" in text else ""
    text = text.replace("BOTH", f"ADDRESS\n{indent}ALONE")
    text = text.replace("ADDRESS", OWN_MASTER.strip()).replace("ALONE", OWN_NODE.strip())
    header = "import os, sys\nimport torch.distributed as dist\n"
    assert bool(examined(tmp_path, "t.py", {"t": header + text}).alone) == is_alone


@pytest.mark.parametrize("name", ["PET_NNODES", "PET_RDZV_ENDPOINT"])
@pytest.mark.parametrize(
    "entry", ["torchrun t.py", "torchrun --rdzv-backend c10d --rdzv-endpoint {master_addr}:1 t.py"]
)
def test_torchrun_flags_in_variables_are_assumed_correct(tmp_path: Path, entry: str, name: str) -> None:
    """torch.distributed.run: `PET_NNODES` is the default of `--nnodes`."""
    (tmp_path / "t.py").write_text(DDP)
    program = Program.from_arguments(str(tmp_path), entry, ())
    for variable, is_alone in ((name, False), ("NNODES", True)):
        options = RunOptions(ranks=RankOptions(launcher=PLAIN), environment=((variable, "2"),))
        assert bool(TrainRequest(work=program, nodes=2, options=options, secrets={}).trouble()) == is_alone
    (tmp_path / "t.py").write_text(TUTORIAL)
    program = Program.from_arguments(str(tmp_path), entry, ())
    options = RunOptions(ranks=RankOptions(launcher=PLAIN), environment=((name, "2"),))
    assert "sets MASTER_ADDR" in TrainRequest(work=program, nodes=2, options=options, secrets={}).trouble()


TRAINER: Final = "from lightning import Trainer\nTrainer(devices=1)\n"


@pytest.mark.parametrize(
    ("entry", "files", "is_alone"),
    [
        ("t.py", {"t": TRAINER}, True),
        ("t.py", {"t": "import lightning as L\nL.Fabric(num_nodes=1)\n"}, True),
        ("t.py", {"t": "from lightning.pytorch.cli import LightningCLI\nLightningCLI()\n"}, True),
        ("t.py trainer=ddp", {"t": TRAINER, "configs/ddp.yaml": "devices: 4\nnum_nodes: 1\n"}, True),
        ("t.py trainer.num_nodes=1", {"t": TRAINER}, True),
        ("t.py --trainer.num_nodes 2", {"t": TRAINER}, False),
        ("t.py trainer.num_nodes={num_nodes}", {"t": TRAINER}, False),
        ("t.py", {"t": "import lightning as L\nL.Trainer(num_nodes=args.n)\n"}, False),
        ("t.py", {"t": TRAINER, "conf/ddp.yaml": "num_nodes: 2\n"}, False),
        ("t.py", {"t": TRAINER + "import horovod.torch\n"}, False),
        ("t.py", {"t": "try:\n    from lightning import Trainer\nexcept ImportError:\n    pass\n" + DDP}, False),
        ("t.py", {"t": "from transformers import Trainer\nTrainer()\n"}, False),
        ("t.py", {"t": HYDRA, "configs/d.yaml": "_target_: lightning.pytorch.trainer.Trainer\n"}, True),
        ("t.py", {"t": HYDRA + DDP}, False),
        ("t.py", {"t": "import lightning as L\nL.Trainer(**vars(args))\n"}, False),
        ("t.py", {"t": "import pytorch_lightning as pl\npl.Trainer.from_argparse_args(args)\n"}, False),
        ("t.py", {"t": "import lightning as L\nL.Trainer(num_nodes=1 if x else 2)\n"}, False),
        ("t.py", {"t": "import lightning as L\nL.Trainer(num_nodes=1, devices=2)  # one\n"}, True),
        ("t.py", {"t": TRAINER, "c.json": '{"num_nodes": 1}'}, True),
        ("t.py", {"t": TRAINER, "c.json": '{"num_nodes": 16}'}, False),
        ("env PL_TRAINER_NUM_NODES=2 python t.py", {"t": TRAINER}, False),
        ("./a.sh", {"a.sh": "#!/bin/sh\npython t.py --num-nodes $N\n", "t": TRAINER}, False),
    ],
)  # fmt: skip
def test_lightning_trainer_requires_number_of_nodes(
    tmp_path: Path, entry: str, files: dict[str, str], is_alone: bool
) -> None:
    """lightning-hydra-template's `trainer=cpu` and Fabric's examples: each rank of several nodes trains alone."""
    found = examined(tmp_path, entry, files).trouble(TORCHRUN, "auto", nodes=2)
    assert ("nothing sets num_nodes" in found) == is_alone, found


@pytest.mark.parametrize(
    ("entry", "given", "ranks"),
    [
        ("accelerate launch --num_machines 2 --machine_rank {node_rank} t.py", RankOptions(), "1"),
        ("accelerate launch t.py", RankOptions(launcher=PLAIN), "1"),
        ("torchrun t.py", RankOptions(ranks_per_node="2"), "2"),
        ("t.py", RankOptions(launcher=PLAIN), ""),
    ],
)
def test_entry_with_its_own_launcher_is_started_once_per_node(
    tmp_path: Path, entry: str, given: RankOptions, ranks: str
) -> None:
    """With `accelerate launch` on nodes with four GPUs, four launchers started on each node."""
    (tmp_path / "t.py").write_text(DDP)
    program = Program.from_arguments(str(tmp_path), entry, ())
    assert with_launcher(program, given, Knobs(), lambda _: None).ranks_per_node == ranks


@pytest.mark.parametrize(("value", "is_alone"), [("2", False), ("1", True)])
def test_variable_sets_number_of_nodes_of_lightning(tmp_path: Path, value: str, is_alone: bool) -> None:
    """Lightning: `PL_TRAINER_NUM_NODES` is the default of `Trainer(num_nodes=...)`."""
    (tmp_path / "t.py").write_text(TRAINER)
    program = Program.from_arguments(str(tmp_path), "t.py", ())
    options = RunOptions(ranks=RankOptions(launcher=TORCHRUN), environment=(("PL_TRAINER_NUM_NODES", value),))
    assert bool(TrainRequest(work=program, nodes=2, options=options, secrets={}).trouble()) == is_alone


def test_large_file_is_not_searched_for_settings(tmp_path: Path) -> None:
    """A data set of about 100 MB as JSON next to the program was read before each run."""
    data = "0" * 1_000_000 + "\nnum_nodes: 2\n"
    assert examined(tmp_path, "t.py", {"t": TRAINER, "data.json": data}).trouble(TORCHRUN, "auto", nodes=2)


@pytest.mark.parametrize("name", ["setup.py", "setup.cfg"])
def test_commands_of_setup_files_are_followed(tmp_path: Path, name: str) -> None:
    """lightning-hydra-template: `train_command = src.train:main` in setup.py."""
    text = """setup(entry_points={"console_scripts": ["fit = p.t:main", "other=p.o:main"]})\n"""
    lines = "[options.entry_points]\nconsole_scripts =\n    other = p.o:main\n    fit = p.t:main\n"
    (tmp_path / name).write_text(text if name == "setup.py" else lines)
    assert examined(tmp_path, "fit", {"p/t": DDP}).choose()[0] == TORCHRUN


@pytest.mark.parametrize(
    ("line", "is_alone"),
    [
        ("os.environ['MASTER_ADDR'] = 'localhost'", True),
        ("address = '127.0.0.1'\nos.environ['MASTER_ADDR'] = address", True),
        ("if 'MASTER_ADDR' not in os.environ:\n    os.environ['MASTER_ADDR'] = 'localhost'", False),
        ("if 'RANK' in os.environ:\n    pass\nelse:\n    os.environ['MASTER_ADDR'] = 'localhost'", False),
        ("os.environ['MASTER_ADDR'] = os.environ.get('MASTER_ADDR', '127.0.0.1')", False),
        ("os.environ['MASTER_ADDR'] = os.getenv('MASTER_ADDR') or 'localhost'", False),
        ("master = 'localhost'\nos.environ['MASTER_ADDR'] = args.master", False),
        ("os.environ.setdefault('MASTER_ADDR', 'localhost')", False),
        ("try:\n    os.environ['MASTER_ADDR']\nexcept KeyError:\n    os.environ['MASTER_ADDR'] = '::1'", False),
    ],
)
def test_only_a_constant_loopback_address_counts(tmp_path: Path, line: str, is_alone: bool) -> None:
    assert bool(examined(tmp_path, "t.py", {"t": f"import os\n{line}\n"}).alone) == is_alone


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "+".join(["a"] * 20_000),
        "if a == 0:\n    pass\n" + "".join(f"elif a == {each}:\n    pass\n" for each in range(1000)),
        "x = a" + ".b" * 5000,
        "if " + "+".join(["a"] * 900) + ":\n    pass",
    ],
)
@pytest.mark.filterwarnings("error")
def test_very_long_statements_and_bad_escapes_are_handled(tmp_path: Path, text: str) -> None:
    text = f"pattern = '\\d'\n{text}\nimport lacking\n"
    found = examined(tmp_path, "t.py", {"t": text})
    assert found.choose()[0] == HOROVOD
    program = Program.from_arguments(str(tmp_path), "t.py", ())
    assert not program.wanted(horovod=True).uses_torch
    missing(tmp_path, [tmp_path / "t.py"], [], RUNTIME, lambda: "3.12", horovod=True)


def test_placeholders_after_double_dash_give_no_rank(tmp_path: Path) -> None:
    assert examined(tmp_path, "t.py", {"t": ALONE}, ("--rank={rank}",)).trouble(PLAIN, "auto", nodes=2)


def test_loopback_address_is_allowed_on_one_node(tmp_path: Path) -> None:
    assert examined(tmp_path, "t.py", {"t": TUTORIAL}).trouble(TORCHRUN, "auto", nodes=1) == ""
    assert examined(tmp_path, "t.py", {"t": SPAWN}).trouble(TORCHRUN, "auto", nodes=1) == ""


def test_independent_ranks_need_a_flag_without_terminal() -> None:
    printed: list[str] = []
    with pytest.raises(DeepcdkError, match=r"nothing in t\.py joins") as refused:
        ask_to_train_apart("nothing in t.py joins", RankOptions(), yes=False, report=printed.append)
    assert "--together=no" in refused.value.remedy
    assert printed == []
    for ranks, yes in ((RankOptions(), True), (RankOptions(together="require"), False)):
        ask_to_train_apart("nothing in t.py joins", ranks, yes=yes, report=printed.append)
    assert len(printed) == 2


def test_gpu_program_without_gpus_starts_with_a_warning() -> None:
    """With --yes, the reason was not printed, and the program failed on the nodes."""
    printed: list[str] = []
    with pytest.raises(DeepcdkError, match=r"t\.py:3 uses torch\.cuda\.set_device"):
        ask_to_train_without_gpus("t.py:3 uses torch.cuda.set_device", yes=False, report=printed.append)
    assert printed == []
    ask_to_train_without_gpus("t.py:3 uses torch.cuda.set_device", yes=True, report=printed.append)
    assert printed == ["warning: t.py:3 uses torch.cuda.set_device"]


def test_together_no_disables_the_question(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(ALONE)
    program = Program.from_arguments(str(tmp_path), "t.py", ())
    for together, asked in (("auto", True), ("require", True), ("no", False)):
        options = RunOptions(ranks=RankOptions(launcher=PLAIN, together=together))
        request = TrainRequest(work=program, nodes=2, options=options, secrets={})
        assert bool(request.trouble()) == asked


def test_chosen_launcher_is_printed_and_a_given_one_is_kept(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(DDP)
    program, printed = Program.from_arguments(str(tmp_path), "t.py", ()), list[str]()
    assert with_launcher(program, RankOptions(), Knobs(), printed.append).launcher == TORCHRUN
    assert printed == ["launcher: torchrun, because t.py:2 uses torch.distributed.init_process_group"]
    assert with_launcher(program, RankOptions(launcher=PLAIN), Knobs(), printed.append).launcher == PLAIN
    assert with_launcher(program, RankOptions(controller="mpi"), Knobs(), printed.append).launcher == HOROVOD
    assert "--controller" in printed[-1]
    assert with_launcher(program, RankOptions(), Knobs(cycle_time_ms=2.0), printed.append).launcher == HOROVOD


@pytest.mark.parametrize(
    ("source", "places"),
    [
        (TUTORIAL, ["t.py:6"]),
        (NANOGPT, ["t.py:8"]),
        ("import torch\nif torch.cuda.is_available():\n    torch.cuda.set_device(0)\n", []),
        ("import torch.distributed as d\nd.init_process_group('nccl')\n", ["t.py:2"]),
        ("import torch.distributed as d\nd.init_process_group('gloo')\n", []),
    ],
)
def test_lines_requiring_gpus_are_found(tmp_path: Path, source: str, places: list[str]) -> None:
    """ddp-tutorial-series `No NVIDIA driver` and nanoGPT `_cuda_setDevice` appeared after minutes on CPU nodes."""
    found = examined(tmp_path, "t.py", {"t": source}).needs_gpus
    assert [f"{use.file}:{use.line}" for use in found if "set_device" in use.name or "nccl" in use.name] == places


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("t.py trainer=ddp", ["configs/trainer/ddp.yaml:2 uses accelerator: gpu"]),
        ("t.py +trainer=ddp", ["configs/trainer/ddp.yaml:2 uses accelerator: gpu"]),
        ("t.py trainer=ddp trainer.accelerator=cpu", []),
        ("t.py trainer=cpu", []),
        ("t.py other=ddp", []),
        ("t.py --trainer.accelerator gpu", ["the entry uses accelerator=gpu"]),
        ("t.py trainer.accelerator=cpu trainer.accelerator=cuda", ["the entry uses accelerator=cuda"]),
        ("accelerate launch --num_machines 2 t.py", ["the entry uses accelerate without --cpu"]),
        ("accelerate launch --cpu t.py", []),
        ("accelerate launch --config_file configs/cpu.yaml t.py", []),
    ],
)
def test_entries_requiring_gpus_are_found(tmp_path: Path, entry: str, found: list[str]) -> None:
    """lightning-hydra-template's `trainer=ddp`: `No supported gpu backend found!`. accelerate: no process group."""
    files = {
        "configs/trainer/ddp.yaml": "devices: 4\naccelerator: gpu\n",
        "configs/trainer/cpu.yaml": "accelerator: cpu\n",
    }
    joining = examined(tmp_path, entry, {"t": DDP, "configs/cpu.yaml": "use_cpu: true\n", **files})
    assert [str(use) for use in joining.needs_gpus] == found


def test_accelerate_without_cpu_works_on_one_node_without_gpus(tmp_path: Path) -> None:
    """Accelerate on one CPU node: `accelerate launch t.py` trains with one process."""
    (tmp_path / "t.py").write_text("from accelerate import Accelerator\n")
    program = Program.from_arguments(str(tmp_path), "accelerate launch t.py", ())
    nodes = [make_node(index, kind="x86_64-py3.12") for index in (1, 2)]
    for count in (1, 2):
        request = TrainRequest(
            work=program, nodes=count, options=RunOptions(ranks=RankOptions(launcher=PLAIN)), secrets={}
        )
        asked = request.missing_gpus(lambda: nodes, ("c5.2xlarge",))
        assert ("give --cpu to accelerate" in asked) == (count > 1), asked


@pytest.mark.parametrize(
    ("worker_types", "is_lacking"),
    [(("c5.2xlarge",), True), (("g5.xlarge",), False), (("c5.2xlarge", "g5.xlarge"), False), (("x9.new",), False)],
)
def test_instance_type_decides_about_gpus_if_no_worker_runs(
    tmp_path: Path, worker_types: tuple[str, ...], is_lacking: bool
) -> None:
    """A cluster for GPUs without workers has only a master, which has no GPU."""
    (tmp_path / "t.py").write_text("import torch\ntorch.cuda.set_device(0)\n")
    request = TrainRequest(
        work=Program.from_arguments(str(tmp_path), "t.py", ()), nodes=2, options=RunOptions(), secrets={}
    )
    missing = request.missing_gpus(lambda: [make_master(kind="x86_64-py3.12")], worker_types)
    assert ("t.py:2 uses torch.cuda.set_device, but the nodes have no GPU" in missing) == is_lacking


@pytest.mark.parametrize(
    ("entry", "label"),
    [
        ("sh -c 'RANK=1 exec python train.py'", "train"),
        ("accelerate launch --num_machines {num_nodes} sub/tune.py", "tune"),
        ("env A={rank} python -m pkg.fit", "fit"),
        ("sh start.sh", "start-sh"),
        ("torchrun -m pkg.fit", "fit"),
        ("sh -c 'exec something'", "sh"),
        ("{rank}", "program"),
        ("train.py --rank {rank}", "train"),
    ],
)
def test_runs_are_named_after_the_program_behind_a_shell(tmp_path: Path, entry: str, label: str) -> None:
    """`$RANK` in a flag needed `sh -c`, and all such runs were named sh-xxxx."""
    for name in ("train.py", "sub/tune.py", "pkg/fit.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "start.sh").write_text("#!/bin/sh\npython train.py\n")
    assert Program.from_arguments(str(tmp_path), entry, ()).label == label


KERAS_FIT = """\
import re
import tensorflow as tf
STEPS = re.compile("steps")
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(x, y)
"""
KERAS_LOOP = KERAS_FIT.replace('model.compile("sgd", "mse")', "pass").replace(
    "model.fit(x, y)", "strategy.run(step)\nscaler.fit(x)"
)


def packed(directory: Path, source: str, *, entry: str = "train.py", nodes: int = 2, **changes: Any) -> list[str]:
    """Write a program and pack it without requirements; return what is reported."""
    (directory / "train.py").write_text(source)
    program = Program.from_arguments(str(directory), entry, (), keras=changes.pop("keras", ""))
    said: list[str] = []
    pack(program, tuple, nodes, PLAIN, project=directory, report=said.append, **changes)
    return [line for line in said if line.startswith("Keras 3")]


@pytest.mark.parametrize("entry", ["train.py", "env A=1 python -u train.py", "sh -c 'exec python train.py'"])
@pytest.mark.parametrize("step", ["fit(x, y)", "evaluate(data)", "train_on_batch(x, y)"])
def test_keras_3_fit_in_tensorflow_strategy_is_rejected(tmp_path: Path, entry: str, step: str) -> None:
    """keras.io's guide: `Attempt to convert a value (PerReplica`, after the nodes were started and paid."""
    source = KERAS_FIT.replace("fit(x, y)", step)
    with pytest.raises(KerasTrapError) as caught:
        packed(tmp_path, source, entry=entry)
    name = step.partition("(")[0]
    assert str(caught.value).startswith(
        "this program would fail:\n"
        f"  train.py:8: {name}() fails under Keras 3 in MultiWorkerMirroredStrategy on several nodes\n"
    )
    assert (caught.value.remedy or "").startswith("give --keras 2")
    assert packed(tmp_path, source, entry=entry, keras="3") == [
        f"Keras 3: train.py:8: {name}() fails under Keras 3 in MultiWorkerMirroredStrategy on several nodes"
    ]


@pytest.mark.parametrize(
    "source",
    [
        KERAS_LOOP,
        KERAS_FIT.replace("fit(x, y)", "predict(x)"),
        KERAS_FIT.replace("MultiWorkerMirroredStrategy", "MirroredStrategy"),
        'import os\nos.environ["TF_USE_LEGACY_KERAS"] = "1"\n' + KERAS_FIT,
        "import tf_keras as keras\n" + KERAS_FIT,
    ],
    ids=["own loop", "predict", "one node's strategy", "legacy Keras", "tf_keras"],
)
def test_supported_use_of_keras_3_in_strategy_is_accepted(tmp_path: Path, source: str) -> None:
    assert packed(tmp_path, source) == []


def test_fit_in_a_strategy_works_on_one_node_and_with_legacy_keras(tmp_path: Path) -> None:
    assert packed(tmp_path, KERAS_FIT, nodes=1) == []
    assert packed(tmp_path, KERAS_FIT, variables=["TF_USE_LEGACY_KERAS"]) == []
