"""Records of a slim base: its label, and the list of removed files with reasons.

The label is small and independent of the building machine and of the proof, so that equal inputs
give equal digests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from packager.addons.nodes.slim.rules import ChosenRules, SlimRule
from packager.addons.nodes.slim.scan import SlimScan
from packager.core.errors import UsageError
from packager.core.image import BaseImage, ImageRef, Layer
from packager.core.references import RegistryTarget
from packager.core.reports.text import right_table_lines
from packager.core.text import escape
from packager.core.units import decimal
from packager.core.version import __version__
from packager.images.target import parse_target

MEDIA_SLIM = "application/vnd.packager.slim.v1+json"
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimProof:
    """Answers of the original and of the slim base, which were the same."""

    model: str
    answers: tuple[str, ...]
    original_ready_s: float
    slim_ready_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimBase:
    """A slim base and what it was made from."""

    base: BaseImage
    chosen: ChosenRules
    scan: SlimScan
    layers: tuple[Layer | None, ...] = ()  # empty if no output was written

    @property
    def size_before(self) -> int:
        """Bytes of the original as it travels."""
        return sum(layer.blob.size for layer in self.base.layers)

    @property
    def size_after(self) -> int | None:
        """Bytes of the slim base in transfer; None if no output was written."""
        if not self.layers:
            return None
        return sum(layer.blob.size for layer in self.layers if layer is not None)


def slim_label(slim: SlimBase) -> str:
    """Return the label's text: from what, by which rules, and for which machines alone."""
    taken = {gone.rule: gone.size for gone in slim.scan.gone}
    said: dict[str, Any] = {"schema": SCHEMA, "from": slim.base.digest, "rules": taken}
    rules = [rule for rule in slim.chosen.rules if rule.name in taken]
    kinds = [set(rule.kinds) for rule in rules if rule.kinds]
    if kinds:
        said["kinds"] = sorted(set.intersection(*kinds))
    if any(rule.select == "other-gpus" for rule in rules):
        capabilities = {one.compute_capability for one in slim.chosen.instances}
        said["compute_capabilities"] = sorted(found for found in capabilities if found)
    if needs := {name for rule in rules for name in _needs(rule)}:
        said["isa"] = sorted(needs)
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def slim_document(
    slim: SlimBase, digest: str = "", refs: Sequence[ImageRef] = (), proof: SlimProof | None = None
) -> dict[str, Any]:
    """Return everything that is known of a slim base, as `--format json` prints it."""
    taken = {gone.rule: gone for gone in slim.scan.gone}
    return {
        "schema": SCHEMA,
        "packager": __version__,
        "reference": slim.base.reference,
        "from": slim.base.digest,
        "digest": digest or None,
        "images": [str(ref) for ref in refs],
        "platform": str(slim.base.platform),
        "instances": [one.name for one in slim.chosen.instances],
        "size_before": slim.size_before,
        "size_after": slim.size_after,
        "gone_bytes": sum(gone.size for gone in slim.scan.gone),
        "gone_files": sum(gone.files for gone in slim.scan.gone),
        "rules": [
            {
                "name": rule.name,
                "why": rule.why,
                "source": rule.source,
                "date": rule.date,
                "files": taken[rule.name].files,
                "bytes": taken[rule.name].size,
                "largest": [
                    {"path": escape(path), "bytes": size} for path, size in taken[rule.name].largest
                ],
            }
            for rule in slim.chosen.rules
            if rule.name in taken
        ],
        "not_applied": dict(slim.chosen.not_applied),
        "kept_for_links": [escape(path) for path in slim.scan.linked],
        "layers": _layers(slim),
        "proof": asdict(proof) if proof else None,
    }


def attached_document(document: Mapping[str, Any]) -> bytes:
    """Return the record as it is attached: without paths and names of this machine."""
    said = dict(document)
    del said["images"]
    if not isinstance(_target_of(str(said["reference"])), RegistryTarget):
        said["reference"] = str(said["reference"]).partition(":")[0]
    if proof := said["proof"]:
        said["proof"] = {**proof, "model": str(proof["model"]).rstrip("/").rpartition("/")[2]}
    return json.dumps(said, sort_keys=True, indent=1).encode()


def slim_lines(slim: SlimBase, proof: SlimProof | None = None) -> list[str]:
    """Return the removed files with rule and reason, and the remaining size, as text."""
    gone = slim.scan.gone
    rows = [[decimal(one.size), str(one.files), one.rule] for one in gone]
    whys = {rule.name: rule.why for rule in slim.chosen.rules}
    lines = right_table_lines(["bytes", "files", "rule"], rows) if rows else ["nothing goes"]
    lines += ["", *(f"{one.rule}: {whys[one.rule]}" for one in gone)]
    lines += [f"{name} is left out: {why}" for name, why in slim.chosen.not_applied]
    if slim.scan.linked:
        lines.append(f"{len(slim.scan.linked)} files stay, since hard links of others name them")
    total = sum(one.size for one in gone)
    rewritten = sum(one.is_rewritten for one in slim.scan.layers)
    layers = f"{rewritten} of {len(slim.scan.layers)} layers"
    before = decimal(slim.size_before)
    if slim.size_after is None:
        lines.append(f"{decimal(total)} of files would go, {layers} be rewritten; it has {before}")
    else:
        after = decimal(slim.size_after)
        lines.append(f"{before} became {after}: {decimal(total)} of files went, {layers} are new")
    if proof:
        lines.append(
            f"proven with {proof.model}: {len(proof.answers)} answers are the original's; "
            f"ready after {proof.slim_ready_s:.1f} s, the original after "
            f"{proof.original_ready_s:.1f} s"
        )
    return [escape(line) for line in lines]


def _layers(slim: SlimBase) -> list[dict[str, Any]]:
    rows = []
    for at, (layer, scan) in enumerate(zip(slim.base.layers, slim.scan.layers, strict=True)):
        made = slim.layers[at] if slim.layers else None
        state = "kept"
        if scan.is_rewritten:
            state = "rewritten" if scan.entries else "dropped"
        row = {"state": state, "from": layer.digest, "size_before": layer.blob.size}
        rows.append(row | ({"digest": made.digest, "size": made.blob.size} if made else {}))
    return rows


def _needs(rule: SlimRule) -> tuple[str, ...]:
    return rule.needs if rule.select == "other-processors" else ()


def _target_of(reference: str) -> object:
    try:
        return parse_target(reference)
    except UsageError:
        return None
