"""The Kubernetes cluster that a plan is rendered for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from packager.core.fields import CommandOption


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Cluster settings that the manifests need.

    Options of `packager warm render kubernetes` are made from these fields.
    """

    image: Annotated[
        str, Field(description="image that has packager, and the tools or a way to install them")
    ]
    namespace: Annotated[
        str, Field(description="namespace of the Jobs"), CommandOption(metavar="NAME")
    ] = "default"
    queue: Annotated[
        str,
        Field(description="queue of Kueue, which starts the Jobs"),
        CommandOption(metavar="NAME"),
    ] = ""
    secret: Annotated[
        str,
        Field(
            description="Secret whose keys become variables: PACKAGER_CACHE_SHARED, AWS_…, HF_TOKEN"
        ),
        CommandOption(metavar="NAME"),
    ] = ""
    shared: Annotated[
        tuple[str, ...],
        Field(description="address of a shared cache, where it is not a secret"),
        CommandOption(flag="--cache-shared", metavar="ADDRESS"),
    ] = ()
    plan_url: Annotated[
        str, Field(description="where pods find a plan that is too large to send")
    ] = ""
    claim: Annotated[
        str,
        Field(description="volume claim that keeps tools and models between pods"),
        CommandOption(metavar="NAME"),
    ] = ""
    service_account: Annotated[
        str, Field(description="service account of the pods"), CommandOption(metavar="NAME")
    ] = ""
    parallelism: Annotated[int, Field(ge=1, description="pods of a Job at a time")] = 16
    retries: Annotated[
        int, Field(ge=0, description="how often a job whose failure may pass is tried again")
    ] = 3
    pin_nodes: bool = True  # to the instance types that have the device
