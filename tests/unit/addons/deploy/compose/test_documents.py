"""Compose files: what they say, that nothing in them is another's to decide, and the schema."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from packager.addons.deploy.compose.composers import container_options
from packager.addons.deploy.compose.deployer import ComposeDeployer
from packager.addons.deploy.compose.documents import config_digest, parse_document, server_services
from packager.addons.deploy.compose.spec import CaptureSpec, ComposeSpec
from packager.addons.deploy.patches import parse_patch
from packager.catalog.instances import find_instance
from packager.core.errors import UsageError
from tests.support.cases import cases_of, read_tables
from tests.support.deployments import PAIRS
from tests.support.deployments import deployment as a_deployment
from tests.support.places import DATA

TABLES = read_tables(__file__)

cases = cases_of(__file__)

SCHEMA = json.loads((DATA / "deploy/compose-spec.json").read_bytes())


def rendered(**changes: Any) -> dict[str, str]:
    wanted = changes.pop("wanted", ComposeSpec())
    files = ComposeDeployer().render(a_deployment(**changes), wanted).files
    return {file.path: file.text for file in files}


def read(**changes: Any) -> Any:
    return yaml.safe_load(rendered(**changes)["compose.yaml"])


def interpolated(found: Any) -> Any:
    """Return what compose reads: `$$` is a dollar, `$NAME` and `${…}` are another's value."""
    if isinstance(found, dict):
        return {key: interpolated(value) for key, value in found.items()}
    if isinstance(found, list):
        return [interpolated(value) for value in found]
    if not isinstance(found, str):
        return found

    def one(match: re.Match[str]) -> str:
        assert match[0] == "$$", f"compose would replace {found!r}"
        return "$"

    return re.sub(r"\$(?:\$|\{[^}]*\}?|[A-Za-z_][A-Za-z0-9_]*|.|$)", one, found, flags=re.DOTALL)


@pytest.mark.parametrize("pair", PAIRS)
def test_files_are_what_the_specification_allows(pair: str) -> None:
    document = read(pair=pair)

    jsonschema.Draft7Validator(SCHEMA).validate(document)
    assert list(document["services"]) == ["front", "server-a1"]
    assert document == interpolated(document)


@cases("hostile")
def test_values_reach_the_container_as_they_were_given(value: str) -> None:
    document = read(
        wanted=ComposeSpec(env={"HOSTILE": value}), env={"ALSO": value}, image=f"r.test/{value}x"
    )

    server = interpolated(document["services"]["server-a1"])
    assert server["environment"] == {"HOSTILE": value, "ALSO": value}
    assert server["image"] == f"r.test/{value}x"


def test_what_is_read_back_is_what_was_meant() -> None:
    text = rendered(env={"PRICE": "5$ and $$"})["compose.yaml"]

    assert parse_document(text)["services"]["server-a1"]["environment"] == {"PRICE": "5$ and $$"}


def test_credentials_are_named_by_variable_or_by_file() -> None:
    wanted = ComposeSpec(
        passed=("HF_TOKEN",), env_files=("/etc/own.env",), secrets={"key": "/etc/key"}
    )

    document = read(wanted=wanted)

    jsonschema.Draft7Validator(SCHEMA).validate(document)
    server = document["services"]["server-a1"]
    assert server["environment"] == {"HF_TOKEN": None}
    assert server["env_file"] == ["/etc/own.env"]
    assert server["secrets"] == ["key"]
    assert document["secrets"] == {"key": {"file": "/etc/key"}}


