"""Horovod's own launcher, without the seconds it spends on a question that the runtime has answered already.

`horovodrun --gloo` first asks whether Gloo was built, and for the answer imports TensorFlow in a process of its own:
six seconds of one core, before the first rank starts. A runtime here is built with Gloo and proven by an allreduce.

    python -m payload.horovodrun -np 2 -H a:1,b:1 --gloo COMMAND
"""

from __future__ import annotations


def main() -> None:
    """Run `horovodrun` with the arguments of this process."""
    from horovod.runner import launch

    launch.gloo_built = lambda verbose=False: True
    launch.run_commandline()


if __name__ == "__main__":  # the launcher spawns processes that import this module again
    main()
