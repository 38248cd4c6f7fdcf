"""What every deployer promises, over every platform: fields, findings, bytes, no credential."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import yaml

from packager.addons.deploy.compose.spec import ComposeSpec
from packager.addons.deploy.kubernetes.spec import KubernetesSpec, SecretKey
from packager.addons.deploy.patches import parse_patch
from packager.addons.deploy.sagemaker.spec import SageMakerSpec
from packager.catalog.instances import find_instance
from packager.cli.plugins.tables import DEPLOYERS
from packager.core.deployment import DeployedWeights, Deployment
from packager.core.errors import UsageError
from packager.core.ports import Deployer
from tests.support import cluster_deployments as clusters
from tests.support.cases import cases, shows
from tests.support.cluster_schemas import check_document
from tests.support.deployments import GIB, PAIRS, ROLE, deployment
from tests.support.refusals import raises_code

POD = "Deployment.spec.template.spec"
SHORT = {"pod": POD, "server": f"{POD}.containers.0"}
ON_CLUSTERS = ("kubernetes", "kserve", "hyperpod")
NO_MACHINE = ("hyperpod", "cpu-local")  # HyperPod has SageMaker's alone


def deployer(platform: str) -> Deployer[Any]:
    return DEPLOYERS.find(platform).make()


def made(platform: str, changes: Mapping[str, Any] | None = None) -> Deployment:
    """Return a deployment of a pair as a row states it: `image_gib` is `image_bytes`."""
    given = {
        name.replace("_gib", "_bytes"): value * GIB if name.endswith("_gib") else value
        for name, value in (changes or {}).items()
    }
    given = {name: tuple(one) if isinstance(one, list) else one for name, one in given.items()}
    if "instance" in given:
        given["instance"] = find_instance(given["instance"])
    if "weights" in given:
        given["weights"] = DeployedWeights(**given["weights"])
    if platform not in ON_CLUSTERS:
        return deployment(given.pop("pair", "vllm-g5"), **given)
    return replace(clusters.PAIRS[given.pop("pair", "vllm-p5")], **given)


def wanted(platform: str, changes: Mapping[str, Any] | None = None) -> Any:
    given = {
        name: tuple(one) if isinstance(one, list) and name != "patch" else one
        for name, one in (changes or {}).items()
    }
    if "patch" in given:
        given["patch"] = parse_patch(json.dumps(given["patch"]).encode(), "patch.json")
    if platform == "sagemaker":
        given["pools"] = tuple(made(platform, one) for one in given.get("pools", ()))
        return SageMakerSpec(**{"role_arn": ROLE, **given})
    if platform == "compose":
        return ComposeSpec(**given)
    if "secrets" in given:
        given["secrets"] = {name: SecretKey(*one) for name, one in given["secrets"].items()}
    return KubernetesSpec(**given)


def documents(platform: str, deployed: Deployment, options: Any) -> dict[str, Any]:
    """Return what is rendered: objects by their kind, requests by operation, or compose's file."""
    files = deployer(platform).render(deployed, options).files
    if platform == "sagemaker":
        names = (file.path.removesuffix(".json").split("-")[1:] for file in files)
        operations = ("".join(map(str.capitalize, one)) for one in names)
        return dict(zip(operations, (json.loads(file.text) for file in files), strict=True))
    if platform == "compose":
        return {"compose": yaml.safe_load(files[0].text)}
    return {one["kind"]: one for one in (yaml.safe_load(file.text) for file in files)}


def at(found: Any, path: str) -> Any:
    """Return what is at a path, as `pod.volumes` or `RegisterScalableTarget`."""
    first, _, rest = path.partition(".")
    for name in filter(None, f"{SHORT.get(first, first)}.{rest}".split(".")):
        found = found[int(name)] if isinstance(found, list) else found[name]
    return found


@cases("fields")
def test_documents_have_their_fields(case: dict[str, Any]) -> None:
    platform, asked = case["platform"], wanted(case["platform"], case.get("asked"))
    rendered = documents(platform, made(platform, case.get("made_of")), asked)
    found = at(rendered, case["of"])

    for one in rendered.values() if platform in ON_CLUSTERS else ():
        check_document(one, "1.34")
    if "equals" in case:
        assert found == case["equals"]
    assert shows(found, case.get("shows", {})), found
    assert not [name for name in case.get("lacks", ()) if name in found]
    if "ends" in case:
        assert shows(found[-len(case["ends"]) :], case["ends"]), found
    if "without" in case:
        assert case["without"] not in found.get("env", [])


