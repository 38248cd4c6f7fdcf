"""Lineage of an image by its build record.

Records are read as documents, not as values of this version: those of an older or newer packager
are read as far as possible.  Raises `NotStrict` for other documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packager.core.documents import NotStrict
from packager.core.documents import field as typed
from packager.core.quality import STEP as MEASURING
from packager.images.lineage.graph import Edge, Fragment, LineageNode, NodeKind
from packager.images.oci import is_digest
from packager.images.target import engine_name, is_relative

NAMED_IMAGE = "image:name:"
MAX_STEPS = 64  # of one record; a build has a handful
MAX_ADAPTERS = 1024  # likewise


def record_fragment(record: Mapping[str, Any], *, claimed: bool = False) -> Fragment:
    """Return the graph of one build: model, data and base, steps, results, what measured them.

    The first node is what the record is of: the image, or the tree of files where there is none.
    """
    digest = typed(record, "digest", str)
    if not is_digest(digest):
        raise NotStrict("its digest is none")
    parts = _Parts(claimed)
    results = _results(record, digest, parts)
    model = _model(record, parts)
    steps = _objects(record.get("steps"))[:MAX_STEPS]
    last = _steps(steps, model, record, parts)
    before = (_base(record, parts), last or model, _draft(record, parts), *_adapters(record, parts))
    for result in results:
        for one in before:
            parts.join(one, result)
    _measured(record, digest, results[0], steps, parts)
    return parts.fragment()


def _results(record: Mapping[str, Any], digest: str, parts: _Parts) -> list[str]:
    """Add the image and the trees that the build wrote; a tree is known by its manifest."""
    trees: dict[str, list[str]] = {}
    for tree in _objects(record.get("trees"))[:MAX_STEPS]:
        if is_digest(tree.get("digest")):
            trees.setdefault(str(tree["digest"]), []).append(_text(tree.get("name")))
    label, facts = _image_label(record), _image_facts(record)
    results = []
    if digest not in trees:
        plain = record.get("plain_digest")  # what an image of two forms is read as
        name = str(plain) if is_digest(plain) else digest
        results.append(parts.add("image", name, label, facts))
        for one in filter(None, _image_names(record)):
            parts.aliases.append((one, results[0]))
            parts.aliases.append((named_image(one), results[0]))
    for manifest, names in trees.items():
        more = {**facts, "digest": manifest, "names": " ".join(names)}
        made = parts.add("tree", manifest, label, more)
        known = (manifest, *names, _text(record.get("served_name")))
        parts.aliases += [(name, made) for name in known]
        results.append(made)
    return results


def named_image(name: str) -> str:
    """Return the node of an image that is known by a name alone, such as an endpoint's."""
    return f"{NAMED_IMAGE}{engine_name(name)}"


def digest_of(values: Iterable[str]) -> str:
    """Return one digest over several, in their order."""
    return hashlib.sha256("\n".join(values).encode()).hexdigest()


class _Parts:
    """Nodes and edges as they are found."""

    def __init__(self, claimed: bool) -> None:
        self._claimed = claimed
        self.nodes: list[LineageNode] = []
        self.edges: list[Edge] = []
        self.aliases: list[tuple[str, str]] = []

    def add(
        self,
        kind: NodeKind,
        name: str,
        label: str,
        facts: Mapping[str, str] | None = None,
        *,
        known: bool = True,
    ) -> str:
        node = f"{kind}:{name}"
        kept = {name: value for name, value in (facts or {}).items() if value}
        self.nodes.append(
            LineageNode(
                id=node, kind=kind, label=label, facts=kept, claimed=self._claimed, known=known
            )
        )
        return node

    def join(self, source: str, target: str) -> None:
        if source and target:
            self.edges.append(Edge(source, target))

    def fragment(self) -> Fragment:
        return Fragment(
            nodes=tuple(self.nodes), edges=tuple(self.edges), aliases=tuple(self.aliases)
        )


def _image_label(record: Mapping[str, Any]) -> str:
    request = _object(record.get("request"))
    instance = _text(request.get("instance"))
    return f"{_text(record.get('served_name')) or 'image'}{' for ' + instance if instance else ''}"


def _image_facts(record: Mapping[str, Any]) -> dict[str, str]:
    engine = f"{_text(record.get('engine'))} {_text(record.get('engine_version'))}".strip()
    names = " ".join(_text(image.get("name")) for image in _objects(record.get("images")))
    return {
        "digest": _text(record.get("digest")),
        "engine": engine,
        "family": _text(record.get("family")),
        "packager": _text(record.get("packager_version")),
        "names": names,
    }


def _image_names(record: Mapping[str, Any]) -> Iterator[str]:
    yield _text(record.get("digest"))
    yield _text(record.get("plain_digest"))
    yield _text(record.get("config_digest"))
    yield _text(record.get("served_name"))
    for image in _objects(record.get("images")):
        yield _text(image.get("name"))
        if not is_relative(target := _text(image.get("target"))):
            yield target


def _model(record: Mapping[str, Any], parts: _Parts) -> str:
    """Add the model: by its revision on a hub, else by the layers that hold its weights."""
    model = _object(record.get("model"))
    source, name = _text(model.get("source")), _text(model.get("name"))
    revision = _text(model.get("revision"))
    facts = {"source": source, "name": name, "revision": revision}
    if revision:
        return parts.add("model", f"{source}:{name}@{revision}", f"{name}@{revision[:12]}", facts)
    if any(step.get("name") != MEASURING for step in _objects(record.get("steps"))):
        return ""  # what the steps read is known by their keys
    weights = _layers(record, "weights")
    identity = digest_of(weights) if weights else _text(record.get("digest"))
    return parts.add("model", f"layers:{identity}", f"{name} ({source})", facts)


