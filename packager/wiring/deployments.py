"""Deployments that were made from this machine, for the lineage of their images."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from packager.core.deployment import Deployment
from packager.core.documents import parse_object
from packager.files.atomic import can_write, read_regular, write_atomically
from packager.lineage.graph import Edge, Fragment, Node
from packager.lineage.index import Document
from packager.lineage.records import named_image
from packager.wiring.settings import state_dir

_FOLDER = "deployments"
_MAX_BYTES = 64 * 1024


def remember_deployment(
    deployment: Deployment,
    platform: str,
    environment: Mapping[str, str],
    *,
    answered: bool,
    bench: str = "",
) -> None:
    """Note which image was deployed; does nothing where this machine keeps no state.

    `bench` is what lineage calls the benchmark that measured it.
    """
    state = state_dir(environment)
    if not can_write(state):
        return
    document = {
        "schema_version": 2,
        "platform": platform,
        "name": deployment.name,
        "image": deployment.image,
        "digest": deployment.digest,
        "instance": deployment.instance.name,
        "answered": answered,
        "bench": bench,
    }
    place = _place(state, platform, deployment.name)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(place, (json.dumps(document, indent=2) + "\n").encode())


def forget_deployment(name: str, platform: str, environment: Mapping[str, str]) -> None:
    """Remove the note of a deployment that was deleted."""
    state = state_dir(environment)
    if can_write(state):
        _place(state, platform, name).unlink(missing_ok=True)


def deployment_documents(environment: Mapping[str, str]) -> Iterator[Document]:
    """Yield what was noted, with what changes when it does."""
    folder = state_dir(environment) / _FOLDER
    for place in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        status = place.stat()
        stamp = f"{status.st_mtime_ns} {status.st_size} {status.st_ino}"
        yield Document(place=str(place), stamp=stamp, read=partial(_fragment, place))


def _fragment(place: Path) -> Fragment:
    found = parse_object(read_regular(place, _MAX_BYTES))
    platform, name, image = (str(found[key]) for key in ("platform", "name", "image"))
    # An endpoint of `packager serve` is known there by its name alone: it is the same thing.
    node = f"endpoint:{name}" if platform == "sagemaker" else f"endpoint:{platform}/{name}"
    facts = {"platform": platform, "instance": str(found["instance"])}
    if found["answered"]:
        facts["smoke"] = "answered"
    deployed = Node(id=node, kind="endpoint", label=f"{platform} {name}", facts=facts)
    digest = str(found["digest"])
    source = f"image:{digest}" if digest else named_image(image)
    shown = Node(id=source, kind="image", label=image, known=False)
    nodes, edges = [deployed, shown], [Edge(source, node)]
    if bench := str(found.get("bench") or ""):  # version 1 knows none
        nodes.append(Node(id=bench, kind="benchmark", label="benchmark", known=False))
        edges.append(Edge(node, bench))
    return Fragment(nodes=tuple(nodes), edges=tuple(edges), aliases=((name, node),))


def _place(state: Path, platform: str, name: str) -> Path:
    return state / _FOLDER / f"{platform}-{name}.json"
