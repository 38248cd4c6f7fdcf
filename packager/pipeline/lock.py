"""What a plan was resolved to, as a lock file has it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from packager.core.image import RemoteRange
from packager.core.lock import LockedBase, LockedModel, LockedTarget, LockedTool
from packager.core.model import ModelFile, ModelFiles, ModelRef
from packager.core.samples import Samples
from packager.pipeline.stages import Planned

PinFiles = Callable[[ModelFiles], ModelFiles]


def lock_of(planned: Planned, fields: Mapping[str, Any], pin_files: PinFiles) -> LockedTarget:
    """Return what the names of a target stand for; files without a commit are hashed."""
    facts, base = planned.facts, planned.facts.base
    assert base is not None
    texts = {"calibration": facts.samples, "evaluation": facts.evaluation}
    return LockedTarget(
        fields=dict(fields),
        model=_model(facts.model, pin_files),
        draft=_model(facts.draft, pin_files) if facts.draft else None,
        adapters={one.name: _pinned(one.ref, one.files, pin_files) for one in facts.adapters},
        base=LockedBase(reference=base.reference.partition("@")[0], digest=base.digest),
        tools={
            name: LockedTool(
                worker=one.worker,
                requirements=one.requirements,
                build=one.build,
                image=one.image,
            )
            for name, one in sorted(facts.tools.items())
        },
        data={name: _digest(one) for name, one in texts.items() if one is not None},
    )


def _model(model: ModelFiles, pin_files: PinFiles) -> LockedModel:
    return _pinned(model.ref, model.files, pin_files)


def _pinned(ref: ModelRef, files: tuple[ModelFile, ...], pin_files: PinFiles) -> LockedModel:
    digest = ""
    if not ref.revision:
        if ref.source == "local":
            files = pin_files(ModelFiles(ref=ref, files=files, config={}, tensors=())).files
        lines = sorted(f"{one.path} {one.sha256 or _version(one.content)}\n" for one in files)
        digest = f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"
    return LockedModel(source=ref.source, name=ref.name, revision=ref.revision, files=digest)


def _version(content: object) -> str:
    """Return the address of a remote file, in which its version is; its bytes are not read."""
    return content.url if isinstance(content, RemoteRange) else ""


def _digest(texts: Samples) -> str:
    return f"sha256:{hashlib.sha256(texts.jsonl()).hexdigest()}"
