"""Routes of the load client to deployments by name: rows of `packager.routes`.

AWS and the cluster are found as `packager deploy` finds them.  Each raises `NotFound`, `UsageError`
for an impossible name, and the platform's refusals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from packager.cli.plugins.rows import Row
from packager.core.errors import UsageError

if TYPE_CHECKING:
    from packager.addons.deploy.kubernetes.live import ClusterPlatform
    from packager.cli.plugins.tables import RouteRow
    from packager.cli.serving.routes import Route

_ENDPOINT = re.compile(r"[A-Za-z0-9](-?[A-Za-z0-9]){0,62}", re.ASCII)
_PLACE = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)/([a-z]([a-z0-9-]{0,61}[a-z0-9])?)", re.A)


def _sagemaker(name: str, environment: Mapping[str, str]) -> Route:  # noqa: ARG001
    from packager.addons.deploy.sagemaker.clients import Clients
    from packager.addons.deploy.sagemaker.live import LiveSageMaker

    endpoint = name.partition("://")[2]
    if not _ENDPOINT.fullmatch(endpoint):
        raise _odd(name, "sagemaker://ENDPOINT")
    return LiveSageMaker(Clients()).route(endpoint)


def _kubernetes(name: str, environment: Mapping[str, str]) -> Route:
    from packager.addons.deploy.kubernetes.live import KUBERNETES

    return _in_cluster(name, environment, KUBERNETES)


def _kserve(name: str, environment: Mapping[str, str]) -> Route:
    from packager.addons.deploy.kubernetes.live import KSERVE

    return _in_cluster(name, environment, KSERVE)


def _in_cluster(name: str, environment: Mapping[str, str], platform: ClusterPlatform) -> Route:
    from packager.addons.deploy.kubernetes.client import ApiServer
    from packager.addons.deploy.kubernetes.kubeconfig import find_access
    from packager.addons.deploy.kubernetes.live import LiveCluster

    scheme, _, rest = name.partition("://")
    place = _PLACE.fullmatch(rest)
    if place is None:
        raise _odd(name, f"{scheme}://NAMESPACE/NAME")
    find = partial(find_access, environment)
    server = ApiServer(find(), renew=find)
    route, _ = LiveCluster(platform, server, place[1]).route(place[3])
    return route


def _odd(name: str, form: str) -> UsageError:
    return UsageError(f"{name[:120]!r} names no deployment", hint=f"write {form}")


SAGEMAKER: RouteRow = Row("sagemaker://ENDPOINT, an endpoint of SageMaker", _sagemaker)
KUBERNETES: RouteRow = Row("kubernetes://NAMESPACE/NAME, a Deployment", _kubernetes)
KSERVE: RouteRow = Row("kserve://NAMESPACE/NAME, an InferenceService", _kserve)
