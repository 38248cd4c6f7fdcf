"""One number for the end of a server: the platform's grace period, and the engine's time to drain.

An image has its engine's own time, which a variable or a word on the command line sets anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from packager.core.deployment import Deployment
from packager.core.findings import Finding
from packager.core.stopping import PLATFORM_GRACE_S

AFTER_DRAIN_S = 5  # to end the engine's processes
SHORTEST_DRAIN_S = 1


def with_grace(
    deployment: Deployment,
    grace_s: int | None,
    *,
    before_s: int = 0,
    env: Mapping[str, str] | None = None,
) -> Deployment:
    """Return a deployment whose platform and engine end in the same time, without `before_s`.

    `grace_s` is the platform's, of which `before_s` pass before the server gets SIGTERM.
    Without a number it follows the variable in `env` by which the user sets the engine's.
    """
    said = (env or {}).get(deployment.drain_variable, "") if deployment.drain_variable else ""
    if said.isascii() and said.isdecimal() and len(said) < 7:
        drain_s = int(said)
        least = max(PLATFORM_GRACE_S, drain_s + AFTER_DRAIN_S)
        whole = grace_s - before_s if grace_s is not None else least
        return replace(deployment, drain_s=drain_s, grace_s=whole)
    if grace_s is None:
        return deployment
    left = max(grace_s - before_s, SHORTEST_DRAIN_S)
    if not sets_drain(deployment):
        return replace(deployment, grace_s=left)
    drain_s = max(left - AFTER_DRAIN_S, SHORTEST_DRAIN_S)
    made = replace(deployment, drain_s=drain_s, grace_s=left)
    if deployment.drain_variable:
        return replace(made, env={**deployment.env, deployment.drain_variable: str(drain_s)})
    return replace(made, arguments=(*deployment.arguments, deployment.drain_option, str(drain_s)))


def sets_drain(deployment: Deployment) -> bool:
    """Return whether the engine has an option for the time that running requests get."""
    return bool(deployment.drain_variable or deployment.drain_option)


def check_one_number(deployment: Deployment, grace_s: int | None) -> Iterator[Finding]:
    """Find an engine that ends requests before the requested grace period does.

    `grace_s` begins when the server gets SIGTERM.
    """
    drain_s = deployment.drain_s
    if grace_s is None or drain_s is None or sets_drain(deployment):
        return
    if drain_s + AFTER_DRAIN_S < grace_s and (deployment.grace_s or 0) < grace_s:
        what = f"{deployment.engine or 'the engine'} ends running requests {drain_s} s after it is "
        what += f"told to stop, whatever the grace period of {grace_s} s"
        hint = "no option of this engine's version sets it: the longer period changes nothing"
        yield Finding("warning", "deploy-grace-engine", what, hint)
