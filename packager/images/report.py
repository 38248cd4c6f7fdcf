"""Images that exist, for people and programs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from packager.core.image import Written, stated_time
from packager.core.record import Transfer
from packager.core.reports.report import (
    Pair,
    Pairs,
    Report,
    Section,
    Words,
    one_section,
    plain_table,
)
from packager.core.units import decimal
from packager.images.compare import ImageComparison, SettingChange, State
from packager.images.slim_label import LABEL, slim_words
from packager.images.stored import LABELS, RECORD, StoredImage, StoredLayer

_STATES: dict[State, str] = {"shared": "has it", "moved": "has the bytes", "new": "pulls it"}
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST_VALUE = 60

Seen = Mapping[str, Sequence[str]]  # digest → repositories that were seen to have it
NOWHERE: Seen = MappingProxyType({})


def inspect_document(
    image: StoredImage, others: Sequence[StoredImage] = (), seen: Seen = NOWHERE
) -> dict[str, Any]:
    """Return an image layer by layer, and which `others` or repositories have each layer."""
    runtime = image.runtime
    return {
        "reference": image.reference,
        "digest": image.digest,
        "media_type": image.sealed.manifest_descriptor.media_type,
        "artifact_type": image.manifest.get("artifactType"),
        "platform": str(image.platform) if image.is_runnable else None,
        "created": image.config.get("created"),
        "base_digest": image.base_digest or None,
        "size": _size(image.layers),
        "made": _made(image) or None,
        "runtime": {
            "entrypoint": runtime.get("Entrypoint"),
            "cmd": runtime.get("Cmd"),
            "env": runtime.get("Env") or [],
            "healthcheck": runtime.get("Healthcheck"),
            "labels": {name: value for name, value in image.labels.items() if name != RECORD},
        },
        "roles": {role: _size(layers) for role, layers in _by_role(image).items()},
        "layers": [
            {
                **_layer_document(layer),
                "shared_with": [other.reference for other in _sharing(layer, others)],
                "seen_in": list(seen.get(_digest(layer), ())),
            }
            for layer in image.layers
        ],
        "shared_with": [
            {"reference": other.reference, "digest": other.digest, "size": _shared(image, other)}
            for other in others
        ],
        "seen_in": {name: _size(found) for name, found in _seen_in(image, seen).items()},
    }


def inspect_report(
    image: StoredImage,
    others: Sequence[StoredImage] = (),
    seen: Seen = NOWHERE,
    later: tuple[Section, ...] = (),
) -> Report:
    """Return an image, its layers, and what is known of it `later`."""
    facts = [
        ("image", image.reference),
        ("digest", image.digest),
        ("is", str(image.manifest.get("artifactType") or f"an image for {image.platform}")),
        ("base", image.base_digest),
        ("slim", slim_words(image.labels.get(LABEL, ""))),
        ("created", stated_time(image.config.get("created"))),
        *_made_rows(image),
        ("starts", " ".join(_words(image, "Entrypoint") + _words(image, "Cmd"))),
    ]
    roles = ", ".join(f"{role} {decimal(_size(found))}" for role, found in _by_role(image).items())
    facts.append(("holds", f"{decimal(_size(image.layers))}: {roles}" if roles else "nothing"))
    for other in others:
        facts.append(("shares", f"{decimal(_shared(image, other))} with {other.reference}"))
    for name, found in _seen_in(image, seen).items():
        facts.append(("seen", f"{decimal(_size(found))} in {name}"))
    header = ["layer", "size", "digest", "from"] + (["shared with"] if others else [])
    rows = []
    for layer in image.layers:
        row = [layer.role, decimal(layer.size), _digest(layer)[:19], _short(layer.created_by)]
        sharing = ", ".join(other.reference for other in _sharing(layer, others))
        rows.append(row + ([sharing or "-"] if others else []))
    pairs = Pairs(tuple(Pair(label, value) for label, value in facts))
    return Report(
        kind="Image",
        title=image.reference,
        sections=(
            Section(key="made", title="How it was made", parts=(pairs,)),
            Section(key="layers", title="Layers", parts=(plain_table(header, rows),)),
            *later,
        ),
    )


def diff_document(found: ImageComparison) -> dict[str, Any]:
    """Return the layers a node with the first image pulls for the second, and changed settings."""
    return {
        "a": {"reference": found.a.reference, "digest": found.a.digest},
        "b": {"reference": found.b.reference, "digest": found.b.digest},
        "same": found.same,
        "pull": found.size("new"),
        "pull_by_position": found.size("new", "moved"),
        "shared": found.size("shared", "moved"),
        "layers": [
            {"state": entry.state, "cause": entry.cause or None, **_layer_document(entry.layer)}
            for entry in found.layers
        ],
        "gone": [_layer_document(layer) for layer in found.gone],
        "changes": [
            {"what": change.what, "before": change.before, "after": change.after}
            for change in found.changes
        ],
    }


def diff_report(found: ImageComparison) -> Report:
    """The same as a report: the bytes first."""
    title = f"{found.a.reference} and {found.b.reference}"
    if found.same:
        return one_section(title, Words(f"{title} are one image: {found.a.digest}", is_soft=False))
    rows = [
        (
            entry.layer.role,
            decimal(entry.layer.size),
            _digest(entry.layer)[:19],
            _STATES[entry.state],
            entry.cause,
        )
        for entry in found.layers
    ]
    pulled = sum(entry.state == "new" for entry in found.layers)
    parts = [
        Words(
            f"{decimal(found.size('new'))}, {pulled} of {len(found.layers)} layers; has "
            f"{decimal(found.size('shared', 'moved'))}",
            label="pulls",
        )
    ]
    if found.size("moved"):
        parts.append(
            Words(
                f"{decimal(found.size('new', 'moved'))} where the engine keeps layers by what is "
                "below them (Docker without the containerd image store)"
            )
        )
    layers = plain_table(("layer", "size", "digest", "a node with the first", "because"), rows)
    changes = plain_table(("setting", "before", "after"), _change_rows(found.changes))
    return Report(
        kind="Images compared",
        title=title,
        sections=(
            Section(key="layers", title="Layers", parts=(layers,)),
            Section(key="pulls", title="What a node pulls", parts=tuple(parts)),
            *((Section(key="settings", title="Settings", parts=(changes,)),) * bool(changes.rows)),
        ),
    )


def copy_document(
    source: StoredImage, written: Written, transfer: Transfer, view: str | None, attached: int = 0
) -> dict[str, Any]:
    """Return the result of a copy."""
    return {
        "source": {"reference": source.reference, "digest": source.digest},
        "view": view,
        "digest": written.image.digest,
        "images": [
            {"target": ref.target, "name": ref.name, "digest": ref.digest} for ref in written.refs
        ],
        "layers": [
            {"role": layer.role, "digest": layer.digest, "size": layer.size}
            for layer in written.layers
        ],
        "transfer": transfer.model_dump(),
        "attached": attached,
    }


def copy_lines(written: Written, transfer: Transfer) -> list[str]:
    """The same in a line."""
    total = decimal(sum(layer.size for layer in written.layers))
    return [
        f"{len(written.layers)} layers, {total}: read {decimal(transfer.bytes_read)}, "
        f"sent {decimal(transfer.bytes_sent)}, {transfer.layers_known} known or mounted"
    ]


def _made(image: StoredImage) -> dict[str, Any]:
    labels = {
        name.removeprefix(LABELS): value
        for name, value in image.labels.items()
        if name.startswith(LABELS) and name != RECORD
    }
    return {**labels, **({"record": dict(image.record)} if image.record else {})}


def _made_rows(image: StoredImage) -> list[tuple[str, str]]:
    record, labels = image.record, image.labels
    if not record:
        return []
    model = record.get("model")
    model = model if isinstance(model, dict) else {}
    revision = f"@{str(model['revision'])[:12]}" if model.get("revision") else ""
    made = [f"packager {labels.get('dev.packager.version', '')}"]
    made += [f"{name} {record[name]}" for name in ("engine", "precision") if record.get(name)]
    layout = record.get("split") or (f"TP {record['tp_degree']}" if "tp_degree" in record else "")
    made += [str(layout)] if layout else []
    family = labels.get("dev.packager.family", "")
    instance = labels.get("dev.packager.instance", "")
    return [
        ("model", f"{model.get('name', '')}{revision} ({model.get('source', '')})"),
        *_draft_rows(record.get("draft")),
        *_adapter_rows(record.get("adapters")),
        ("built by", ", ".join(made)),
        ("for", f"{instance}, family {family}"),
    ]


def _draft_rows(draft: object) -> list[tuple[str, str]]:
    if not isinstance(draft, dict):
        return []
    named = f" {draft['name']}" if draft.get("name") else ""
    revision = f"@{str(draft['revision'])[:12]}" if draft.get("revision") else ""
    source = f" ({draft['source']})" if draft.get("source") else ""
    license_ = f", {draft['license']}" if draft.get("license") else ""
    tokens = draft.get("speculative_tokens", "?")
    said = f"{draft.get('kind', '')}{named}{revision}{source}{license_}, {tokens} tokens at a time"
    return [("draft", said)]


def _adapter_rows(adapters: object) -> list[tuple[str, str]]:
    found = [one for one in adapters if isinstance(one, dict)] if isinstance(adapters, list) else []
    named = [f"{one.get('name', '')} (rank {one.get('rank', '?')})" for one in found]
    return [("adapters", ", ".join(named))] if named else []


def _by_role(image: StoredImage) -> dict[str, list[StoredLayer]]:
    found: dict[str, list[StoredLayer]] = {}
    for layer in image.layers:
        found.setdefault(layer.role, []).append(layer)
    return found


def _layer_document(layer: StoredLayer) -> dict[str, Any]:
    return {
        "role": layer.role,
        "digest": _digest(layer),
        "size": layer.size,
        "media_type": layer.descriptor.media_type,
        "created_by": layer.created_by or None,
    }


def _digest(layer: StoredLayer) -> str:
    return layer.descriptor.digest


def _sharing(layer: StoredLayer, others: Sequence[StoredImage]) -> list[StoredImage]:
    """Return those of `others` that have the layer too."""
    return [other for other in others if _digest(layer) in {_digest(held) for held in other.layers}]


def _shared(image: StoredImage, other: StoredImage) -> int:
    return _size([layer for layer in image.layers if _sharing(layer, [other])])


def _seen_in(image: StoredImage, seen: Seen) -> dict[str, list[StoredLayer]]:
    """Return the repositories that some layers were seen in, those with the most bytes first."""
    found: dict[str, list[StoredLayer]] = {}
    for layer in image.layers:
        for name in seen.get(_digest(layer), ()):
            found.setdefault(name, []).append(layer)
    return dict(sorted(found.items(), key=lambda entry: (-_size(entry[1]), entry[0])))


def _size(layers: Sequence[StoredLayer]) -> int:
    """Bytes of layers, each digest once."""
    return sum({_digest(layer): layer.size for layer in layers}.values())


def _words(image: StoredImage, name: str) -> list[str]:
    found = image.runtime.get(name)
    return [str(word) for word in found] if isinstance(found, list) else []


def _change_rows(changes: Sequence[SettingChange]) -> list[tuple[str, str, str]]:
    return [
        (change.what, _short(_value(change.before)), _short(_value(change.after)))
        for change in changes
    ]


def _value(value: object) -> str:
    if value is None or value == "":
        return "-"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _short(text: str) -> str:
    line = _DIGEST.sub(lambda found: found[0][:19], " ".join(text.split()))
    return line if len(line) <= _LONGEST_VALUE else line[: _LONGEST_VALUE - 1] + "…"
