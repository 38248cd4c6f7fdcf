"""Adapters that a deployment mounts over those of its image: each an image, or in a claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packager.core.adapters import WEIGHTS, check_adapter_name
from packager.core.deployment import Deployment
from packager.core.documents import NotStrict, parse_object
from packager.core.errors import UsageError
from packager.core.findings import Finding
from packager.core.tree_manifest import TreeManifest
from packager.images.stored import StoredImage
from packager.images.views import ADAPTER, model_words

CLAIM = "claim:"
OF_TREE = "name TREE/adapters/NAME of `packager build --weights mounted --output dir:TREE`"
_HINT = "write NAME=IMAGE of `packager push --adapter-only`, or NAME=claim:CLAIM/PATH"


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedAdapter:
    """An adapter in a volume: an image, or a claim of the cluster."""

    directory: str  # in the container
    source: str  # an image by digest, the name of a claim, or a directory of this machine
    path: str  # in the volume
    is_claim: bool = False
    digest: str = ""  # of the weights of a directory of this machine


def parse_mounts(given: Sequence[str]) -> dict[str, str]:
    """Return where each adapter is, by name; raise `UsageError`."""
    found: dict[str, str] = {}
    for text in given:
        name, _, where = text.partition("=")
        check_adapter_name(name)
        if not where or name in found:
            raise UsageError(f"{text[:200]!r} names no adapter once, and where it is", hint=_HINT)
        found[name] = where
    return found


def claimed(deployment: Deployment, name: str, where: str) -> MountedAdapter:
    """Return an adapter of a claim, `claim:CLAIM/PATH`."""
    claim, _, path = where.removeprefix(CLAIM).partition("/")
    if not claim or not path or ".." in path.split("/") or path.startswith("/"):
        raise UsageError(f"{where[:200]!r} is not a directory of a claim", hint=_HINT)
    return MountedAdapter(
        directory=_directory(deployment, name), source=claim, path=path, is_claim=True
    )


def of_image(deployment: Deployment, name: str, image: StoredImage, pinned: str) -> MountedAdapter:
    """Return an adapter of an image; raise `UsageError` where it was made for another server."""
    try:
        about = parse_object(image.labels.get(ADAPTER, "").encode())
    except NotStrict:
        raise UsageError(f"{pinned!r} is no image of an adapter", hint=_HINT) from None
    path = about.get("directory")
    inside = path.strip("/") if isinstance(path, str) else ""
    return MountedAdapter(directory=_fitting(deployment, name, about), source=pinned, path=inside)


def of_tree(deployment: Deployment, name: str, tree: TreeManifest, place: str) -> MountedAdapter:
    """Return an adapter of a tree, whose directory is `place`; raise as `of_image` does."""
    listed = {f"adapters/{one.get('name')}": one for one in tree.build.get("adapters") or ()}
    entry = listed.get("/".join(place.split("/")[-2:]))
    if entry is None:
        raise UsageError(f"the tree of {place[:200]!r} lists no such adapter", hint=OF_TREE)
    engine = f"{tree.container.engine} {tree.container.engine_version}".strip()
    about = {**entry, "base": model_words(tree.build.get("model") or {}), "engine": engine}
    weights = next((one for one in tree.files if one.path.startswith(
        f"adapters/{entry['name']}/") and one.path.endswith(WEIGHTS)), None)  # fmt: skip
    mark = weights.sha256 if weights else ""
    return MountedAdapter(
        directory=_fitting(deployment, name, about), source=place, path="", digest=mark
    )


def _fitting(deployment: Deployment, name: str, about: Mapping[str, Any]) -> str:
    """Return where an adapter is mounted; raise `UsageError` where it is for another server."""
    directory = _directory(deployment, name)
    engine = f"{deployment.engine} {deployment.engine_version}".strip()
    for field, value in {"base": deployment.model, "engine": engine}.items():
        if about.get(field) != value:
            raise UsageError(
                f"the adapter {name!r} was made for another {field} than the image has: "
                f"{str(about.get(field))[:120]!r} and {value[:120]!r}",
                hint="build the image with it: what an engine misreads is rewritten for it",
            )
    most = max(rank for _, rank in deployment.adapters.values())
    rank = about.get("rank")
    if not isinstance(rank, int) or rank > most:
        raise UsageError(
            f"the adapter {name!r} has rank {str(rank)[:20]}; the largest of the image has {most}",
            hint="build the image with it: slots are made for what a build knows",
        )
    return directory


def check_mounts(mounted: Mapping[str, MountedAdapter]) -> Iterator[Finding]:
    """Find what is mounted unread."""
    for name, one in mounted.items():
        if one.is_claim:
            what = f"nobody reads the adapter {name!r} of the claim {one.source!r}"
            hint = "fill it from a tree of a build: --output dir:DIR has adapters/NAME"
            yield Finding("warning", "deploy-adapter-unread", what, hint)


def _directory(deployment: Deployment, name: str) -> str:
    """Return where the image has an adapter, over which another one is mounted."""
    if name not in deployment.adapters:
        known = ", ".join(deployment.adapters) or "none"
        raise UsageError(
            f"the image serves no adapter {name!r}",
            hint=f"it serves: {known[:300]}; `packager build --adapter NAME=REF` adds one",
        )
    return deployment.adapters[name][0]
