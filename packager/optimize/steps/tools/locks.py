"""Package versions that a tool's lock files will install.

A key contains the versions of a whole environment.  A machine without the environment must
compute the same key, or it would install gigabytes only to find that the result is cached.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

PINNED = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[^\s;\\]+)(?:\s*;(?P<marker>[^\\]*))?"
)
SEEDS = frozenset({"pip", "setuptools", "wheel"})  # of a bare environment, of any version


def normal(name: str) -> str:
    """Return a distribution's normalized name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned_versions(locks: Iterable[str], python: str) -> dict[str, str]:
    """Return the versions that the lines of locks name for this machine and a Python `3.11`."""
    found: dict[str, str] = {}
    for lock in locks:
        for line in lock.splitlines():
            pinned = PINNED.match(line)
            if pinned and _applies(pinned["marker"] or "", python):
                found.setdefault(normal(pinned["name"]), pinned["version"])
    return found


@lru_cache(maxsize=64)
def _names(lock: str) -> frozenset[str]:
    """Return the names of a lock; cached, since locks are large and read often."""
    return frozenset(
        normal(pinned["name"])
        for line in lock.split("\n")
        if line[:1] not in " #" and (pinned := PINNED.match(line))
    )


def installed_versions(versions: Mapping[str, str], locks: Iterable[str]) -> dict[str, str]:
    """Return an environment's packages, without those that every new environment has."""
    named = frozenset[str]().union(*map(_names, locks))
    found = {normal(name): version for name, version in versions.items()}
    python = minor_of(found.pop("python", ""))
    kept = {name: found[name] for name in sorted(found) if name not in SEEDS - named}
    return {**kept, **({"python": python} if python else {})}


def minor_of(python: str) -> str:
    """Return `3.11` of `3.11.7`: bug fixes of an interpreter change no result."""
    return ".".join(python.split(".")[:2])


def _applies(marker: str, python: str) -> bool:
    if not marker.strip():
        return True
    from packaging.markers import InvalidMarker, Marker

    here = {"python_version": python, "python_full_version": f"{python}.0"} if python else {}
    try:
        return Marker(marker.strip()).evaluate(here)
    except InvalidMarker:
        return False
