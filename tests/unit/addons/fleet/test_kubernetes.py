"""A plan as Kubernetes Jobs: valid for three versions, and what they would run is run here."""

from __future__ import annotations

import json
from typing import Any

import kubernetes_validate
import pytest
import yaml

from packager.addons.fleet import kubernetes
from packager.addons.fleet.cluster import Cluster
from packager.addons.fleet.kubernetes import render_jobs
from packager.catalog.instances import instances
from packager.core.errors import UsageError
from packager.core.request import BuildRequest
from packager.core.warmup import PERMANENT, WarmPlan
from tests.support.cases import cases_of
from tests.support.warmup_plans import job, plan

cases = cases_of(__file__)

VERSIONS = ("1.31", "1.33", "1.37")
GPU = {"accelerator": "nvidia", "device": "A10G", "devices": 4, "memory_bytes": 2**34}
NEURON = {"accelerator": "neuron", "device": "NeuronCore-v2", "devices": 24}

PLAN = plan(
    job(0, step="fetch", artifact="", key="", resources={"disk_bytes": 10**9}),
    job(1, needs=(0,), stage=1, resources={"cpus": 2, "memory_bytes": 2**33}),
    job(2, needs=(0,), stage=1),
    job(3, needs=(1,), stage=2, resources=NEURON),
    job(4, needs=(1,), stage=2, resources=GPU),
    job(5, needs=(2,), stage=2, resources=GPU),
)


def documents(given: WarmPlan = PLAN, **changes: Any) -> list[dict[str, Any]]:
    cluster = Cluster(**{"image": "registry/packager:1", **changes})
    return list(yaml.safe_load_all(render_jobs(given, cluster, instances())))


def container(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("version", VERSIONS)
@cases("clusters")
def test_the_manifests_are_valid(version: str, changes: dict[str, Any]) -> None:
    for document in documents(**changes):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_wrong_manifest_would_be_noticed() -> None:
    [_, first, *_] = documents()
    first["spec"]["completionMode"] = 3
    first["spec"]["podFailurePolicy"]["rules"][0]["codes"] = [1]

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(first, "1.33", strict=True)


def test_every_job_of_the_plan_is_one_index_of_one_job() -> None:
    config_map, *jobs = documents()

    assert WarmPlan.model_validate_json(config_map["data"]["plan.json"]) == PLAN
    parts = []
    for document in jobs:
        args = container(document)["args"]
        first = int(args[args.index("--first") + 1])
        parts.append(list(range(first, first + document["spec"]["completions"])))
    assert parts == [[0], [1, 2], [3], [4, 5]]
    assert len({document["metadata"]["name"] for document in jobs}) == 4


def test_a_pod_asks_for_its_devices_where_they_are() -> None:
    *_, neuron, gpu = documents()

    assert container(gpu)["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert container(neuron)["resources"]["limits"] == {"aws.amazon.com/neuron": "12"}
    affinity = gpu["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    types = term["matchExpressions"][0]["values"]
    assert "g5.12xlarge" in types
    assert "g5.xlarge" not in types  # it has one


def test_what_is_permanent_fails_an_index_and_a_lost_node_costs_no_retry() -> None:
    _, first, *_ = documents()

    permanent, lost = first["spec"]["podFailurePolicy"]["rules"]
    assert permanent["action"] == "FailIndex"
    assert permanent["onExitCodes"]["values"] == list(PERMANENT)
    assert 75 not in PERMANENT
    assert lost == {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }


def test_later_stages_wait_and_kueue_starts_what_it_queues() -> None:
    plainly = [document["spec"]["suspend"] for document in documents()[1:]]
    queued = documents(queue="overnight")[1:]

    assert plainly == [False, True, True, True]
    assert all(document["spec"]["suspend"] for document in queued)
    assert queued[0]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "overnight"


def test_nothing_of_a_model_name_is_read_as_yaml() -> None:
    name = 'a"\n  evil: true\n# {{ x }} $(PATH)'
    hostile = job(0, model=name, request=BuildRequest(model=name, instance="local"))

    config_map, only = documents(plan(hostile))

    assert json.loads(config_map["data"]["plan.json"])["jobs"][0]["model"] == name
    assert "evil" not in only["spec"]


def test_a_plan_too_large_for_a_config_map_goes_by_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "CONFIG_MAP_BYTES", 100)

    with pytest.raises(UsageError, match="a ConfigMap holds 100"):
        documents()
    jobs = documents(plan_url="https://plans.example/1.json")
    assert [document["kind"] for document in jobs] == ["Job"] * 4
    assert "https://plans.example/1.json" in container(jobs[0])["args"]


@pytest.mark.parametrize("field", ["namespace", "queue", "secret", "claim", "service_account"])
def test_a_name_that_kubernetes_refuses_is_refused_here(field: str) -> None:
    with pytest.raises(UsageError, match="not a name that Kubernetes takes"):
        documents(**{field: "Not_A_Name"})
