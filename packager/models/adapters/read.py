"""Reading an adapter: its files like a model's, of its weights the header alone."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from packager.core.adapters import CONFIG, WEIGHTS, Adapter, check_adapter_name
from packager.core.documents import NotStrict, parse_object
from packager.core.image import FileRange, RemoteRange
from packager.core.model import ModelFile, ModelFiles, ModelRef
from packager.models.adapters.choosing import UNREAD, choose_adapter_files
from packager.models.adapters.configuration import read_fields
from packager.models.adapters.pairs import read_pairs
from packager.models.contents import check_small_file, ranges_of, read_shard, readable
from packager.models.model_card import CARD
from packager.models.paths import check_distinct, check_path
from packager.models.refusals import broken_json
from packager.models.remote_headers import Headers
from packager.models.rules import ListedModelFile, role_of
from packager.models.walk import Found

MAX_CONFIG_BYTES = 10_000_000


def load_adapter(
    ref: ModelRef,
    listing: Mapping[str, ListedModelFile],
    fetch: Callable[[tuple[str, ...]], Mapping[str, Found]],
    headers: Headers | None,
) -> ModelFiles:
    """Choose, fetch and check the files of an adapter; raise `ModelRefused` with the reason.

    `config` of the result is PEFT's.  With `headers` the weights stay where they are.
    """
    for path in listing:
        check_path(path)
    kept, left_out = choose_adapter_files(listing)
    check_distinct(kept)
    small = fetch(tuple(path for path in kept if path != WEIGHTS))
    for path, found in small.items():
        check_small_file(path, found)
    config = _read_config(small[CONFIG])
    content: Mapping[str, FileRange | RemoteRange]
    if headers is not None:
        tensors = headers.tensors_of((WEIGHTS,))[WEIGHTS]
        content = {path: headers.content(path) for path in kept}
    else:
        weights = fetch((WEIGHTS,))
        tensors = read_shard(weights[WEIGHTS])
        content = ranges_of(listing, {**small, **weights})
    return ModelFiles(
        ref=ref,
        files=tuple(
            ModelFile(
                path=unicodedata.normalize("NFC", path),
                role=role_of(path),
                content=content[path],
                sha256=listing[path].sha256,
            )
            for path in sorted(content)
        ),
        config=MappingProxyType(config),
        tensors=tensors,
        left_out=MappingProxyType(dict(left_out)),
    )


def adapter_of(name: str, files: ModelFiles) -> Adapter:
    """Return the adapter that the files are, under the name that clients send."""
    check_adapter_name(name)
    fields = read_fields(files.config)
    card = [file for file in files.files if file.path == CARD]
    modules, others = read_pairs(files.tensors, fields)
    return Adapter(
        name=name,
        ref=files.ref,
        files=tuple(file for file in files.files if file.path != CARD),
        left_out=MappingProxyType({**files.left_out, **{file.path: UNREAD for file in card}}),
        card=card[0] if card else None,
        config=files.config,
        rank=fields.rank,
        alpha=fields.alpha,
        modules=modules,
        others=others,
        base=fields.base,
        base_revision=fields.base_revision,
        flags=MappingProxyType(dict(fields.flags)),
    )


def _read_config(found: Found) -> dict[str, Any]:
    with readable(CONFIG, found) as stream:
        data = stream.read(MAX_CONFIG_BYTES + 1)
    if len(data) > MAX_CONFIG_BYTES:
        raise broken_json(CONFIG, f"it is longer than {MAX_CONFIG_BYTES} bytes")
    try:
        return parse_object(data, max_bytes=MAX_CONFIG_BYTES)
    except NotStrict as error:
        raise broken_json(CONFIG, str(error)) from error
