"""The desired and the current deployment of an endpoint or component."""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from packager.addons.server.endpoints.adapters import AdapterSpec
from packager.addons.server.endpoints.fleet import EndpointSpec
from packager.addons.server.endpoints.traffic import Draw, Pool, TrafficServer
from packager.addons.server.resources import Resource
from packager.addons.server.sagemaker.hosting import VariantSpec
from packager.core.capture.keeping import Capture

ENDPOINT, COMPONENT = "endpoint", "inference-component"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointDeployment:
    """The containers that an endpoint or a component needs."""

    id: str  # its generation; a new one for every change but a number of copies
    config: str  # name of the endpoint configuration; "" of components
    variants: tuple[VariantSpec, ...]  # of a component one, with the name of its variant
    copies: int = 1
    capture: Mapping[str, Any] | None = None  # DataCaptureConfig of an endpoint
    adapter: AdapterSpec | None = None  # of another component's containers; it has no others

    @classmethod
    def new(
        cls,
        config: str,
        variants: tuple[VariantSpec, ...],
        copies: int = 1,
        capture: Mapping[str, Any] | None = None,
    ) -> EndpointDeployment:
        """Return a deployment whose containers are new."""
        return cls(
            id=secrets.token_hex(5),
            config=config,
            variants=variants,
            copies=copies,
            capture=capture,
        )

    def document(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        return {
            "id": self.id,
            "config": self.config,
            "copies": self.copies,
            "variants": [variant.document() for variant in self.variants],
            "capture": self.capture,
            **({"adapter": self.adapter.document()} if self.adapter else {}),
        }

    @classmethod
    def read(cls, document: Mapping[str, Any] | None) -> EndpointDeployment | None:
        """Return the deployment that `document` wrote; None for None."""
        if document is None:
            return None
        variants = tuple(VariantSpec.read(one) for one in document["variants"])
        adapter = AdapterSpec.read(document.get("adapter"))
        return cls(**{**document, "variants": variants, "adapter": adapter})

    @property
    def instances(self) -> int:
        """Return the number of requested instances, over all variants."""
        return sum(variant.count for variant in self.variants)

    def wanted(self, kind: str, name: str) -> list[EndpointSpec]:
        """Return the containers that are to run; none of variants that wait for components."""
        owner = owner_of(kind, name)
        return [
            EndpointSpec(
                owner=f"{owner}/{variant.name}",
                variant=variant.name,
                generation=self.id,
                spec=variant.server,
                copies=self.copies,
                component=name if kind == COMPONENT else "",
            )
            for variant in self.variants
            if variant.server is not None
        ]


def owner_of(kind: str, name: str) -> str:
    """Return how the labels of all containers of an endpoint or component begin."""
    return f"endpoint/{name}" if kind == ENDPOINT else f"component/{name}"


@dataclass(slots=True)
class Live:
    """The containers that take requests of one endpoint or component now."""

    pools: dict[str, Pool] = field(default_factory=dict)  # by variant
    capture: Mapping[str, Any] | None = None  # DataCaptureConfig
    captures: dict[str, Capture | None] = field(default_factory=dict)  # by variant, once used
    coming: Live | None = None  # takes a share of the requests, on its way to all of them
    share: float = 0.0

    def route(self, draw: Draw = random.random) -> Mapping[str, Pool]:
        """Return the pools that take the next request, the old ones where the new do not answer."""
        coming = self.coming
        if coming is None or not any(one.is_ready for one in coming.servers()):
            return self.pools
        return coming.pools if draw() < self.share else self.pools

    def servers(self) -> list[TrafficServer]:
        """Return all of them."""
        return [server for pool in self.pools.values() for server in pool.servers]


def deployments_of(resource: Resource) -> list[Mapping[str, Any]]:
    """Return the documents of the current and the desired deployment."""
    document = resource.document
    return [one for one in (document["active"], document["next"]) if one is not None]
