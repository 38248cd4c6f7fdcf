"""Package URLs: names of packages that scanners compare with advisories.

Source: the purl specification's types `deb`, `huggingface`, `oci`, `pypi` (2026-11).
"""

from __future__ import annotations

import re
from urllib.parse import quote


def huggingface(name: str, revision: str) -> str:
    """Return the purl of a model on a hub: names keep their case, the commit is lower case."""
    return f"pkg:huggingface/{quote(name)}" + (f"@{revision.lower()}" if revision else "")


def oci(name: str, digest: str, architecture: str = "") -> str:
    """Return the purl of an image; where it can be got is in no part of it."""
    last = name.rstrip("/").rpartition("/")[2].lower()
    arch = f"?arch={quote(architecture)}" if architecture else ""
    return f"pkg:oci/{quote(last)}@{quote(digest, safe='')}{arch}"


def pypi(name: str, version: str) -> str:
    """Return the purl of a Python package, by its normalised name."""
    return f"pkg:pypi/{quote(normalised(name))}@{_version(version)}"


def deb(name: str, version: str, **qualifiers: str) -> str:
    """Return the purl of a Debian package; qualifiers without a value are left out."""
    vendor = qualifiers.pop("vendor", "debian") or "debian"
    named = [f"{key}={quote(value, safe='')}" for key, value in sorted(qualifiers.items()) if value]
    return f"pkg:deb/{quote(vendor)}/{quote(name)}@{_version(version)}" + (
        f"?{'&'.join(named)}" if named else ""
    )


def normalised(name: str) -> str:
    """Return the name of a Python package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _version(text: str) -> str:
    return quote(text, safe=":")  # an epoch: the specification leaves colons as they are
