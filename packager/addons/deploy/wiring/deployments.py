"""Deployments that were made from this machine, for the lineage of their images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packager.cli.wiring.settings import state_dir
from packager.core.deployment import Deployment
from packager.core.documents import NotStrict, parse_object
from packager.core.files.atomic import can_write, read_regular, write_atomically
from packager.images.lineage.graph import Edge, Fragment, LineageNode
from packager.images.lineage.index import LineageDocument
from packager.images.lineage.records import named_image

_FOLDER = "deployments"
_SCHEMA = 3  # 1 knows no `bench`, 2 no `namespace`, `cluster` or `model`
_MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where a deployment is: one name may be in several namespaces, and of several clusters."""

    platform: str
    namespace: str = ""
    cluster: str = ""  # its API server

    def node(self, name: str) -> str:
        """Return what lineage calls a deployment."""
        # An endpoint of `packager serve` is known there by its name alone: it is the same thing.
        if self.platform == "sagemaker":
            return f"endpoint:{name}"
        within = "/".join(filter(None, (self.platform, self.cluster, self.namespace)))
        return f"endpoint:{within}/{name}"

    def file_name(self, name: str) -> str:
        """Return the name of the note, which no other deployment's has."""
        # No hyphens as separators: `a-b` in `c` would equal `b` in `c-a`.
        whole = json.dumps([self.platform, self.cluster, self.namespace, name])
        return f"{self.platform}-{name}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}.json"


def remember_deployment(
    deployment: Deployment,
    where: Whereabouts,
    environment: Mapping[str, str],
    *,
    answered: bool,
    bench: str = "",
) -> None:
    """Record which image was deployed; do nothing if this machine keeps no state.

    `bench` is what lineage calls the benchmark that measured it.
    """
    state = state_dir(environment)
    if not can_write(state):
        return
    document = {
        "schema_version": _SCHEMA,
        "platform": where.platform,
        "namespace": where.namespace,
        "cluster": where.cluster,
        "name": deployment.name,
        "image": deployment.image,
        "digest": deployment.digest,
        "model": deployment.served_name,
        "instance": deployment.instance.name,
        "answered": answered,
        "bench": bench,
    }
    place = _place(state, where, deployment.name)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(place, (json.dumps(document, indent=2) + "\n").encode())


def other_model(deployment: Deployment, where: Whereabouts, environment: Mapping[str, str]) -> str:
    """Return the model that was deployed under this name from here, where it was another one.

    `llama-3.1` and `llama_3_1` are one name to every platform: the second would update the first.
    """
    place = _place(state_dir(environment), where, deployment.name)
    try:
        found = parse_object(read_regular(place, _MAX_BYTES)).get("model")
    except (OSError, NotStrict):
        return ""
    known = found if isinstance(found, str) else ""
    return known if deployment.served_name and known != deployment.served_name else ""


def forget_deployment(name: str, where: Whereabouts, environment: Mapping[str, str]) -> None:
    """Remove the note of a deployment that was deleted."""
    state = state_dir(environment)
    if can_write(state):
        _place(state, where, name).unlink(missing_ok=True)


def deployment_documents(environment: Mapping[str, str]) -> Iterator[LineageDocument]:
    """Yield what was noted, with what changes when it does."""
    folder = state_dir(environment) / _FOLDER
    for place in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        status = place.stat()
        stamp = f"{status.st_mtime_ns} {status.st_size} {status.st_ino}"
        yield LineageDocument(place=str(place), stamp=stamp, read=partial(_fragment, place))


def _fragment(place: Path) -> Fragment:
    found = parse_object(read_regular(place, _MAX_BYTES))
    platform, name, image = (str(found[key]) for key in ("platform", "name", "image"))
    namespace, cluster = (str(found.get(key) or "") for key in ("namespace", "cluster"))
    node = Whereabouts(platform=platform, namespace=namespace, cluster=cluster).node(name)
    facts = {"platform": platform, "instance": str(found["instance"])}
    facts |= {"namespace": namespace} if namespace else {}
    facts |= {"cluster": cluster} if cluster else {}
    if found["answered"]:
        facts["smoke"] = "answered"
    label = f"{platform} {name}" + (f" in {namespace}" if namespace else "")
    deployed = LineageNode(id=node, kind="endpoint", label=label, facts=facts)
    digest = str(found["digest"])
    source = f"image:{digest}" if digest else named_image(image)
    shown = LineageNode(id=source, kind="image", label=image, known=False)
    nodes, edges = [deployed, shown], [Edge(source, node)]
    if bench := str(found.get("bench") or ""):  # version 1 knows none
        nodes.append(LineageNode(id=bench, kind="benchmark", label="benchmark", known=False))
        edges.append(Edge(node, bench))
    aliases = [(name, node)] + ([(f"{namespace}/{name}", node)] if namespace else [])
    return Fragment(nodes=tuple(nodes), edges=tuple(edges), aliases=tuple(aliases))


def _place(state: Path, where: Whereabouts, name: str) -> Path:
    return state / _FOLDER / where.file_name(name)
