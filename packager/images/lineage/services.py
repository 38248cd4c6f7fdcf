"""What jobs and endpoints say: which image a job made, which image an endpoint serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from packager.images.lineage.entries import weights_identity
from packager.images.lineage.graph import Edge, Fragment, LineageNode
from packager.images.lineage.records import named_image


def job_fragment(
    kind: str,
    name: str,
    status: str,
    document: Mapping[str, Any],
    results: Sequence[str],
    heads: Mapping[str, str] = MappingProxyType({}),
) -> Fragment:
    """Return the graph of a job.

    `results` are nodes of what it built, `heads` the digests of weight files that it trained.
    """
    node = f"job:{kind}/{name}"
    job = LineageNode(id=node, kind="job", label=f"{kind} job {name}", facts={"status": status})
    nodes, edges = [job], [Edge(node, result) for result in results]
    if identity := weights_identity(heads):
        head = f"model:{identity}"  # the cache's entry says what trained it
        nodes.append(LineageNode(id=head, kind="draft", label=f"head of job {name}"))
        edges.append(Edge(head, node))
    if endpoint := _endpoint_of(document):
        edges.append(Edge(f"endpoint:{endpoint}", node))
    return Fragment(nodes=tuple(nodes), edges=tuple(edges), aliases=((name, node),))


def endpoint_fragment(kind: str, name: str, status: str, document: Mapping[str, Any]) -> Fragment:
    """Return the graph of an endpoint or an inference component: the images that it runs."""
    node = f"endpoint:{name}"
    nodes = [
        LineageNode(id=node, kind="endpoint", label=f"{kind} {name}", facts={"status": status})
    ]
    edges = []
    for image in _images_of(document):
        named = named_image(image)
        nodes.append(LineageNode(id=named, kind="image", label=image, known=False))
        edges.append(Edge(named, node))
    return Fragment(nodes=tuple(nodes), edges=tuple(edges), aliases=((name, node),))


def _endpoint_of(document: Mapping[str, Any]) -> str:
    """Return the endpoint that a benchmark's document names."""
    target = document.get("BenchmarkTarget")
    endpoint = target.get("Endpoint") if isinstance(target, dict) else None
    named = endpoint.get("Identifier") if isinstance(endpoint, dict) else None
    return named.rpartition("/")[2] if isinstance(named, str) else ""


def _images_of(document: Mapping[str, Any]) -> list[str]:
    found = []
    active = document.get("active") or document.get("next")
    variants = active.get("variants") if isinstance(active, dict) else None
    for variant in variants if isinstance(variants, list) else ():
        server = variant.get("server") if isinstance(variant, dict) else None
        image = server.get("image") if isinstance(server, dict) else None
        if isinstance(image, str) and image not in found:
            found.append(image)
    return found
