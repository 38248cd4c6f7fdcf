"""Adapter inference components: LoRA adapters that a component loads while it serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packager.addons.deploy.sagemaker.requests import (
    LONGEST_NAME,
    Body,
    Request,
    component_name,
    tags_of,
)
from packager.addons.deploy.sagemaker.spec import SageMakerSpec
from packager.core.adapters import check_adapter_name
from packager.core.deployment import Deployment
from packager.core.errors import UsageError
from packager.core.references import parse_bucket_place

BASE = "BaseInferenceComponentName"
ARCHIVE = ".tar.gz"


def read_adapters(given: Sequence[str]) -> dict[str, str]:
    """Return archives by the adapters' names, as options write them; raise `UsageError`."""
    found: dict[str, str] = {}
    for one in given:
        name, _, uri = one.partition("=")
        check_adapter_name(name)
        if parse_bucket_place(uri) is None or not uri.endswith(ARCHIVE) or name in found:
            raise UsageError(
                f"{one[:200]!r} is no adapter component",
                hint=f"write --adapter NAME=s3://BUCKET/KEY{ARCHIVE}, each name once",
            )
        found[name] = uri
    return found


def adapter_requests(deployment: Deployment, wanted: SageMakerSpec) -> Iterator[Request]:
    """Yield the request of every adapter; raise `UsageError` where there is no component."""
    if wanted.adapters and not wanted.components:
        raise UsageError(
            "--adapter makes inference components, and the endpoint has none",
            hint="add --components, or bake adapters: `packager build --adapter`",
        )
    for adapter, uri in sorted(wanted.adapters.items()):
        name = f"{deployment.name}-{adapter}"
        if len(name) > LONGEST_NAME or name == component_name(deployment.name):
            raise UsageError(
                f"{name!r} cannot be the name of an adapter's inference component",
                hint=f"choose other names, {LONGEST_NAME} characters together",
            )
        body = {
            "InferenceComponentName": name,
            "EndpointName": deployment.name,
            "Specification": {
                BASE: component_name(deployment.name),
                "Container": {"ArtifactUrl": uri},
            },
            "Tags": tags_of(deployment.name, wanted),
        }
        yield Request(operation="CreateInferenceComponent", body=body)


def base_of(body: Body) -> str:
    """Return the component that a component is an adapter of; "" of others."""
    return str((body.get("Specification") or {}).get(BASE) or "")


@dataclass(frozen=True, slots=True)
class LiveAdapters:
    """The adapter components of an endpoint, as AWS has them."""

    names: Callable[[str], Sequence[str]]  # of an endpoint's components
    describe: Callable[[str, str], Mapping[str, Any] | None]

    def of(self, endpoint: str) -> dict[str, Mapping[str, Any]]:
        """Return the adapters of an endpoint's component, by their names."""
        named = sorted(self.names(endpoint))
        found = {name: self.describe("InferenceComponent", name) for name in named}
        base = component_name(endpoint)
        return {name: one for name, one in found.items() if one and base_of(one) == base}

    def surplus(self, endpoint: str, requests: Sequence[Request]) -> dict[str, Mapping[str, Any]]:
        """Return those that no request makes."""
        kept = {one.name for one in requests if one.resource == "InferenceComponent"}
        return {name: one for name, one in self.of(endpoint).items() if name not in kept}
