"""Manifests of Kubernetes: what API servers take, and what pods are told."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from packager.addons.check.manifests import read_kubernetes
from packager.addons.deploy.checks import check_planned, refuse_odd_image
from packager.addons.deploy.kubernetes.deployer import KubernetesDeployer
from packager.addons.deploy.kubernetes.documents import render_object
from packager.addons.deploy.kubernetes.spec import KubernetesSpec, parse_version
from packager.catalog.instances import find_instance
from packager.core.deployment import Deployment
from packager.core.errors import UsageError
from packager.core.yaml_nodes import parse_yaml
from tests.support.cases import as_type, cases_of, read_tables
from tests.support.cluster_deployments import GIB, PAIRS, TGI, VLLM
from tests.support.cluster_schemas import check_document
from tests.support.refusals import raises_code

cases = cases_of(__file__)

VERSIONS = [f"1.{minor}" for minor in range(31, 38)]
EVERYTHING = as_type(read_tables(__file__)["everything"], KubernetesSpec)
WORDS = ("serve", "--model", "/opt/packager/model")
TWO = replace(VLLM, nodes=2, command=WORDS)


def rendered(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return the objects by kind, as a reader of the files has them."""
    made = KubernetesDeployer().render(deployment, wanted)
    documents = [yaml.safe_load(file.text) for file in made.files]
    return {one["kind"]: one for one in documents}


def pod(deployment: Deployment, wanted: KubernetesSpec | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = rendered(deployment, wanted or KubernetesSpec())["Deployment"]["spec"]
    found: dict[str, Any] = spec["template"]["spec"]
    return found


def server(deployment: Deployment, wanted: KubernetesSpec | None = None) -> dict[str, Any]:
    found: dict[str, Any] = pod(deployment, wanted)["containers"][0]
    return found


def codes(deployment: Deployment, wanted: KubernetesSpec | None = None) -> set[str]:
    made = KubernetesDeployer().render(deployment, wanted or KubernetesSpec())
    return {one.code for one in made.findings}


@pytest.mark.parametrize("pair", sorted(PAIRS))
def test_every_version_takes_every_manifest(pair: str) -> None:
    deployment = PAIRS[pair]
    scaler: Any = "hpa" if deployment.queue_metric else "none"
    for version in VERSIONS:
        wanted = replace(EVERYTHING, version=parse_version(version), scaler=scaler)
        wanted = wanted if scaler == "hpa" else replace(wanted, max_replicas=0)
        objects = rendered(deployment, wanted)

        assert {"Deployment", "Service", "PodDisruptionBudget", "DaemonSet"} <= objects.keys()
        for document in objects.values():
            check_document(document, version)


def test_two_nodes_become_groups_with_ranks() -> None:
    objects = rendered(TWO, replace(EVERYTHING, scaler="keda", prometheus="http://prometheus:9090"))
    for document in objects.values():
        check_document(document, "1.34")
    template = objects["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    leader = template["leaderTemplate"]["spec"]["containers"][0]
    worker = template["workerTemplate"]["spec"]["containers"][0]

    assert template["size"] == 2
    assert leader["command"] == [
        *WORDS,
        *("--nnodes", "2", "--node-rank", "$(LWS_WORKER_INDEX)"),
        *("--master-addr", "$(LWS_LEADER_ADDRESS)", "--master-port", "20000"),
    ]
    assert worker["command"] == [*leader["command"], "--headless"]
    assert "readinessProbe" in leader
    assert not {"startupProbe", "readinessProbe", "livenessProbe", "ports"} & worker.keys()
    assert objects["Service"]["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"


@cases("devices")
def test_devices_are_asked_for_as_their_plugins_count_them(
    pair: str, changes: dict[str, int], devices: dict[str, str], nodes: str
) -> None:
    deployment = replace(PAIRS[pair], **changes)  # type: ignore[arg-type]
    asked = server(deployment)["resources"]
    assert asked.get("limits", {}) == devices
    assert {name: asked["requests"][name] for name in devices} == devices
    chosen = pod(deployment).get("nodeSelector", {})
    assert chosen.get("node.kubernetes.io/instance-type", "") == nodes


def test_images_for_arm_ask_for_nodes_of_that_architecture() -> None:
    grace = replace(VLLM.instance, machine="aarch64")
    arm = replace(VLLM, platform="linux/arm64", instance=grace)

    assert pod(arm)["nodeSelector"]["kubernetes.io/arch"] == "arm64"
    assert "kubernetes.io/arch" not in pod(VLLM).get("nodeSelector", {})


def test_tolerations_are_those_of_the_cloud() -> None:
    azure = replace(VLLM, instance=replace(VLLM.instance, cloud="azure"))
    assert [one["key"] for one in pod(azure)["tolerations"]] == ["nvidia.com/gpu", "sku"]


def test_a_read_only_root_has_its_writable_directories() -> None:
    mounts = {one["mountPath"]: one["name"] for one in server(VLLM)["volumeMounts"]}
    volumes = {one["name"]: one for one in pod(VLLM)["volumes"]}
    assert mounts.keys() == {"/dev/shm", "/home/model", "/tmp"}
    assert volumes[mounts["/tmp"]]["emptyDir"] == {}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}


def expanded(text: str) -> str:
    """Return what a kubelet makes of a text whose variables have values (`expansion.Expand`)."""
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda found: "set" if found[1] else "$", text)


@cases("variables_are_not_expanded_by_kubernetes")
def test_variables_are_not_expanded_by_kubernetes(value: str) -> None:
    found = server(replace(VLLM, command=("serve", value)), KubernetesSpec(env={"A": value}))
    assert expanded({one["name"]: one["value"] for one in found["env"]}["A"]) == value
    assert expanded(found["command"][1]) == value


def test_a_pod_that_captures_has_the_modules_and_passes_words_to_vllm_alone() -> None:
    wanted = KubernetesSpec(capture="rows")
    objects = rendered(VLLM, wanted)
    items = pod(VLLM, wanted)["volumes"][-1]["configMap"]["items"]
    paths = {one["path"]: objects["ConfigMap"]["data"][one["key"]] for one in items}
    assert "class CaptureAdapter" in paths["capture_adapter.py"]
    imported = re.findall(r"from (packager[.\w]*) import", "".join(paths.values()))
    assert {f"{one.replace('.', '/')}.py" for one in imported} <= paths.keys()
    assert server(VLLM, wanted)["args"] == ["--middleware", "capture_adapter.CaptureAdapter"]
    by_variable = server(replace(VLLM, variables="SM_VLLM_"), wanted)
    assert {"name": "SM_VLLM_MIDDLEWARE", "value": "capture_adapter.CaptureAdapter"} in by_variable[
        "env"
    ]
    assert "args" not in by_variable
    assert pod(VLLM, wanted)["securityContext"]["fsGroup"] == 10001
    for other in (TGI, TWO):
        with raises_code("UsageError", match="no middleware"):
            rendered(other, wanted)


def test_the_house_reads_its_own_manifests() -> None:
    for file in KubernetesDeployer().render(VLLM, EVERYTHING).files[:-1]:
        servers, remarks = read_kubernetes(file.path, parse_yaml(file.text))
        assert not [one for one in remarks if one.finding.severity == "error"]
        if "deployment" in file.path:
            assert [one.image for one in servers] == [VLLM.image]


@cases("no_file_shows_the_password_of_a_prometheus")
def test_no_file_shows_the_password_of_a_prometheus(address: str) -> None:
    wanted = KubernetesSpec(scaler="keda", max_replicas=2, prometheus=address)
    with pytest.raises(UsageError, match="without credentials") as raised:
        KubernetesDeployer().render(VLLM, wanted)
    assert "a-secret" not in str(raised.value)


@pytest.mark.parametrize("user", [pytest.param("9" * 5000, id="long"), "2147483648", "１０"])
def test_numbers_that_no_kernel_has_are_no_users(user: str) -> None:
    assert "runAsUser" not in pod(replace(VLLM, user=user))["securityContext"]
    assert "deploy-user-name" in codes(replace(VLLM, user=user))


@pytest.mark.parametrize("text", ["1.30", "1.38", "2.1", "1", "1.34.x", "１.34"])
def test_unknown_versions_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="version of Kubernetes"):
        parse_version(text)


