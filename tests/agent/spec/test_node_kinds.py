"""Kinds of nodes: the words that they register, and which hosts can share an environment."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import SpecError
from agent.spec.node_kinds import FIRST_SUPPORTED, PATTERN, NodeKind, RuntimeKind, runtime_kind
from stacks import gpus
from tests.factories import make_node, make_program_spec, make_spec


def kinds(*words: str) -> dict[str, NodeKind]:
    """Return nodes a, b, ... of these kinds."""
    return {chr(ord("a") + index): NodeKind.parse(word) for index, word in enumerate(words)}


@given(st.from_regex(re.compile(PATTERN, re.ASCII), fullmatch=True))
def test_node_kind_is_written_as_read(text: str) -> None:
    assert str(NodeKind.parse(text)) == text


def test_node_kind_has_processor_gpus_and_compute_capability() -> None:
    assert NodeKind.parse("aarch64") == NodeKind(processor="aarch64")
    assert NodeKind.parse("x86_64-sm103") == NodeKind(processor="x86_64", has_gpus=True, capability=103)
    assert NodeKind.parse("x86_64-gpu") == NodeKind(processor="x86_64", has_gpus=True)
    assert NodeKind.parse("aarch64-py3.9") == NodeKind(processor="aarch64", python="3.9")
    assert NodeKind.parse("x86_64-sm75-py3.12") == NodeKind(
        processor="x86_64", has_gpus=True, capability=75, python="3.12"
    )


@pytest.mark.parametrize(
    "text",
    ["", "i686", "x86_64-sm9", "x86_64-sm90\n", "x86_64-py2.7", "x86_64-py3.012"],
)
def test_invalid_kind_is_rejected_with_name_and_rule(text: str) -> None:
    with pytest.raises(SpecError, match=r"kind = '.*': must be x86_64 or aarch64, then -smNN"):
        NodeKind.parse(text)


def test_hosts_of_one_kind_share_an_environment_for_all_their_gpus() -> None:
    assert runtime_kind(kinds("aarch64", "aarch64")) == RuntimeKind(processor="aarch64")
    found = runtime_kind(kinds("x86_64-sm90", "x86_64-sm80", "x86_64-sm90"))
    assert found == RuntimeKind(processor="x86_64", has_gpus=True, capabilities=(80, 90))
    assert (str(found), found.operations) == ("x86_64-sm80-sm90", "gpu")
    assert str(runtime_kind(kinds("x86_64-sm90-py3.13", "x86_64-sm80-py3.13"))) == "x86_64-sm80-sm90-py3.13"
    assert RuntimeKind(processor="aarch64").operations == "cpu"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("x86_64", "aarch64", "x86_64"), "a, c: x86_64 without GPUs; b: aarch64 without GPUs"),
        (("x86_64", "x86_64-sm90"), "a: x86_64 without GPUs; b: x86_64 with GPUs"),
        (("x86_64-gpu", "x86_64"), "a: x86_64 with GPUs; b: x86_64 without GPUs"),
        (
            ("x86_64-py3.12", "x86_64-py3.11"),
            "a: x86_64 without GPUs, Python 3.12; b: x86_64 without GPUs, Python 3.11",
        ),
    ],
)
def test_hosts_of_two_kinds_are_rejected_with_their_names(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(SpecError, match=f"these are of 2 kinds: {said}; replace the nodes of one kind"):
        runtime_kind(kinds(*words))


def test_unsupported_gpus_are_rejected() -> None:
    with pytest.raises(SpecError, match=r"^a: aarch64 with GPUs: TensorFlow has no build for GPUs on aarch64"):
        runtime_kind(kinds("aarch64-sm75"))
    with pytest.raises(
        SpecError, match=r"^b: the compute capability of the GPUs is unknown\. At boot, nvidia-smi did not print"
    ):
        runtime_kind(kinds("x86_64-sm90", "x86_64-gpu"))


def test_only_recipes_are_rejected_on_gpus_without_cudnn_support() -> None:
    hosts = (make_node(1, kind="x86_64-sm70"), make_node(2, kind="x86_64-sm80"))
    with pytest.raises(SpecError, match=r"compute capability 7\.0, but recipes need 7\.5"):
        make_spec(hosts=hosts)
    assert make_program_spec(hosts=hosts).ranks == 2
    assert FIRST_SUPPORTED == gpus.FIRST_SUPPORTED
