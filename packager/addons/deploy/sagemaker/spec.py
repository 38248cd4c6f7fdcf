"""Desired state of an endpoint of SageMaker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from packager.addons.deploy.patches import NO_PATCH, Patch
from packager.core.deployment import Deployment

Routing = Literal["least-outstanding", "random", "prefix-aware"]
Update = Literal["all-at-once", "canary", "linear", "rolling"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SageMakerSpec:
    """Options of an endpoint; what is None is left to SageMaker, or follows from the image."""

    role_arn: str  # that SageMaker takes to pull the image and to read the weights
    instances: int = 1  # at first
    min_instances: int | None = None  # with `max_instances`: scaled between the two
    max_instances: int | None = None
    target: float | None = None  # requests at once of one instance or copy; None: of its batch
    ami: str | None = None
    volume_gb: int | None = None
    health_s: int | None = None  # ContainerStartupHealthCheckTimeoutInSeconds
    download_s: int | None = None  # ModelDataDownloadTimeoutInSeconds
    routing: Routing = "least-outstanding"
    capture_uri: str = ""  # s3:// for captured requests and answers; "": none are kept
    capture_percent: int = 100
    kms_key: str = ""
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    isolated: bool = False  # no network inside the container
    metrics: bool = False  # the server's own, scraped into CloudWatch
    components: bool = False  # an inference component, which shares its instances
    copies: int = 1  # of the component
    adapters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # name → archive in S3, which the component's containers load
    update: Update = "all-at-once"
    wait_s: int = 60  # between the steps of an update
    alarms: tuple[str, ...] = ()  # of CloudWatch: an update rolls back when one rings
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    patch: Patch = NO_PATCH  # of bodies by their operations
    pools: tuple[Deployment, ...] = ()  # the same model for other instance types, preferred first

    @property
    def scales(self) -> bool:
        """Return whether anything adds and removes instances or copies."""
        return self.max_instances is not None

    @property
    def least(self) -> int:
        """Return the least number of instances, or of copies."""
        return self.instances if self.min_instances is None else self.min_instances
