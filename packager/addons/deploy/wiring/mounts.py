"""Mounted adapters, read in the registry where they are."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packager.addons.deploy.mounted_adapters import (
    CLAIM,
    OF_TREE,
    MountedAdapter,
    claimed,
    of_image,
    of_tree,
)
from packager.cli.wiring.images import image_services_for
from packager.cli.wiring.settings import Settings, parse_output
from packager.core.deployment import Deployment
from packager.core.documents import NotStrict
from packager.core.errors import UsageError
from packager.core.image import Platform
from packager.core.references import RegistryTarget
from packager.core.tree_manifest import MANIFEST, read_manifest


def find_mounts(
    wanted: Mapping[str, str], deployment: Deployment, *, platform: Platform, **reach: Any
) -> dict[str, MountedAdapter]:
    """Return each adapter by name, images by digest; raise where one is for another server."""
    found: dict[str, MountedAdapter] = {}
    tools = image_services_for(Settings(**reach)) if wanted else None
    for name, where in wanted.items():
        if where.startswith(CLAIM):
            found[name] = claimed(deployment, name, where)
            continue
        target = parse_output(where)
        if not isinstance(target, RegistryTarget) or tools is None:
            raise UsageError(
                f"no node can pull {where[:200]!r}", hint="push it: packager push --adapter-only"
            )
        image = tools.open(target, platform).image
        pinned = f"{target.image.name}@{image.digest}"
        found[name] = of_image(deployment, name, image, pinned)
    return found


def find_directories(
    wanted: Mapping[str, str], deployment: Deployment
) -> dict[str, MountedAdapter]:
    """Return each adapter of a tree on this machine, whose files are those that its build wrote."""
    found: dict[str, MountedAdapter] = {}
    for name, where in wanted.items():
        place = Path(where).absolute()
        root = place.parent.parent
        try:
            tree = read_manifest((root / MANIFEST).read_bytes())
            found[name] = of_tree(deployment, name, tree, str(place))
            for listed in tree.files:
                if listed.path.startswith(f"adapters/{place.name}/"):
                    _check_file(root / listed.path, listed.sha256)
        except (OSError, NotStrict) as error:
            raise UsageError(f"{where[:200]!r} is in no tree: {error}", hint=OF_TREE) from error
    return found


def _check_file(path: Path, sha256: str) -> None:
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise UsageError(
                f"{str(path)!r} is not what its build wrote", hint="build the tree again"
            )
