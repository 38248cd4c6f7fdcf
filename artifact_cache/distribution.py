"""The distribution that brings these packages, and how to install what it lacks.

A hint names the missing requirement or the place that the distribution came from.  It never asks
an index for the distribution: anybody may register its name there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DISTRIBUTION = "model-packager"


def install_command(package: str, extra: str) -> str:
    """Return the command that installs a package as an extra asks for it.

    Such as `pip install 'boto3>=1.36'`: the requirement is that of the installed metadata, or
    `package` alone where there is none (a checkout that pip has not seen).
    """
    return f"pip install '{find_requirement(package.partition('[')[0], extra) or package}'"


def find_requirement(package: str, extra: str = "") -> str:
    """Return the requirement of an extra, any where none is named, for a package; "" for none."""
    with suppress(metadata.PackageNotFoundError):
        named = (extra,) if extra else metadata.metadata(DISTRIBUTION).get_all("Provides-Extra")
        for one in named or ():
            for wanted in extra_requirements(DISTRIBUTION, one):
                if wanted.name.replace("-", "_") == package.replace("-", "_"):
                    return str(wanted)
    return ""


def extra_requirements(distribution: str, extra: str) -> Iterator[Requirement]:
    """Yield what an extra of a distribution asks for beyond the distribution itself, unmarked.

    Raises `PackageNotFoundError` where the distribution is not installed.
    """
    from packaging.requirements import Requirement

    for line in metadata.requires(distribution) or ():
        asked = Requirement(line)
        if asked.marker is None or not asked.marker.evaluate({"extra": extra}):
            continue
        if asked.marker.evaluate({"extra": ""}):
            continue  # asked for without the extra, too
        asked.marker = None
        yield asked


def installed_from() -> str:
    """Return the path or address that the distribution was installed from, or "" if unknown.

    Installers write it where it was no index (PEP 610, `direct_url.json`).
    """
    try:
        written = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        document = json.loads(written or "{}")
        url, vcs = document["url"], document.get("vcs_info")
        if urlsplit(url).scheme == "file":
            return unquote(urlsplit(url).path)
        return f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else str(url)
    except (metadata.PackageNotFoundError, ValueError, LookupError, TypeError, AttributeError):
        return ""
