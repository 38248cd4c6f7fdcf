"""How an image was made, as provenance of SLSA 1: an in-toto statement made of the build record.

What it says is what the record says: a request, pinned inputs, the steps that ran.  Times and ids
are left out, so that equal builds have equal provenance.  It proves nothing by itself: a builder
on somebody's machine is level 1 of SLSA, signed or not.

Source: slsa.dev/spec/v1.2/build-provenance (2026-11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from packager.core.image import Blob
from packager.core.model import ModelFile, ModelRef
from packager.core.record import BuildRecord
from packager.images.sbom import purls
from packager.images.signatures.statements import SLSA, statement
from packager.pipeline.attached_record import published
from packager.pipeline.record import MEASURING, RUNNING
from packager.pipeline.stages import Assembled

BUILD_TYPE = "https://packager.dev/build-types/image/v1"
_BUILDERS = "https://packager.dev/builders"
_LEFT_OUT = {"outputs", "trust_roots", *RUNNING, *MEASURING}

DigestOf = Callable[[Blob, str], str]


def make_provenance(
    assembled: Assembled, record: BuildRecord, digest_of: DigestOf, policy: str = ""
) -> bytes:
    """Return the statement about what the record names."""
    public = published(record)
    facts = assembled.planned.facts
    request = public.request.model_dump(mode="json", exclude_none=True, exclude=_LEFT_OUT)
    executor = record.request.executor or facts.request.executor or "local"
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"request": request},
            "internalParameters": _internal(public) | ({"policy": policy} if policy else {}),
            "resolvedDependencies": list(_dependencies(assembled, public, digest_of)),
        },
        "runDetails": {
            "builder": {
                "id": f"{_BUILDERS}/{executor}@v1",
                "version": {"packager": record.packager_version},
            }
        },
    }
    return statement(SLSA, predicate, [(record.served_name, one) for one in record.digests])


def _internal(record: BuildRecord) -> dict[str, Any]:
    return {
        "packager": record.packager_version,
        "family": record.family,
        "engine": f"{record.engine} {record.engine_version}".strip(),
        "tpDegree": record.tp_degree,
        "shape": record.shape,
        "created": record.created,
        "steps": [
            {"name": step.name, "tool": step.tool, "key": step.key, "versions": step.versions}
            for step in record.steps
        ],
    }


def _dependencies(
    assembled: Assembled, record: BuildRecord, digest_of: DigestOf
) -> Iterator[dict[str, Any]]:
    """Yield what went in, by digest: base, model, draft, texts."""
    facts = assembled.planned.facts
    if record.base.digest:
        yield {
            "name": "base",
            "uri": record.base.reference,
            "digest": {"sha256": record.base.digest.removeprefix("sha256:")},
        }
    yield from _model("model", facts.model.ref, facts.model.files, digest_of)
    if facts.draft is not None:
        yield from _model("draft", facts.draft.ref, facts.draft.files, digest_of)
    for adapter in facts.adapters:
        yield from _model(f"adapter/{adapter.name}", adapter.ref, adapter.files, digest_of)
    for name, samples in (("calibration", facts.samples), ("evaluation", facts.evaluation)):
        if samples is not None:
            digest = samples.digest.removeprefix("sha256:")
            yield {"name": f"{name} texts", "digest": {"sha256": digest}}


def _model(
    name: str, ref: ModelRef, files: Iterable[ModelFile], digest_of: DigestOf
) -> Iterator[dict[str, Any]]:
    """Yield a model by its commit where it has one, and its files by their digests."""
    if ref.source == "hub" and ref.revision:
        purl = purls.huggingface(ref.name, ref.revision)
        yield {"name": name, "uri": purl, "digest": {"gitCommit": ref.revision.lower()}}
    for file in files:
        content = file.content
        blob = content if isinstance(content, Blob) else Blob((content,))
        if digest := digest_of(blob, file.sha256):
            yield {"name": f"{name}/{file.path}", "digest": {"sha256": digest}}
