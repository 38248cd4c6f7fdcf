"""Manifests of Kubernetes: what API servers take, and what pods are told."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from packager.catalog.instances import find_instance
from packager.check.manifests import read_kubernetes
from packager.check.yaml_nodes import parse_yaml
from packager.core.deployment import DeployedWeights, Deployment
from packager.deploy.checks import check_planned, refuse_odd_image
from packager.deploy.kubernetes.deployer import KubernetesDeployer
from packager.deploy.kubernetes.documents import NotReadBack, render_object
from packager.deploy.kubernetes.wanted import KubernetesWanted, SecretKey, parse_version
from packager.errors import UsageError
from tests.support.cases import cases
from tests.support.cluster_deployments import CPU, GIB, LMI, NEURON, PAIRS, SGLANG, TGI, VLLM
from tests.support.cluster_schemas import check_document

VERSIONS = [f"1.{minor}" for minor in range(31, 38)]
EVERYTHING = KubernetesWanted(
    max_replicas=3,
    prepull=True,
    monitor=True,
    pull_secret="registry",
    service_account="serving",
    env={"A": "$(B)"},
    secrets={"HF_TOKEN": SecretKey("hub", "token")},
    node_selector={"pool": "models"},
)
WORDS = ("serve", "--model", "/opt/packager/model")
TWO = replace(VLLM, nodes=2, command=WORDS)


def rendered(deployment: Deployment, wanted: KubernetesWanted) -> dict[str, Any]:
    """Return the objects by kind, as a reader of the files has them."""
    made = KubernetesDeployer().render(deployment, wanted)
    documents = [yaml.safe_load(file.text) for file in made.files]
    return {one["kind"]: one for one in documents}


def pod(deployment: Deployment, wanted: KubernetesWanted | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = rendered(deployment, wanted or KubernetesWanted())["Deployment"]["spec"]
    found: dict[str, Any] = spec["template"]["spec"]
    return found


def server(deployment: Deployment, wanted: KubernetesWanted | None = None) -> dict[str, Any]:
    found: dict[str, Any] = pod(deployment, wanted)["containers"][0]
    return found


def codes(deployment: Deployment, wanted: KubernetesWanted | None = None) -> set[str]:
    made = KubernetesDeployer().render(deployment, wanted or KubernetesWanted())
    return {one.code for one in made.findings}


@pytest.mark.parametrize("pair", sorted(PAIRS))
def test_every_version_takes_every_manifest(pair: str) -> None:
    deployment = PAIRS[pair]
    scaler: Any = "hpa" if deployment.queue_metric else "none"
    for version in VERSIONS:
        wanted = replace(EVERYTHING, version=parse_version(version), scaler=scaler)
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
    selector = objects["Service"]["spec"]["selector"]
    assert selector["leaderworkerset.sigs.k8s.io/worker-index"] == "0"


def test_sagemakers_images_are_told_their_rank_by_variables() -> None:
    """Their entry point makes the command line; nobody else knows it."""
    found = rendered(replace(SGLANG, nodes=2, variables="SM_SGLANG_"), KubernetesWanted())
    template = found["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    server = template["workerTemplate"]["spec"]["containers"][0]
    assert server["env"][-3:] == [
        {"name": "SM_SGLANG_NNODES", "value": "2"},
        {"name": "SM_SGLANG_NODE_RANK", "value": "$(LWS_WORKER_INDEX)"},
        {"name": "SM_SGLANG_DIST_INIT_ADDR", "value": "$(LWS_LEADER_ADDRESS):20000"},
    ]
    assert "command" not in server


def test_sglang_finds_the_first_node_by_its_own_option() -> None:
    found = rendered(replace(SGLANG, nodes=2, command=WORDS), KubernetesWanted())
    template = found["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    words = template["workerTemplate"]["spec"]["containers"][0]["command"]
    assert words[-2:] == ["--dist-init-addr", "$(LWS_LEADER_ADDRESS):20000"]


@pytest.mark.parametrize(*cases(__file__, "devices"))
def test_devices_are_asked_for_as_their_plugins_count_them(
    pair: str, changes: dict[str, int], devices: dict[str, str], nodes: str
) -> None:
    deployment = replace(PAIRS[pair], **changes)  # type: ignore[arg-type]
    asked = server(deployment)["resources"]
    assert asked.get("limits", {}) == devices
    assert {name: asked["requests"][name] for name in devices} == devices
    chosen = pod(deployment).get("nodeSelector", {})
    assert chosen.get("node.kubernetes.io/instance-type", "") == nodes


def test_tolerations_are_those_of_the_cloud() -> None:
    azure = replace(VLLM, instance=replace(VLLM.instance, cloud="azure"))
    assert [one["key"] for one in pod(azure)["tolerations"]] == ["nvidia.com/gpu", "sku"]
    neuron = pod(replace(NEURON, devices=1))["tolerations"]
    assert [one["key"] for one in neuron] == ["aws.amazon.com/neuron"]
    assert "tolerations" not in pod(CPU)


def test_storage_holds_the_image_once_for_all_pods_of_a_node() -> None:
    assert server(VLLM)["resources"]["requests"]["ephemeral-storage"] == f"{38 * 1024}Mi"
    eight = server(replace(VLLM, devices=1))["resources"]["requests"]
    assert eight["ephemeral-storage"] == f"{8 * 1024 + 30 * 128}Mi"
    assert eight["cpu"] == "18"  # three quarters of 192, for eight pods


def test_a_pod_has_a_quarter_more_time_than_is_predicted() -> None:
    probe = server(VLLM)["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 750
    # Pulling is no part of the probe, but of the rollout.
    spec = rendered(VLLM, KubernetesWanted())["Deployment"]["spec"]
    assert spec["progressDeadlineSeconds"] == 1125 + 750 + 120


def test_grace_has_the_drain_after_endpoints_forgot_the_pod() -> None:
    assert pod(VLLM)["terminationGracePeriodSeconds"] == 35
    assert server(VLLM)["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}


def test_pods_run_as_the_images_user_with_nothing_more() -> None:
    assert pod(VLLM)["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert server(VLLM)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod(VLLM)["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("deployment", "code"), [(LMI, "deploy-runs-as-root"), (TGI, "deploy-user-name")]
)
def test_users_that_kubelets_cannot_check_are_named(deployment: Deployment, code: str) -> None:
    assert "runAsNonRoot" not in pod(deployment)["securityContext"]
    assert code in codes(deployment)


def test_a_read_only_root_has_its_writable_directories() -> None:
    mounts = {one["mountPath"]: one["name"] for one in server(VLLM)["volumeMounts"]}
    volumes = {one["name"]: one for one in pod(VLLM)["volumes"]}
    assert mounts.keys() == {"/dev/shm", "/home/model", "/tmp"}
    assert volumes[mounts["/tmp"]]["emptyDir"] == {}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}

    baked = replace(VLLM, read_only_root=False)
    assert [one["mountPath"] for one in server(baked)["volumeMounts"]] == ["/dev/shm"]
    assert server(baked)["securityContext"]["readOnlyRootFilesystem"] is False


def test_a_home_that_nobody_names_is_writable() -> None:
    home = {"name": "HOME", "value": "/tmp"}
    assert home in server(VLLM)["env"]
    for named in (replace(VLLM, home="/home/model"), replace(VLLM, read_only_root=False)):
        assert home not in server(named).get("env", [])
    assert home not in server(VLLM, KubernetesWanted(writable_root=True)).get("env", [])
    own = server(VLLM, KubernetesWanted(env={"HOME": "/home/model"}))["env"]
    assert [one["value"] for one in own if one["name"] == "HOME"] == ["/home/model"]


def test_weights_come_from_a_claim_or_a_view() -> None:
    bare = replace(VLLM, weights=DeployedWeights(kind="mounted", uri="s3://b/p/"))
    claimed = pod(bare, KubernetesWanted(claim="weights"))
    assert claimed["volumes"][-1]["persistentVolumeClaim"] == {
        "claimName": "weights",
        "readOnly": True,
    }
    view = KubernetesWanted(weights_image="r.example/w:1", version=(1, 35))
    assert server(bare, view)["volumeMounts"][-1] == {
        "name": "model",
        "mountPath": "/opt/ml/model",
        "readOnly": True,
        "subPath": "opt/packager/model",
    }


@pytest.mark.parametrize(
    ("version", "code"),
    [((1, 32), "deploy-image-volume"), ((1, 33), "deploy-image-volume-gate")],
)
def test_image_volumes_need_a_new_enough_cluster(version: tuple[int, int], code: str) -> None:
    wanted = KubernetesWanted(weights_image="r.example/w:1", version=version)
    bare = replace(VLLM, weights=DeployedWeights(kind="mounted", uri="s3://b/p/"))
    assert code in codes(bare, wanted)
    assert not codes(bare, replace(wanted, version=(1, 35))) & {code}


def test_secrets_are_named_and_never_shown() -> None:
    text = "".join(file.text for file in KubernetesDeployer().render(VLLM, EVERYTHING).files)
    assert '"hub"' in text
    reference = {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert {"name": "HF_TOKEN", "valueFrom": reference} in server(VLLM, EVERYTHING)["env"]


def expanded(text: str) -> str:
    """Return what a kubelet makes of a text whose variables have values (`expansion.Expand`)."""
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda found: "set" if found[1] else "$", text)


@pytest.mark.parametrize(
    "value", ["$(B)", "$$(B)", "pa$$word", "a$b", "$", "$$", "$($(B))", "$$$(B)"]
)
def test_variables_are_not_expanded_by_kubernetes(value: str) -> None:
    found = server(replace(VLLM, command=("serve", value)), KubernetesWanted(env={"A": value}))
    given = {one["name"]: one["value"] for one in found["env"]}
    assert expanded(given["A"]) == value
    assert expanded(found["command"][1]) == value


def test_the_house_reads_its_own_manifests() -> None:
    for file in KubernetesDeployer().render(VLLM, EVERYTHING).files[:-1]:
        servers, remarks = read_kubernetes(file.path, parse_yaml(file.text))
        assert not [one for one in remarks if one.finding.severity == "error"]
        if "deployment" in file.path:
            assert [one.image for one in servers] == [VLLM.image]


@pytest.mark.parametrize(
    "wanted",
    [
        KubernetesWanted(namespace="No_Such"),
        KubernetesWanted(pull_secret="a/b"),
        KubernetesWanted(claim="../x"),
        KubernetesWanted(env={"A-B": "1"}),
        KubernetesWanted(secrets={"A": SecretKey("ok", "no/slash")}),
        KubernetesWanted(node_selector={"a": "b c"}),
        KubernetesWanted(scaler="hpa"),
        KubernetesWanted(scaler="keda", max_replicas=2),
        KubernetesWanted(replicas=3, max_replicas=2),
    ],
)
def test_what_the_api_would_refuse_is_refused(wanted: KubernetesWanted) -> None:
    with pytest.raises(UsageError):
        KubernetesDeployer().render(VLLM, wanted)


@pytest.mark.parametrize(
    "address", ["http://ada:a-secret@p:9090", "http://p/?token=a-secret", "p:9090", "http://"]
)
def test_no_file_shows_the_password_of_a_prometheus(address: str) -> None:
    wanted = KubernetesWanted(scaler="keda", max_replicas=2, prometheus=address)
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


def test_the_autoscaler_owns_the_number_of_replicas() -> None:
    spec = rendered(VLLM, KubernetesWanted(scaler="hpa", max_replicas=2))
    assert "replicas" not in spec["Deployment"]["spec"]
    metric = spec["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["metric"]
    assert metric == {"name": "vllm_num_requests_waiting"}


def test_the_autoscaler_owns_the_number_of_groups() -> None:
    found = rendered(TWO, KubernetesWanted(scaler="hpa", max_replicas=2))
    assert "replicas" not in found["LeaderWorkerSet"]["spec"]
    alone = rendered(TWO, KubernetesWanted(replicas=2))
    assert alone["LeaderWorkerSet"]["spec"]["replicas"] == 2


@pytest.mark.parametrize(("budget_s", "settled_s"), [(60, 300), (1800, 1800), (86400, 3600)])
def test_an_autoscaler_settles_for_an_hour_at_most(budget_s: int, settled_s: int) -> None:
    wanted = KubernetesWanted(scaler="hpa", max_replicas=2, budget_s=budget_s)
    behavior = rendered(VLLM, wanted)["HorizontalPodAutoscaler"]["spec"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == settled_s


def test_a_server_that_crashes_keeps_no_node_from_being_drained() -> None:
    spec = rendered(VLLM, KubernetesWanted())["PodDisruptionBudget"]["spec"]
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert spec["maxUnavailable"] == 1


def test_an_update_without_a_free_node_ends_the_old_pod_first() -> None:
    spec = rendered(VLLM, KubernetesWanted(surge=False))["Deployment"]["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


@pytest.mark.parametrize(*cases(__file__, "texts"))
def test_text_stays_text_in_yaml(value: str) -> None:
    document = {"on": value, "y": {value: [value]}, "list": [{"a": {}}, {}, [value]], "no": None}
    text = render_object("one.yaml", document).text
    assert yaml.safe_load(text) == document


def test_what_yaml_cannot_carry_is_not_written() -> None:
    with pytest.raises(NotReadBack, match=r"one\.yaml"):
        render_object("one.yaml", {"a": "\N{GRINNING FACE}"})


@pytest.mark.parametrize("name", ["user:hunter2@r.example/t:1", "https://r.example/t:1", "a b"])
def test_an_image_with_a_password_in_its_name_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(UsageError, match="--weights-image is not the name") as refused:
        rendered(VLLM, KubernetesWanted(weights_image=name))
    assert "hunter2" not in f"{refused.value} {refused.value.hint}"
    for fine in ("tiny:1", "localhost:5000/a/b:1", VLLM.image, "r.example/Team_x/m"):
        refuse_odd_image("--image", fine)


@pytest.mark.parametrize(
    ("grace_s", "slept", "is_short"),
    [(1, 1, True), (3, 1, True), (9, 4, True), (10, 5, True), (34, 5, True), (35, 5, False)],
)
def test_a_pod_waits_no_longer_than_it_lives_and_what_precedes_the_sigterm_is_in_the_grace(
    grace_s: int, slept: int, is_short: bool
) -> None:
    wanted = KubernetesWanted(grace_s=grace_s)
    assert server(VLLM, wanted)["lifecycle"]["preStop"]["sleep"]["seconds"] == slept
    assert ("deploy-grace-short" in codes(VLLM, wanted)) is is_short


@pytest.mark.parametrize(*cases(__file__, "others"))
def test_another_device_than_was_planned_for_is_told(
    planned: str, instance: str, found: list[str]
) -> None:
    model = 40 * GIB if planned.startswith("ml.p5") else 16 * GIB
    made = replace(VLLM, instance=find_instance(instance), devices=1, model_bytes=model)
    told = [f"{one.severity} {one.code}" for one in check_planned(made, find_instance(planned))]
    assert told == found