def _base(record: Mapping[str, Any], parts: _Parts) -> str:
    base = _object(record.get("base"))
    reference, digest = _text(base.get("reference")), _text(base.get("digest"))
    if not digest:
        return ""  # `scratch` is empty
    return parts.add("base", digest, reference, {"digest": digest, "reference": reference})


def _steps(
    steps: list[Mapping[str, Any]], model: str, record: Mapping[str, Any], parts: _Parts
) -> str:
    """Add the steps, each of which reads what the one before it made; return the last result."""
    before = model
    request = _object(record.get("request"))
    name = _text(_object(record.get("model")).get("name"))
    for step in steps:
        tool, key = _text(step.get("tool")), _text(step.get("key"))
        identity = key or f"{_text(record.get('digest'))}/{_text(step.get('name'))}"
        ran = parts.add("step", identity, f"{_text(step.get('name'))} by {tool}", _step_facts(step))
        if before:
            parts.join(before, ran)
        elif not key:
            unknown = parts.add(
                "model", f"unknown:{identity}", f"{name}: contents unknown", known=False
            )
            parts.join(unknown, ran)
        calibration = _text(request.get("calibration"))
        if calibration and step.get("name") == "quantize":
            parts.join(parts.add("data", f"name:{calibration}:{key}", calibration), ran)
        if _text(step.get("name")) == MEASURING:
            parts.aliases += [(key, ran)] if key else []
            continue  # nothing is made of its result
        before = ran
        if key:
            before = parts.add("artifact", key, _result_label(name, step, request), {"key": key})
            parts.aliases.append((key, before))
            parts.join(ran, before)
    return before


def _result_label(model: str, step: Mapping[str, Any], request: Mapping[str, Any]) -> str:
    """Return which model a step's result is: `tiny-llama, quantized: awq`."""
    name = _text(step.get("name"))
    method = _text(request.get("quantize"))
    if name == "quantize" and method:
        return f"{model}, quantized: {method}"
    return f"{model}, after {name}"


def _step_facts(step: Mapping[str, Any]) -> dict[str, str]:
    versions = _object(step.get("versions"))
    version_words = ", ".join(
        f"{name} {_text(version)}" for name, version in sorted(versions.items())
    )
    seconds = step.get("seconds")
    took = f"{seconds:.1f} s" if isinstance(seconds, int | float) and seconds > 0 else ""
    return {"tool": _text(step.get("tool")), "versions": version_words, "took": took}


def _adapters(record: Mapping[str, Any], parts: _Parts) -> Iterator[str]:
    """Add the adapters that are beside the weights, and the one that is in them."""
    merged = _object(record.get("merged_adapter"))
    for one in (*_objects(record.get("adapters"))[:MAX_ADAPTERS], *([merged] if merged else ())):
        name, place, revision, digest = (
            _text(one.get(key)) for key in ("name", "model", "revision", "sha256")
        )
        known = f"{_text(one.get('source'))}:{place}@{revision}"
        identity = digest or (known if revision else f"name:{place}")
        facts = {"name": place, "revision": revision, "trained on": _text(one.get("trained_on"))}
        label = f"{name}, merged" if one is merged else name
        yield parts.add("adapter", identity, label, facts)


def _draft(record: Mapping[str, Any], parts: _Parts) -> str:
    draft = _object(record.get("draft"))
    kind, name = _text(draft.get("kind")), _text(draft.get("name"))
    if not kind or not _text(draft.get("source")):
        return ""  # n-grams have no files
    revision = _text(draft.get("revision"))
    layers = _layers(record, "draft")
    known = f"{_text(draft.get('source'))}:{name}@{revision}"
    identity = known if revision else f"layers:{digest_of(layers)}" if layers else f"name:{name}"
    facts = {"kind": kind, "name": name, "revision": revision}
    return parts.add("draft", identity, f"{name} ({kind})", facts)


def _measured(
    record: Mapping[str, Any],
    digest: str,
    image: str,
    steps: list[Mapping[str, Any]],
    parts: _Parts,
) -> None:
    """Add what was measured: the quality of the quantized model, the image where it serves."""
    quality = _object(_object(record.get("quality")).get("quality"))
    if quality:
        keys = [_text(step.get("key")) for step in steps if step.get("name") != MEASURING]
        key = next((one for one in keys if one), "")
        facts = {name: _number(quality.get(name)) for name in ("kld_mean", "top1_agreement")}
        found = parts.add("evaluation", key or digest, "quality against the base", facts)
        parts.join(f"artifact:{key}" if key else image, found)
    bench = _object(record.get("bench"))
    if bench:
        measured = _text(bench.get("measured"))
        workload = _text(_object(bench.get("workload")).get("name"))
        label = f"benchmark of {measured}"
        found = parts.add("benchmark", f"{digest}/{measured}", label, {"workload": workload})
        parts.join(image, found)
    smoke = _object(record.get("smoke"))
    if smoke:
        asked, place = _text(smoke.get("asked")), _text(smoke.get("deployment"))
        facts = {"deployment": place, "instance": _text(smoke.get("instance"))}
        facts["seconds"] = _number(smoke.get("seconds"))
        found = parts.add("benchmark", f"{digest}/smoke/{asked}", f"answer of {place}", facts)
        parts.join(image, found)
    speculation = _object(record.get("speculation"))
    if speculation:
        parts.join(image, parts.add("benchmark", f"{digest}/draft", "what the draft gains"))


def _layers(record: Mapping[str, Any], role: str) -> list[str]:
    layers = _objects(record.get("layers"))
    return [_text(layer.get("digest")) for layer in layers if layer.get("role") == role]


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value[:1000] if isinstance(value, str) else ""


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) and not isinstance(value, bool) else ""
