"""In which format an engine reads a draft's files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.model import ModelFiles
from packager.core.techniques import Draft
from packager.core.versions import version_key

# Parts of a head that the authors' format has no place for: norms before `fc`.
ONLY_SPECULATORS = re.compile(r"(?:^|\.)(?:input_norm|fc_norm|embedding_layernorm)\.", re.ASCII)

MEDUSA_WEIGHTS = "medusa_lm_head.safetensors"  # the one name that TGI looks for
SPECULATORS_SINCE = version_key("0.10.2")  # the oldest vLLM whose options are known to have it


def served_layout(draft: Draft, container: ContainerFacts) -> str:
    """Name the format that the engine reads: the draft's own, where it reads that."""
    if draft.kind == "medusa":
        return "blocks" if container.engine == "vllm" else "medusa"
    if draft.layout == "speculators" and not _reads_speculators(container):
        return "eagle"
    return draft.layout


def check_layout(
    draft: Draft, container: ContainerFacts, weights: str, files: ModelFiles
) -> Iterator[Finding]:
    """Refuse mounted files in a format that would have to be written anew: they stay as they are.

    Baked ones are described anew, tensor by tensor, as the image is put together.
    """
    wanted = served_layout(draft, container)
    if weights == "mounted" and wanted != draft.layout:
        message = (
            f"the draft's files are in format {draft.layout!r}; {container.engine} reads "
            f"{wanted!r}, and mounted files are served as they are"
        )
        hint = "use --weights baked, which writes them so, or mount a converted copy"
        yield Finding("error", "draft-layout", message, hint)
    named = [file.path for file in files.files if file.role == "weights"]
    alone = draft.kind == "medusa" and container.engine == "tgi"
    if alone and (len(named) > 1 or (weights == "mounted" and named not in ([], [MEDUSA_WEIGHTS]))):
        message = f"TGI reads Medusa heads from {MEDUSA_WEIGHTS!r} alone, and these are {named[:3]}"
        hint = "save the heads as one file" + (" of that name" if len(named) == 1 else "")
        yield Finding("error", "draft-layout", message, hint)
    if draft.layout == "speculators" and wanted == "eagle":
        extra = next((one.name for one in files.tensors if ONLY_SPECULATORS.search(one.name)), "")
        if extra:
            message = f"the draft has {extra[:60]!r}, which {container.engine} would leave out"
            hint = "use a vLLM from 0.10.2 on, or a head that was trained without it"
            yield Finding("error", "draft-layout", message, hint)
    if container.engine == "sglang" and files.config.get("norm_before_residual") is True:
        message = "the draft adds its residual after the norm, which SGLang does not know"
        hint = "use --family vllm, or a head that was trained without norm_before_residual"
        yield Finding("error", "draft-layout", message, hint)


def _reads_speculators(container: ContainerFacts) -> bool:
    found = version_key(container.engine_version)
    if container.engine != "vllm":
        return False
    return found is None or SPECULATORS_SINCE is None or found >= SPECULATORS_SINCE
