"""Endpoints of an account that others use, too, and changes that are cut off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from packager.addons.deploy.commands.deploy_sagemaker import _check_serving
from packager.addons.deploy.sagemaker.bodies import component_body, requests_of
from packager.addons.deploy.sagemaker.clients import Clients, explained
from packager.addons.deploy.sagemaker.live import LiveSageMaker
from packager.addons.deploy.sagemaker.refusals import (
    NotOurs,
)
from packager.addons.deploy.sagemaker.requests import OWNER_TAG, SCALES_TAG
from packager.addons.deploy.sagemaker.spec import SageMakerSpec
from packager.core.deployment import DeployState, DeployStatus
from tests.support.cases import cases
from tests.support.deployments import ROLE, deployment
from tests.support.refusals import raises_code

WANTED = SageMakerSpec(role_arn=ROLE, components=True)
NAME = "my-model"
COMPONENT = f"{NAME}-model"


class Account(LiveSageMaker):
    """An account with these resources, which notes what it is sent."""

    def __init__(self, there: Mapping[str, Mapping[str, Any]], tags: Mapping[str, str]) -> None:
        super().__init__(Clients(), sleep=lambda _: None, clock=count(step=600).__next__)
        self.there = dict(there)
        self.tags = {f"arn:{NAME}": OWNER_TAG, **tags}
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.ends = True

    def _describe(self, kind: str, name: str) -> Any:
        return self.there.get(f"{kind}/{name}")

    def _call(self, operation: str, **body: Any) -> None:
        self.sent.append((operation, body))
        if operation.startswith("Delete") and self.ends:
            kind = operation.removeprefix("Delete")
            self.there.pop(f"{kind}/{body[f'{kind}Name']}")

    def _tags(self, arn: str) -> dict[str, str]:
        return {self.tags[arn]: NAME} if arn in self.tags else {}

    def _ours(self, *_: str) -> list[str]:
        return []

    def _component_names(self, endpoint: str) -> list[str]:
        return []

    @property
    def operations(self) -> list[str]:
        return [operation for operation, _ in self.sent]


def account(*, of: str = NAME, copies: int = 1, **tags: str) -> Account:
    """Return an account with an endpoint of ours whose variant names no model."""
    endpoint = {
        "EndpointArn": f"arn:{NAME}",
        "EndpointStatus": "InService",
        "EndpointConfigName": "c",
    }
    component = {
        **component_body(deployment(), WANTED, "m"),
        "InferenceComponentArn": "arn:component",
        "InferenceComponentStatus": "InService",
        "EndpointName": of,
        "RuntimeConfig": {"DesiredCopyCount": copies, "CurrentCopyCount": copies},
    }
    there = {
        f"Endpoint/{NAME}": endpoint,
        "EndpointConfig/c": {"ProductionVariants": [{"VariantName": "AllTraffic"}]},
        f"InferenceComponent/{COMPONENT}": component,
    }
    return Account(there, tags)


def test_a_component_of_anothers_endpoint_is_not_deleted() -> None:
    theirs = account(of="their-endpoint")

    assert [change.resource for change in theirs.delete(NAME)] == ["Endpoint"]
    assert theirs.operations == ["DeleteEndpoint"]


def test_a_component_that_another_made_stops_the_deletion_before_anything_is_sent() -> None:
    mixed = account()
    with pytest.raises(NotOurs, match="InferenceComponent"):
        mixed.delete(NAME)
    assert mixed.sent == []


def test_deleting_what_does_not_end_is_given_up() -> None:
    ours = account(**{"arn:component": OWNER_TAG})
    ours.ends = False
    with raises_code("UnderWay"):
        ours.delete(NAME)
    assert ours.operations == ["DeleteInferenceComponent"]


def test_an_endpoint_has_the_tag_before_anything_scales_it() -> None:
    wanted = SageMakerSpec(role_arn=ROLE, max_instances=4)
    target = next(
        one for one in requests_of(deployment(), wanted) if one.resource == "ScalableTarget"
    )
    ours = account()

    ours._send(target, "create", NAME, keeps_scale=True)

    assert ours.operations == ["AddTags", "RegisterScalableTarget"]
    assert ours.sent[0][1]["Tags"][0]["Key"] == SCALES_TAG


@cases("copies")
def test_copies_are_changed_unless_something_scales_them(
    changes: dict[str, int], kind: str
) -> None:
    wanted = replace(WANTED, **changes)  # type: ignore[arg-type]
    ours = account(copies=2, **{"arn:component": OWNER_TAG})
    request = next(
        one
        for one in requests_of(deployment(), wanted)
        if one.operation == "CreateInferenceComponent"
    )
    there = ours.there[f"InferenceComponent/{COMPONENT}"]
    ours.there[f"InferenceComponent/{COMPONENT}"] = {
        **there,
        "Specification": request.body["Specification"],
    }

    assert ours._moving(request, wanted.scales).kind == kind
    ours._send(request, "update", NAME, keeps_scale=wanted.scales)

    sent = ours.sent[-1][1].get("RuntimeConfig")
    assert sent == (None if wanted.scales else {"CopyCount": wanted.copies})


@cases("what_does_not_serve_is_told_apart")
def test_what_does_not_serve_is_told_apart(state: DeployState, error: str, code: int) -> None:
    with raises_code(error) as raised:
        _check_serving(NAME, DeployStatus(state=state, said=state))
    assert getattr(raised.value, "exit_code", None) == code


def test_a_component_that_starts_says_so() -> None:
    ours = account()
    there = ours.there[f"InferenceComponent/{COMPONENT}"]
    ours.there[f"InferenceComponent/{COMPONENT}"] = {
        **there,
        "InferenceComponentStatus": "Creating",
    }
    found = ours.status(NAME)

    assert (found.state, found.said) == ("creating", "Creating")


def test_a_manifest_that_aws_does_not_take_names_the_view_that_it_takes() -> None:
    from botocore.exceptions import ClientError

    said = "Unsupported manifest media type application/vnd.oci.image.manifest.v1+json for image"
    answer = {"Error": {"Code": "ValidationException", "Message": said}}
    with raises_code("AwsRefused") as refused, explained("CreateModel"):
        raise ClientError(answer, "CreateModel")

    assert "--view docker" in refused.value.hint
