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


class UnderWay(Unavailable):
    """An endpoint is changing, and takes no other change meanwhile."""

    def __init__(self, name: str, state: str) -> None:
        super().__init__(
            f"endpoint {name!r} is {state}, and takes no change meanwhile",
            hint=f"`packager deploy sagemaker status {name} --wait` waits for it",
        )


class StillStarting(Unavailable):
    """An endpoint has not settled in the time that was waited."""

    def __init__(self, name: str, state: str) -> None:
        super().__init__(
            f"endpoint {name!r} does not serve yet: it is {state}",
            hint=f"`packager deploy sagemaker status {name} --wait` waits on",
        )


class EndpointFailed(Unavailable):
    """An endpoint could not be made, or could not be changed."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"endpoint {name!r} has failed: {escape(reason[:600]) or 'nothing says why'}",
            hint=f"its log is in /aws/sagemaker/Endpoints/{name}; applying again replaces it",
        )