@pytest.mark.parametrize(
    ("platform", "pair"),
    [
        (one, pair)
        for one, pair in product(ON_CLUSTERS, clusters.PAIRS)
        if (one, pair) != NO_MACHINE
    ],
)
def test_every_object_is_one_that_its_definition_takes(platform: str, pair: str) -> None:
    asked = wanted(platform, {"secrets": {"HF_TOKEN": ["hub", "token"]}})
    files = deployer(platform).render(made(platform, {"pair": pair}), asked).files
    *objects, customization = (yaml.safe_load(file.text) for file in files)

    for one in objects:
        check_document(one, "1.34")
    assert customization["resources"] == [file.path for file in files[:-1]]
    assert any("secretKeyRef" in file.text for file in files)


@cases("refused")
def test_what_the_platform_has_no_words_for_is_refused(
    platform: str, asked: Mapping[str, Any], told: str | None
) -> None:
    with pytest.raises(UsageError, match=told):
        deployer(platform).render(made(platform), wanted(platform, asked))


@cases("findings")
def test_what_the_platform_would_refuse_or_kill_is_found(
    platform: str,
    made_of: Mapping[str, Any] | None,
    asked: Mapping[str, Any] | None,
    severity: str,
    code: str,
) -> None:
    found = list(deployer(platform).check(made(platform, made_of), wanted(platform, asked)))

    assert (severity, code) in [(one.severity, one.code) for one in found]
    assert severity == "error" or "error" not in [one.severity for one in found]


@cases("silent")
def test_what_goes_is_not_warned_of(
    platform: str, made_of: Mapping[str, Any] | None, asked: Mapping[str, Any] | None, code: str
) -> None:
    found = deployer(platform).check(made(platform, made_of), wanted(platform, asked))

    assert code not in [one.code for one in found]


@pytest.mark.parametrize("platform", DEPLOYERS)
def test_images_on_their_own_instances_have_no_error_and_equal_bytes(platform: str) -> None:
    pairs = clusters.PAIRS if platform in ON_CLUSTERS else PAIRS
    found = {
        (pair, one.code)
        for pair in pairs
        for one in deployer(platform).check(made(platform, {"pair": pair}), wanted(platform))
        if one.severity == "error"
    }
    first, second = (deployer(platform).render(made(platform), wanted(platform)) for _ in range(2))

    pair, code = NO_MACHINE[1], "deploy-hyperpod-instance"
    assert found == ({(pair, code)} if platform == NO_MACHINE[0] else set())
    assert first == second
    assert [file.text for file in first.files] != []
    assert first.findings == tuple(deployer(platform).check(made(platform), wanted(platform)))


@pytest.mark.parametrize("platform", ON_CLUSTERS)
@cases("what_cannot_run_on_a_cluster_has_no_files_changes")
def test_what_cannot_run_on_a_cluster_has_no_files(platform: str, changes: dict[str, Any]) -> None:
    assert deployer(platform).render(made(platform, changes), wanted(platform)).files == ()


@pytest.mark.parametrize("platform", DEPLOYERS)
@cases("credentials")
def test_no_file_is_rendered_with_a_credential(platform: str, env: dict[str, str]) -> None:
    [(name, secret)] = env.items()
    deployments = [(made(platform, {"env": env}), wanted(platform))]
    if platform != "sagemaker":
        deployments.append((made(platform), wanted(platform, {"env": env})))

    for deployed, asked in deployments:
        with raises_code("SecretInFile", match=name) as refused:
            deployer(platform).render(deployed, asked)
        assert secret not in f"{refused.value}{refused.value.hint}"


@pytest.mark.parametrize("platform", ["kserve", "hyperpod"])
def test_several_nodes_are_refused_where_a_replica_has_one(platform: str) -> None:
    with pytest.raises(UsageError, match="needs 2"):
        deployer(platform).render(made(platform, {"nodes": 2}), wanted(platform))