@cases("texts")
def test_text_stays_text_in_yaml(value: str) -> None:
    document = {"on": value, "y": {value: [value]}, "list": [{"a": {}}, {}, [value]], "no": None}
    text = render_object("one.yaml", document).text
    assert yaml.safe_load(text) == document


def test_what_yaml_cannot_carry_is_not_written() -> None:
    with raises_code("NotReadBack", match=r"one\.yaml"):
        render_object("one.yaml", {"a": "\N{GRINNING FACE}"})


@pytest.mark.parametrize("name", ["user:hunter2@r.example/t:1", "https://r.example/t:1", "a b"])
def test_an_image_with_a_password_in_its_name_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(UsageError, match="--weights-image is not the name") as refused:
        rendered(VLLM, KubernetesSpec(weights_image=name))
    assert "hunter2" not in f"{refused.value} {refused.value.hint}"
    for fine in ("tiny:1", "localhost:5000/a/b:1", VLLM.image, "r.example/Team_x/m"):
        refuse_odd_image("--image", fine)


@cases("a_pod_waits_no_longer_than_it_lives_and_what_precedes_the_sigterm_is_in_the_grace")
def test_a_pod_waits_no_longer_than_it_lives_and_what_precedes_the_sigterm_is_in_the_grace(
    grace_s: int, slept: int, is_short: bool
) -> None:
    wanted = KubernetesSpec(grace_s=grace_s)
    assert server(VLLM, wanted)["lifecycle"]["preStop"]["sleep"]["seconds"] == slept
    assert ("deploy-grace-short" in codes(VLLM, wanted)) is is_short


@cases("others")
def test_another_device_than_was_planned_for_is_told(
    planned: str, instance: str, found: list[str]
) -> None:
    model = 40 * GIB if planned.startswith("ml.p5") else 16 * GIB
    made = replace(VLLM, instance=find_instance(instance), devices=1, model_bytes=model)
    told = [f"{one.severity} {one.code}" for one in check_planned(made, find_instance(planned))]
    assert told == found
