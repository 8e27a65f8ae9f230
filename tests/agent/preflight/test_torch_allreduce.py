"""Facts about the proof by PyTorch: ranks add up exactly, and without PyTorch they say so."""

from __future__ import annotations

from agent.preflight.allreduce import HERE, MARK, marked
from agent.preflight.torch_allreduce import WITHOUT
from tests.agent.conftest import LocalGroup

PROOF = ("-m", "agent.preflight.torch_allreduce")


def test_every_rank_proves_the_sum(group: LocalGroup, torch_python: str, meeting_port: None) -> None:
    spec = group.lay_out("")
    status, output = group.run(spec, torch_python, (*PROOF, spec.run_directory))
    assert status == 0, output
    assert [(found["error"], found["ranks"]) for found in marked(output, MARK)] == [(0.0, 2)] * 2


def test_without_pytorch_each_rank_is_there_and_says_so(group: LocalGroup) -> None:
    spec = group.lay_out("")
    status, output = group.run(spec, module=(*PROOF, spec.run_directory))
    assert (status, len(marked(output, HERE)), len(marked(output, WITHOUT))) == (0, 2, 2)
