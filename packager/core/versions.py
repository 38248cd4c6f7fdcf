"""Comparing versions as engines, their nightlies and AWS's image tags write them.

`packaging` reads them, by the rules of PEP 440: `0.6.3.post1`, `1.3.0rc20`, `v0.33.0`,
`0.33.1.dev123+gabc`.  Local parts (`+cu128`) name a build, not a version: they are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from packaging.version import Version

VersionKey = Version

LOWEST = Version("0.dev0")  # sorts before what an engine is ever called
LONGEST = 100  # characters: integers of thousands of digits are slow to read

# What AWS's tags say after a version of the engine, `0.27.1-gpu-py312-cu130-ubuntu22.04-sagemaker`.
# A tag that names something else besides may begin with the version of that, and is none:
# `2.7.0-tgi3.3.6-gpu-py311-cu124-ubuntu22.04` begins with PyTorch's.
PLATFORM = re.compile(
    r"(?:-(?:gpu|cpu|neuronx?|inference|sagemaker|ec2|soci|amzn\d+(?:\.\d+)*|ubuntu\d+(?:\.\d+)*"
    r"|py\d{2,4}|cu\d{2,4}|rocm\d+(?:\.\d+)*|sdk\d+(?:\.\d+)*|x86_64|amd64|arm64))+(?:-v\d+(?:\.\d+)*)?",
    re.ASCII,
)


@lru_cache(maxsize=4096)  # a ranking compares the same few thousands of times
def version_key(text: str) -> VersionKey | None:
    """Return a key that sorts as the version does, or None for an invalid version."""
    if len(text) > LONGEST:
        return None
    head, dash, _ = text.partition("-")
    if dash and PLATFORM.fullmatch(text, len(head)):
        text = head
    try:
        read = Version(text)
        return Version(read.public) if read.local else read
    except ValueError:
        return None


def is_within(version: str, since: str = "", before: str = "") -> bool:
    """Check that a version is not below `since` and is below `before`, where they are given.

    What cannot be read as a version counts as the newest.
    """
    key, first, end = version_key(version), version_key(since), version_key(before)
    if key is None:
        return end is None
    return (first is None or key >= first) and (end is None or key < end)


def is_before(version: str, other: str) -> bool:
    """Check that a version is below another; False where either cannot be read."""
    found, until = version_key(version), version_key(other)
    return found is not None and until is not None and found < until


def known_since(first: Mapping[str, str], version: str) -> frozenset[str]:
    """Return the names whose first version is not newer than another."""
    return frozenset(name for name, since in first.items() if not is_before(version, since))


@lru_cache(maxsize=4096)
def release_of(version: VersionKey) -> VersionKey:
    """Return the release that a candidate, a nightly or a post-release belongs to."""
    return Version(version.base_version)


def newest_until(versions: Iterable[str], version: str) -> str:
    """Return the newest of some versions that is not newer than another; else the oldest.

    What cannot be read as a version counts as the newest.
    """
    ordered = sorted(versions, key=lambda one: version_key(one) or LOWEST)
    until = version_key(version)
    older = [one for one in ordered if until is None or (version_key(one) or LOWEST) <= until]
    return (older or ordered[:1])[-1]
