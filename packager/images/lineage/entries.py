"""Lineage of an entry of the artifact cache: its key document names all of its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from artifact_cache.entry import Entry
from packager.core.units import decimal
from packager.images.lineage.graph import Edge, Fragment, LineageNode
from packager.images.lineage.records import digest_of

_WEIGHTS = (".safetensors", ".bin", ".gguf")


def entry_fragment(entry: Entry) -> Fragment:
    """Return the graph of one result: data and model by their digests, the step, the artifact."""
    step, artifact = f"step:{entry.key}", f"artifact:{entry.key}"
    nodes = [
        LineageNode(
            id=step,
            kind="step",
            label=_step_label(entry),
            facts={"kind": entry.kind, "took": f"{entry.build_s:.1f} s"},
        ),
        LineageNode(
            id=artifact,
            kind="artifact",
            label=f"{entry.kind}, {decimal(entry.total_bytes)}",
            facts={"key": entry.key, "files": str(len(entry.outputs))},
        ),
    ]
    edges = [Edge(step, artifact)]
    for node in _inputs(entry):
        nodes.append(node)
        edges.append(Edge(node.id, step))
    aliases = [(entry.key, artifact)]
    if identity := weights_identity({one.path: one.sha256 for one in entry.outputs}):
        aliases.append((f"model:{identity}", artifact))  # what a later step reads as its model
    return Fragment(nodes=tuple(nodes), edges=tuple(edges), aliases=tuple(aliases))


def weights_identity(files: Mapping[str, str]) -> str:
    """Return what identifies a model by the digests of its weight files; "" without any."""
    weights = sorted(digest for name, digest in files.items() if name.endswith(_WEIGHTS))
    return f"files:{digest_of(weights)}" if weights else ""


def _inputs(entry: Entry) -> Iterator[LineageNode]:
    """Yield what the step read: model, draft, data."""
    document = entry.keydoc
    weights = _object(document.get("weights"))
    if draft := weights_identity(_digests(weights.get("draft"))):
        yield LineageNode(id=f"model:{draft}", kind="draft", label="draft of that model")
    files = _digests(weights.get("files"))
    if identity := weights_identity(files):
        label = entry.labels.get("model", "a model")
        yield LineageNode(
            id=f"model:{identity}", kind="model", label=label, facts={"files": str(len(files))}
        )
    else:
        yield LineageNode(
            id=f"model:unknown:{entry.key}",
            kind="model",
            label=f"{entry.labels.get('model', 'a model')}: read without weights",
            known=False,
        )
    for name in ("calibration", "training", "evaluation"):
        data = _object(document.get(name))
        digest = data.get("dataset")
        if isinstance(digest, str):
            samples = data.get("samples")
            count = f"{samples} texts" if isinstance(samples, int) else "texts"
            facts = {"digest": f"sha256:{digest}"}
            yield LineageNode(id=f"data:{digest}", kind="data", label=count, facts=facts)


def _digests(files: object) -> dict[str, str]:
    return {name: one for name, one in _object(files).items() if isinstance(one, str)}


def _step_label(entry: Entry) -> str:
    packages = _object(entry.keydoc.get("toolchain")).get("packages")
    named = {
        str(one.get("name")): str(one.get("version"))
        for one in (packages if isinstance(packages, list) else ())
        if isinstance(one, dict)
    }
    tool = named.get("packager-tool", "")
    return f"{entry.kind} by {tool} {named.get(tool, '')}".strip() if tool else entry.kind


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
