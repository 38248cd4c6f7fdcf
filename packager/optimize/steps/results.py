"""Files that a step produced, as files of an image."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packager.core.errors import PackagerError
from packager.core.files.opening import identity_of
from packager.core.findings import errors_in
from packager.core.image import FileRange, Inline
from packager.core.model import ModelFile, ModelFiles
from packager.core.recipe import Step
from packager.core.references import DirectoryReference
from packager.images.blobs import BlobReader
from packager.models.checkpoints.gate import inspect_quantized, quantized_scales
from packager.models.checkpoints.ranks import rank_faults
from packager.models.checkpoints.whole import describe_lost, lost_tensors
from packager.models.local import LocalSource
from packager.models.safetensors import read_weights_header
from packager.models.scales import read_scale_values
from packager.optimize.steps.failures import StepBroken

# kind of result (`quality`, `answers`, `head`) → reads its files, or raises
ResultChecks = Mapping[str, Callable[[tuple[ModelFile, ...]], object]]

CONFIG = "config.json"
ADDED = "quantization_config"  # all that quantizing adds to it


def read_result(
    step: Step, place: Path, digests: Mapping[str, str], checks: ResultChecks
) -> tuple[ModelFile, ...]:
    """Read a result as its declared kind; a checkpoint is checked like one of the user's.

    `digests` are those that the cache compared the files with, by path; `checks` has a check
    for each kind of result that a technique of its own understands.
    """
    if step.gives == "compiled":
        found = _all_files(place, digests)
    elif step.gives == "ranks":
        found = _all_files(place, digests)
        if faults := rank_faults(found, step.parameters["ranks"]):
            raise StepBroken(
                f"step {step.name!r} left weights that no engine can load: {faults[0]}",
                hint="build again; `packager cache check` looks at what is in the cache",
            )
    elif step.gives in ("quality", "answers"):
        found = _all_files(place, digests)
        checks[step.gives](found)
    else:
        # What is carried was checked where it comes from, and is not in the result.
        # Files with digests are the cache's: another build may link them at any time.
        is_draft = step.gives != "model" or bool(step.carried)
        source = LocalSource(is_draft=is_draft, is_linked=bool(digests))
        try:
            model = source.facts(DirectoryReference.at(place))
            found = model.files
            if step.gives == "head":
                found = _all_files(place, digests)
                checks["head"](found)
        except PackagerError as error:
            kind = "model" if step.gives == "model" else "draft"
            raise StepBroken(
                f"step {step.name!r} left no {kind} that can be served: {error.message}",
                hint=error.hint,
            ) from error
        if step.gives == "model":
            _check_whole(step, model)
            _check_sound(step, model)
    found = tuple(_with_digest(file, digests.get(file.path, "")) for file in found)
    if step.gives == "model" and step.config is not None:
        found = (*without(found, CONFIG), composed_config(step, model.config))
    own = {file.path for file in found}
    carried = (file for file in step.carried if file.path not in own)
    return tuple(sorted((*found, *carried), key=lambda file: file.path))


def _check_whole(step: Step, model: ModelFiles) -> None:
    """Refuse a model that lacks tensors of its source, also one from the cache."""
    lost = lost_tensors(step.tensors, model.tensors, model.config)
    if lost:
        raise StepBroken(
            f"step {step.name!r} left another model than it was given: "
            f"{describe_lost(lost, len(step.tensors))}",
            hint="quantize with another method, or leave modules out with --quantize-ignore",
        )


def _check_sound(step: Step, model: ModelFiles) -> None:
    """Refuse a model that would be refused if it arrived quantized."""
    read = BlobReader().read
    values = read_scale_values(
        model,
        quantized_scales(model),
        read_header=lambda file: read_weights_header(file, read),
        read=read,
    )
    faults = errors_in(inspect_quantized(model, values).findings)
    if faults:
        raise StepBroken(
            f"step {step.name!r} left a model that no engine computes right with: "
            + "; ".join(fault.message for fault in faults),
            hint="quantize with another method, or leave modules out with --quantize-ignore",
        )


def composed_config(step: Step, made: Mapping[str, Any]) -> ModelFile:
    """Write the source's config.json as it is now, with what quantizing added to it."""
    if not isinstance(made.get(ADDED), Mapping):
        raise StepBroken(f"step {step.name!r} left a config.json without {ADDED!r}")
    document = {**(step.config or {}), ADDED: made[ADDED]}
    data = (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
    digest = hashlib.sha256(data).hexdigest()
    return ModelFile(path=CONFIG, role="config", content=Inline(data), sha256=digest)


def without(files: tuple[ModelFile, ...], path: str) -> tuple[ModelFile, ...]:
    """Return the files without the one at `path`."""
    return tuple(file for file in files if file.path != path)


def _with_digest(file: ModelFile, sha256: str) -> ModelFile:
    """Return the file with its digest as content identity: hard links change its ctime."""
    content = file.content
    if not sha256 or not isinstance(content, FileRange):
        return file
    return replace(file, sha256=sha256, content=replace(content, sha256=sha256))


def _all_files(place: Path, digests: Mapping[str, str]) -> tuple[ModelFile, ...]:
    files = (
        _file(path, path.relative_to(place).as_posix())
        for path in sorted(place.rglob("*"))
        if path.is_file()
    )
    return tuple(_with_digest(file, digests.get(file.path, "")) for file in files)


def _file(path: Path, name: str) -> ModelFile:
    real = Path(os.path.realpath(path))
    status = real.lstat()
    content = FileRange(
        path=str(real), offset=0, length=status.st_size, checked=identity_of(status)
    )
    executable = bool(status.st_mode & 0o100)
    return ModelFile(path=name, role="other", content=content, executable=executable)