def test_each_replica_has_gpus_of_its_own_and_generations_share_none_where_there_is_room() -> None:
    deployment = a_deployment(instance=find_instance("ml.p5.48xlarge"), devices=2)
    wanted = ComposeSpec(replicas=2)

    ids = [
        service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
        for generation in "ab"
        for service in server_services(deployment, wanted, generation).values()
    ]

    assert ids == [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"]]


def test_neuron_devices_are_those_of_the_replicas_cores() -> None:
    deployment = a_deployment(
        family="neuron", instance=find_instance("ml.inf2.48xlarge"), devices=4
    )

    services = server_services(deployment, ComposeSpec(replicas=2), "a")

    assert [one["devices"] for one in services.values()] == read_tables(__file__)["devices"]


def test_the_digest_tells_servers_apart_and_not_their_generation() -> None:
    deployment, wanted = a_deployment(), ComposeSpec()
    digest = config_digest(deployment, wanted)

    labels = [
        service["labels"]["dev.packager.deploy.config"]
        for generation in "ab"
        for service in server_services(deployment, wanted, generation).values()
    ]

    assert labels == [digest, digest]
    assert config_digest(replace(deployment, image="r.test/other"), wanted) != digest
    assert config_digest(deployment, replace(wanted, env={"A": "1"})) != digest
    assert config_digest(deployment, replace(wanted, replicas=2)) != digest
    assert config_digest(deployment, replace(wanted, host_port=9)) == digest  # the front's


@pytest.mark.parametrize("replicas", [0, 65])
def test_there_is_a_number_of_replicas_that_a_machine_can_have(replicas: int) -> None:
    with pytest.raises(UsageError, match="cannot run on one machine"):
        ComposeSpec(replicas=replicas)


def test_the_api_is_told_the_same_as_compose(tmp_path: Any) -> None:
    own = tmp_path / "own.env"
    own.write_text("FROM_FILE=1\nA=of the file\n")
    wanted = ComposeSpec(
        env={"A": "5$"}, passed=("GIVEN", "ABSENT"), env_files=(str(own),), host="::1"
    )
    deployment = a_deployment(
        instance=find_instance("ml.g5.xlarge"), devices=1, read_only_root=True, grace_s=45
    )
    document = parse_document(ComposeDeployer().render(deployment, wanted).files[0].text)

    server = container_options(document, "server-a1", "tiny", tmp_path, {"GIVEN": "x$y"})
    front = container_options(document, "front", "tiny", tmp_path, {})

    assert server["container"]["environment"] == {"FROM_FILE": "1", "A": "5$", "GIVEN": "x$y"}
    assert server["container"]["stop_timeout"] == 45
    assert server["container"]["healthcheck"]["interval"] == 15 * 10**9
    assert server["host"]["tmpfs"] == {"/tmp": "exec,mode=1777"}
    assert server["host"]["cap_drop"] == ["ALL"]
    [request] = server["host"]["device_requests"]
    assert (request["DeviceIDs"], request["Capabilities"]) == (["0"], [["gpu"]])
    assert front["host"]["port_bindings"] == {8080: ("::1", 8080)}
    assert front["host"]["binds"] == [f"{tmp_path / 'front'}:/front:ro"]
    labels = server["container"]["labels"]
    assert labels["com.docker.compose.project"] == "tiny"
    assert labels["com.docker.compose.service"] == "server-a1"


@pytest.mark.parametrize(
    "part", [{"runtime": "nvidia"}, {"volumes": ["a:/b"]}, {"healthcheck": {"timeout": "1m"}}]
)
def test_what_a_patch_adds_beyond_the_docker_api_is_refused(part: dict[str, Any]) -> None:
    patch = parse_patch(json.dumps({"services": {"server": part}}).encode(), "patch.json")
    text = rendered(wanted=ComposeSpec(patch=patch))["compose.yaml"]

    with pytest.raises(UsageError, match="not done through the Docker API"):
        container_options(parse_document(text), "server-a1", "p", Path("/"), {})


def test_a_front_that_captures_writes_as_the_owner_of_the_directory() -> None:
    capture = CaptureSpec(
        directory="/srv/$rows", owner="7:8", share=0.25, redact_file="/srv/redact.py"
    )
    wanted = ComposeSpec(capture=capture)
    files = rendered(wanted=wanted)
    document = parse_document(files["compose.yaml"])
    front = document["services"]["front"]

    assert front["user"] == "7:8"
    assert (
        json.loads(front["environment"]["PACKAGER_CAPTURE"])
        == TABLES["a_front_that_captures_writes_as_the_owner_of_the_directory"]
    )
    options = container_options(document, "front", "p", Path("/state/p"), {})
    assert (
        options["host"]["binds"]
        == TABLES["a_front_that_captures_writes_as_the_owner_of_the_directory_expected"]
    )
    assert options["container"]["user"] == "7:8"
    assert "front/packager/core/capture/recorder.py" in files
    assert "capture" not in rendered()["compose.yaml"]
    jsonschema.Draft7Validator(SCHEMA).validate(yaml.safe_load(files["compose.yaml"]))
