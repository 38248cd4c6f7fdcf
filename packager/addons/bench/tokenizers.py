"""Where a tokenizer's file is: here, or fetched alone from a hub."""

from __future__ import annotations

from pathlib import Path

from packager.addons.bench.load.tokenizer import MAX_TOKENIZER_BYTES, TOKENIZER
from packager.core.references import HubReference
from packager.models.reference import parse_model_reference

MAIN = "main"


def find_tokenizer(text: str) -> Path:
    """Return the path of a directory, a file, or the tokenizer of `org/name[@revision]`.

    From a hub no other file is fetched.  A path is not checked; a hub's errors are raised as for
    models.
    """
    if Path(text).exists():
        return Path(text)
    reference = parse_model_reference(text)
    return _fetched(reference) if isinstance(reference, HubReference) else Path(text)


def _fetched(reference: HubReference) -> Path:
    from huggingface_hub import HfApi

    from packager.core.remote.hub_failures import HubRequest, explained
    from packager.core.remote.hub_session import downloading, limit_answers

    limit_answers()
    api = HfApi(library_name="packager", headers={"Accept-Encoding": "identity"})
    revision = reference.revision or MAIN
    asked = HubRequest(
        name=reference.name, revision=revision, endpoint=api.endpoint, keeps_files=True
    )
    with explained(asked), downloading(TOKENIZER, MAX_TOKENIZER_BYTES):
        return Path(api.hf_hub_download(reference.name, TOKENIZER, revision=revision))
