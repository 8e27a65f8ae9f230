"""Facts about a node's facts: parsed from what programs print, and told in one line."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from payload.launch import Launch, parse_nodes
from payload.node_facts import MARK, Gpu, NodeFacts, gather, main, parse_efa, parse_gpus

# As nvidia-smi writes it with the query of this module: two GPUs that count errors, one that does not.
SMI = """\
NVIDIA A100-SXM4-40GB, 570.86.15, 40960 MiB, 0
NVIDIA A100-SXM4-40GB, 570.86.15, 40960 MiB, 2
Tesla M60, 470.1, 7680 MiB, [N/A]
"""
# As `fi_info -p efa` writes it: each device as several endpoints.
FI_INFO = """\
provider: efa
    fabric: efa
    domain: rdmap0s6-rdm
    version: 122.0
    type: FI_EP_RDM
    protocol: FI_PROTO_EFA
provider: efa
    fabric: efa
    domain: rdmap0s6-dgrm
    version: 122.0
    type: FI_EP_DGRAM
    protocol: FI_PROTO_EFA
provider: efa
    fabric: efa
    domain: rdmap0s6-rdm
"""


def test_gpus_are_parsed_with_their_driver_and_their_errors() -> None:
    gpus = parse_gpus(SMI)
    assert gpus[0] == Gpu(name="NVIDIA A100-SXM4-40GB", driver="570.86.15", memory="40960 MiB", uncorrected_errors=0)
    assert [gpu.uncorrected_errors for gpu in gpus] == [0, 2, None]
    with pytest.raises(ValueError, match="NVIDIA-SMI has failed"):
        parse_gpus("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n")


def test_efa_domains_are_counted_once_each() -> None:
    assert parse_efa(FI_INFO) == ("rdmap0s6-rdm", "rdmap0s6-dgrm")
    assert parse_efa("fi_getinfo: -61 (No data available)\n") == ()


def test_a_nodes_facts_come_back_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hosts = parse_nodes("deeplearning-worker1 127.0.0.1 i-1 1 lo us\n")
    spec = Launch(run_id="one", efs_mount="/mnt/efs", payload="0" * 16, command=("x",), hosts=hosts).to_json()
    (tmp_path / "spec.json").write_text(spec)
    assert main([str(tmp_path)]) == 0
    facts = NodeFacts.parse("login banner\n" + capsys.readouterr().out)
    assert facts.spec_sha256 == hashlib.sha256(spec.encode()).hexdigest()
    assert facts.interface == "lo"
    assert dict(facts.versions)["python"].startswith("3.")
    assert min(facts.free_bytes, facts.shared_free_bytes) > 0


def test_a_node_that_does_not_see_the_run_says_so(tmp_path: Path) -> None:
    facts = gather(tmp_path / "nowhere")
    assert (facts.spec_sha256, facts.interface) == ("", "")


@pytest.mark.parametrize("output", ["", "Welcome\n", MARK + "{}", MARK + "[]", MARK + "{", MARK + "1"])
def test_what_are_no_facts_is_refused(output: str) -> None:
    with pytest.raises(ValueError, match=r"facts|Expecting"):
        NodeFacts.parse(output)


def test_two_nodes_in_one_answer_are_refused(tmp_path: Path) -> None:
    line = MARK + json.dumps(dataclasses.asdict(gather(tmp_path)))
    with pytest.raises(ValueError, match="2 lines of facts"):
        NodeFacts.parse(f"{line}\n{line}\n")
