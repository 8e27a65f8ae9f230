"""The named clusters: each is valid, matches the request, keeps every invariant, and has no inspector findings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from stacks.config import ClusterConfig
from stacks.cross_key_checks import check
from tests.stacks.clusters import snapshots
from tests.stacks.clusters.eight import AL2023, CLUSTERS, Cluster
from tests.stacks.clusters.invariants import broken
from tests.stacks.clusters.policies import EVERYWHERE, listed
from tests.stacks.clusters.synthesis import NAG, PREFLIGHT, PROJECT, Inspected
from tests.stacks.clusters.template import Template


@pytest.fixture(params=list(CLUSTERS))
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def cluster(name: str) -> Cluster:
    return CLUSTERS[name]


@pytest.fixture
def found(name: str, inspected: Callable[[str], Inspected]) -> Inspected:
    return inspected(name)


@pytest.fixture
def template(found: Inspected) -> Template:
    return found.template


def test_cluster_is_valid(cluster: Cluster) -> None:
    assert list(check(cluster.config())) == []


def test_command_line_gives_the_same_cluster(cluster: Cluster) -> None:
    assert cluster.words[::2] == ["-c"] * len(cluster.settings)
    given = dict(word.split("=", 1) for word in cluster.words[1::2])
    assert ClusterConfig.from_context(given) == cluster.config()


@pytest.mark.parametrize("shown", snapshots.SHOWN)
def test_template_matches_committed_template(shown: str, inspected: Callable[[str], Inspected]) -> None:
    place = snapshots.path(shown)
    assert place.read_text(encoding="utf-8") == snapshots.text(inspected(shown).template.document), (
        f"{place.name} is not what the stacks make now; read the difference, and if it is meant: `make snapshots`"
    )


def test_cluster_satisfies_every_invariant(cluster: Cluster, template: Template) -> None:
    assert broken(template, cluster.config()) == []


def test_cdk_nag_has_only_acknowledged_findings(found: Inspected) -> None:
    assert found.findings[NAG] == []


def test_template_satisfies_rules_of_aws(found: Inspected) -> None:
    assert found.findings[PREFLIGHT] == []


def test_cfn_lint_finds_nothing(cluster: Cluster, template: Template) -> None:
    from cfnlint.api import ManualArgs, lint

    matches = lint(template.text(), config=ManualArgs(regions=list(cluster.regions)))
    assert [str(match) for match in matches] == []


def test_workers_match_the_configuration(cluster: Cluster, template: Template) -> None:
    data, config = template.template_of("WorkerGroup"), cluster.config()
    assert data["InstanceType"] == config.worker_instance_type
    assert template.document["Parameters"][data["ImageId"]["Ref"]]["Default"] == cluster.image
    assert template.resources["WorkerGroup"]["Properties"]["DesiredCapacity"] == str(config.workers)
    assert len(data["NetworkInterfaces"]) == cluster.interfaces
    assert ("Placement" in data) == cluster.placed
    assert f"export DEEPCDK_GPUS={str(cluster.gpus).lower()}\n" in template.user_data("WorkerGroup")


def test_no_snapshot_is_stale() -> None:
    assert set(snapshots.FOLDER.iterdir()) == {snapshots.path(name) for name in snapshots.SHOWN}


def test_graviton_master_has_image_for_its_processor(inspected: Callable[[str], Inspected]) -> None:
    template = inspected("Graviton CPU").template
    parameter = template.document["Parameters"][template.template_of("MasterGroup")["ImageId"]["Ref"]]
    assert parameter["Default"] == AL2023 + "arm64"


def test_documented_p3_cluster_matches_predefined_cluster() -> None:
    (block,) = re.findall(r"```json\n(\{.*?)```", (PROJECT / "docs" / "compute.md").read_text("utf-8"), flags=re.DOTALL)
    assert json.loads(block) == CLUSTERS["16 x p3.16xlarge"].values


def test_every_action_allowed_on_all_resources_is_needed_by_a_cluster(
    inspected: Callable[[str], Inspected],
) -> None:
    statements = [each for name in CLUSTERS for each in inspected(name).template.statements()]
    unbounded = [each for each in statements if "*" in listed(each.get("Resource", []))]
    assert {action for each in unbounded for action in listed(each["Action"])} == set(EVERYWHERE)
