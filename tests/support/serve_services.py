"""Services of a server whose containers are threads, and a body for each operation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from packager.addons.server.captures import Captures, put_file
from packager.addons.server.endpoints.containers import Containers
from packager.addons.server.endpoints.lifecycle import Endpoints
from packager.addons.server.operations import (
    endpoint_configs,
    endpoints,
    inference_components,
    models,
)
from packager.addons.server.resources import ResourceStore
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.services import Jobs, Operation, ServeServices
from packager.core.capture.redaction import redact_text
from tests.support.doubles.endpoint_containers import FakeContainers

ROLE = "arn:aws:iam::000000000000:role/packager"


def make_services(state: Path, containers: FakeContainers) -> ServeServices:
    """Return services as `packager serve` makes them; jobs are none."""
    store = ResourceStore(state / "resources.sqlite")
    own = cast(Containers, containers)
    return ServeServices(
        jobs=cast(Jobs, None),
        state=state,
        settings=JobSettings(captures=str(state)),
        resources=store,
        endpoints=Endpoints(store, own, state / "endpoints", make_captures(state)),
    )


def make_captures(state: Path) -> Captures:
    """Return captures whose files are complete soon."""
    spool = state / "captures"
    return Captures(spool, redact=redact_text, command=None, put=put_file, complete_s=0.1)


def hosting_operations(services: ServeServices) -> dict[str, Operation]:
    """Return the operations on models, endpoints and components."""
    table: dict[str, Operation] = {}
    for module in (models, endpoint_configs, endpoints, inference_components):
        table |= module.operations(services)
    return table


def model_body(name: str = "m", image: str = "tiny:1", **environment: str) -> dict[str, Any]:
    """Return CreateModel's body."""
    container = {"Image": image, "Environment": {"NAME": name, **environment}}
    return {"ModelName": name, "ExecutionRoleArn": ROLE, "PrimaryContainer": container}


def config_body(name: str, *variants: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return CreateEndpointConfig's body; without variants one with the model of that name."""
    own = [{"VariantName": "AllTraffic", "ModelName": name}]
    shared = {"InitialInstanceCount": 1, "InstanceType": "ml.g5.xlarge"}
    found = [{**shared, **variant} for variant in variants or own]
    return {"EndpointConfigName": name, "ProductionVariants": found, **more}
