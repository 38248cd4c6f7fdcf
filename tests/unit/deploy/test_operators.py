"""Objects of KServe and HyperPod, against the schemas of their own definitions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from packager.core.deployment import DeployedWeights, Deployment
from packager.deploy.kubernetes.hyperpod import HyperPodDeployer
from packager.deploy.kubernetes.kserve import KServeDeployer
from packager.deploy.kubernetes.wanted import KubernetesWanted, SecretKey
from packager.errors import UsageError
from tests.support.cluster_deployments import LMI, PAIRS, VLLM
from tests.support.cluster_schemas import check_document

WANTED = KubernetesWanted(secrets={"HF_TOKEN": SecretKey("hub", "token")}, max_replicas=2)
MOUNTED = DeployedWeights(kind="mounted", uri="s3://bucket/models/llama/")


def spec_of(deployer: Any, deployment: Deployment, wanted: KubernetesWanted) -> dict[str, Any]:
    """Return the specification of the one object, after its definition took it."""
    files = deployer.render(deployment, wanted).files
    document = yaml.safe_load(files[0].text)
    check_document(document, "1.34")
    assert yaml.safe_load(files[1].text)["resources"] == [files[0].path]
    found: dict[str, Any] = document["spec"]
    return found


@pytest.mark.parametrize("pair", sorted(PAIRS))
def test_kserve_takes_every_image_as_its_own_server(pair: str) -> None:
    predictor = spec_of(KServeDeployer(), PAIRS[pair], WANTED)["predictor"]
    assert predictor["containers"][0]["name"] == "kserve-container"
    assert predictor["containers"][0]["image"] == PAIRS[pair].image
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (1, 2)


@pytest.mark.parametrize(
    ("storage", "uri"),
    [("native", f"oci+native://{VLLM.image}"), ("modelcar", f"oci://{VLLM.image}")],
)
def test_kserve_reads_the_weights_of_an_image(storage: Any, uri: str) -> None:
    wanted = replace(WANTED, storage=storage)
    model = spec_of(KServeDeployer(), VLLM, wanted)["predictor"]["model"]
    assert model["storageUri"] == uri
    assert model["args"] == ["--model_name=llama"]


def test_kserve_takes_no_fewer_replicas_at_most_than_at_least() -> None:
    with pytest.raises(UsageError, match="2 replicas at most"):
        KServeDeployer().render(VLLM, replace(WANTED, replicas=3))


def test_a_bucket_is_read_by_kserve_itself() -> None:
    mounted = replace(VLLM, weights=MOUNTED)
    container = spec_of(KServeDeployer(), mounted, WANTED)["predictor"]["containers"][0]
    assert {"name": "STORAGE_URI", "value": MOUNTED.uri} in container["env"]


def test_an_llm_service_has_vllm_read_the_image_as_a_volume() -> None:
    spec = spec_of(KServeDeployer(), VLLM, replace(WANTED, llm=True))
    assert spec["model"] == {"uri": f"oci+native://{VLLM.image}", "name": "llama"}
    assert spec["parallelism"] == {"tensor": 8}
    main = spec["template"]["containers"][0]
    assert main["name"] == "main"
    assert main["startupProbe"] == {"periodSeconds": 10, "failureThreshold": 75}
    assert main["securityContext"]["readOnlyRootFilesystem"] is False


def test_hyperpod_names_its_instances_with_ml() -> None:
    spec = spec_of(HyperPodDeployer(), LMI, KubernetesWanted())
    assert spec["instanceType"] == "ml.g5.12xlarge"
    assert spec["worker"]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert spec["modelSourceConfig"] == {"modelSourceType": "kubernetesVolume"}
    assert spec["kubernetes"]["volumes"] == [{"name": "model-weights", "emptyDir": {}}]
    assert spec["worker"]["probes"]["startupProbe"]["failureThreshold"] == 75
    assert spec["maxDeployTimeInSeconds"] == 1995


def test_hyperpod_reads_a_bucket_with_its_region() -> None:
    mounted = replace(LMI, weights=MOUNTED)
    spec = spec_of(HyperPodDeployer(), mounted, KubernetesWanted(region="us-east-1"))
    assert spec["modelSourceConfig"] == {
        "modelSourceType": "s3",
        "modelLocation": "models/llama",
        "s3Storage": {"bucketName": "bucket", "region": "us-east-1"},
    }


@pytest.mark.parametrize("deployer", [KServeDeployer(), HyperPodDeployer()])
def test_secrets_are_references_there_too(deployer: Any) -> None:
    wanted = KubernetesWanted(secrets={"HF_TOKEN": SecretKey("hub", "token")})
    text = deployer.render(VLLM, wanted).files[0].text
    assert "secretKeyRef" in text
