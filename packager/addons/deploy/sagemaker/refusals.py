"""Endpoints that cannot be changed, or do not serve."""

from __future__ import annotations

from packager.addons.deploy.sagemaker.requests import OWNER_TAG
from packager.core.errors import Unavailable, UsageError
from packager.core.text import escape


class NotOurs(UsageError):
    """Something has the name that another made."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f"there is {kind} {name!r} already, which packager did not make",
            hint=f"choose another --name; ours have the tag {OWNER_TAG}",
        )


def under_way(name: str, state: str) -> Unavailable:
    """Return an error: an endpoint is changing, and takes no other change meanwhile."""
    return Unavailable(
        f"endpoint {name!r} is {state}, and takes no change meanwhile",
        hint=f"`packager deploy sagemaker status {name} --wait` waits for it",
        code="UnderWay",
    )


def still_starting(name: str, state: str) -> Unavailable:
    """Return an error: an endpoint has not settled in the time that was waited."""
    return Unavailable(
        f"endpoint {name!r} does not serve yet: it is {state}",
        hint=f"`packager deploy sagemaker status {name} --wait` waits on",
        code="StillStarting",
    )


def endpoint_failed(name: str, reason: str) -> Unavailable:
    """Return an error: an endpoint could not be made, or could not be changed."""
    return Unavailable(
        f"endpoint {name!r} has failed: {escape(reason[:600]) or 'nothing says why'}",
        hint=f"its log is in /aws/sagemaker/Endpoints/{name}; applying again replaces it",
        code="EndpointFailed",
    )
