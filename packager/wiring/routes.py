"""Deployments by name, as the load client asks them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from packager.deploy.kubernetes.client import ApiServer
from packager.deploy.kubernetes.kubeconfig import find_access
from packager.deploy.kubernetes.live import KSERVE, KUBERNETES, LiveCluster
from packager.deploy.sagemaker.clients import Clients
from packager.deploy.sagemaker.live import LiveSageMaker
from packager.errors import UsageError
from packager.serving.routes import Route

_ENDPOINT = re.compile(r"[A-Za-z0-9](-?[A-Za-z0-9]){0,62}", re.ASCII)
_PLACE = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)/([a-z]([a-z0-9-]{0,61}[a-z0-9])?)", re.A)
_CLUSTERS = {"kubernetes": KUBERNETES, "kserve": KSERVE}


def find_route(name: str, environment: Mapping[str, str]) -> Route | None:
    """Return the way to a deployment, such as `sagemaker://NAME`; None for another name.

    AWS and the cluster are found as `packager deploy` finds them.  Raises `NotFound`, `UsageError`
    for a name that none can have, and what the platform refuses.
    """
    scheme, _, rest = name.partition("://")
    if scheme == "sagemaker":
        if not _ENDPOINT.fullmatch(rest):
            raise _odd(name, "sagemaker://ENDPOINT")
        return LiveSageMaker(Clients()).route(rest)
    if (platform := _CLUSTERS.get(scheme)) is None:
        return None
    place = _PLACE.fullmatch(rest)
    if place is None:
        raise _odd(name, f"{scheme}://NAMESPACE/NAME")
    find = partial(find_access, environment)
    server = ApiServer(find(), renew=find)
    route, _ = LiveCluster(platform, server, place[1]).route(place[3])
    return route


def _odd(name: str, form: str) -> UsageError:
    return UsageError(f"{name[:120]!r} names no deployment", hint=f"write {form}")
