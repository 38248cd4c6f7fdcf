"""In which format an engine reads a draft's files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packager.core.engine_rows import engine_name
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.model import ModelFiles
from packager.core.techniques import Draft
from packager.optimize.drafts.numbers import mapping

# Parts of a head that the authors' format cannot express.
ONLY_SPECULATORS = re.compile(r"(?:^|\.)embedding_layernorm\.", re.ASCII)
# Norms that an EAGLE-3 head may have, by the field that says so, and their tensors.
NORMS = {
    "norm_before_fc": re.compile(r"(?:^|\.)input_norm\.", re.ASCII),
    "fc_norm": re.compile(r"(?:^|\.)fc_norm\.", re.ASCII),
    "norm_output": None,  # the one that is there in any case
}

PEAGLE_TYPES = ("llama", "qwen3")  # vLLM 0.22 to 0.32, configs/speculators/algos.py


def served_layout(draft: Draft, container: ContainerFacts) -> str:
    """Return the format that the engine reads: the draft's own, if the engine supports it."""
    if draft.kind == "medusa":
        return container.traits.drafts.medusa_layout
    if draft.layout == "speculators" and draft.kind not in container.traits.drafts.speculators:
        return "dflash" if draft.kind == "dflash" else "eagle"
    return draft.layout


def check_layout(
    draft: Draft, container: ContainerFacts, weights: str, files: ModelFiles
) -> Iterator[Finding]:
    """Refuse mounted files in a format that would have to be written anew: they stay as they are.

    Baked ones are described anew, tensor by tensor, as the image is put together.
    """
    wanted = served_layout(draft, container)
    yield from _check_parallel(draft, container, files, wanted)
    if weights == "mounted" and wanted != draft.layout:
        message = (
            f"the draft's files are in format {draft.layout!r}; {container.engine} reads "
            f"{wanted!r}, and mounted files are served as they are"
        )
        hint = "use --weights baked, which writes them so, or mount a converted copy"
        yield Finding("error", "draft-layout", message, hint)
    named = [file.path for file in files.files if file.role == "weights"]
    who, alone = engine_name(container.engine), container.traits.drafts.medusa_file
    is_other = len(named) > 1 or (weights == "mounted" and named not in ([], [alone]))
    if draft.kind == "medusa" and alone and is_other:
        message = f"{who} reads Medusa heads from {alone!r} alone, and these are {named[:3]}"
        hint = "save the heads as one file" + (" of that name" if len(named) == 1 else "")
        yield Finding("error", "draft-layout", message, hint)
    if draft.layout == "speculators" and wanted == "eagle":
        extra = next((one.name for one in files.tensors if ONLY_SPECULATORS.search(one.name)), "")
        if extra:
            message = f"the draft has {extra[:60]!r}, which {container.engine} would leave out"
            hint = "use a vLLM from 0.10.2 on, or a head that was trained without it"
            yield Finding("error", "draft-layout", message, hint)
    if draft.kind in ("eagle3", "peagle"):
        unread = [one for one in norms_of(files) if one not in container.traits.drafts.norms]
        if unread:
            message = (
                f"the draft has the norm {unread[0]!r}, which {who} {container.engine_version} "
                "leaves out"
            )
            hint = "use a newer version of the engine, or a head that was trained without it"
            yield Finding("error", "draft-layout", message, hint)
    normed = files.config.get("norm_before_residual") is True
    if normed and not container.traits.drafts.norm_before_residual:
        message = f"the draft adds its residual after the norm, which {who} does not know"
        hint = "use --family vllm, or a head that was trained without norm_before_residual"
        yield Finding("error", "draft-layout", message, hint)


def norms_of(files: ModelFiles) -> list[str]:
    """Return which of `NORMS` a head has, by its configuration or its tensors."""
    nested = mapping(files.config.get("eagle_config"))
    return [
        name
        for name, tensors in NORMS.items()
        if nested.get(name, files.config.get(name))
        or (tensors is not None and any(tensors.search(one.name) for one in files.tensors))
    ]


def _check_parallel(
    draft: Draft, container: ContainerFacts, files: ModelFiles, wanted: str
) -> Iterator[Finding]:
    """Refuse heads that propose at once in a format which is not written anew for them."""
    if draft.kind in ("peagle", "dflash") and wanted != draft.layout:
        message = (
            f"{container.engine} {container.engine_version} reads {draft.kind!r} heads in their "
            f"authors' format alone, and this one is in that of the speculators library"
        )
        hint = "use a vLLM from 0.22.0 on, or a head that was published in the other format"
        yield Finding("error", "draft-layout", message, hint)
    own = mapping(files.config.get("transformer_layer_config")).get("model_type")
    if draft.kind == "peagle" and isinstance(own, str) and own not in PEAGLE_TYPES:
        message = f"vLLM has P-EAGLE heads like {' and '.join(PEAGLE_TYPES)}, not like {own[:40]!r}"
        yield Finding("error", "draft-layout", message, "use a head of one of those")
