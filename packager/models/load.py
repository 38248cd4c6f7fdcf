"""Loading a model from any source: names, small files, weights.

Each stage refuses what it can before the next, more costly one; for a hub,
`fetch` is a download, and with `Headers` in its place weights are not fetched at all:
they are only planned with, or read where they are while the image is written.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from packager.core.image import FileRange, Inline, RemoteRange
from packager.core.model import ModelFile, ModelFiles, ModelRef, TensorInfo
from packager.images.reshard import weights_index
from packager.models.adapters.read import load_adapter
from packager.models.architectures.pooling import JUDGES
from packager.models.chat import (
    PROCESSORS,
    TEMPLATES,
    TOKENIZER,
    ReadHead,
    read_chat_template,
    read_picture_settings,
)
from packager.models.contents import (
    READ,
    Shards,
    check_small_file,
    find_shards,
    ranges_of,
    read_config,
    read_native_config,
    read_shard,
    read_tensors,
    read_tokenizer_config,
    readable,
)
from packager.models.mistral_format import translated_tensors
from packager.models.model_card import CARD, MAX_CARD_BYTES, read_card
from packager.models.paths import check_distinct, check_path
from packager.models.remote_headers import Headers
from packager.models.rules import (
    FileSelection,
    ListedModelFile,
    choose_files,
    refuse_incomplete,
    role_of,
)
from packager.models.sentence_modules import is_wanted, read_modules
from packager.models.walk import Found

Fetch = Callable[[tuple[str, ...]], Mapping[str, Found]]  # by path in the model


def load_model(
    ref: ModelRef,
    listing: Mapping[str, ListedModelFile],
    fetch: Fetch,
    *,
    headers: Headers | None = None,
    for_plan: bool = False,
    is_draft: bool = False,
    is_adapter: bool = False,
) -> ModelFiles:
    """Choose, fetch and check the files of a model; raise `ModelRefused` with the reason.

    With `headers`, what is fetched is looked at and no more: the model's files
    stay where they are, and their names must be enough to read them later.
    `for_plan` then leaves out the checks of files that a plan does not read.
    """
    if is_adapter:
        return load_adapter(ref, listing, fetch, headers)
    for path in listing:
        check_path(path)
    choice = choose_files(listing)
    check_distinct(choice.small + choice.candidates)
    refuse_incomplete(choice, is_draft=is_draft)

    small = fetch(tuple(path for path in choice.small if not for_plan or _is_read(path)))
    for path, found in small.items():
        if path.endswith(".safetensors"):
            read_shard(found)  # of an adapter, or of a module
        else:
            check_small_file(path, found)
    native = choice.is_native
    config = read_native_config(small) if native else read_config(small, is_draft=is_draft)
    has_tokenizer = native or TOKENIZER in choice.small
    tokenizer = read_tokenizer_config(small, has_tokenizer=has_tokenizer)
    shards = find_shards(small, choice.candidates, index=choice.index, is_draft=is_draft)

    content, tensors, files = _contents(choice, shards, listing, small, fetch, headers)
    if shards.need_index and not is_draft:
        total_size = sum(tensor.size for tensor in tensors)
        content = {**content, shards.index: Inline(weights_index(files, total_size))}

    def read_head(path: str, length: int) -> bytes:
        if path in small:
            with readable(path, small[path]) as stream:
                return stream.read(length)
        if path in choice.small and headers is not None:
            return headers.beginning(path, length)
        return b""

    return ModelFiles(
        ref=ref,
        files=tuple(
            ModelFile(
                path=unicodedata.normalize("NFC", path),
                role=role_of(path),
                content=content[path],
                sha256=listing[path].sha256 if path in listing else "",
            )
            for path in sorted(content)
        ),
        config=MappingProxyType(dict(config)),
        tensors=translated_tensors(tensors) if native else tensors,
        file_format="mistral" if native else "transformers",
        left_out=MappingProxyType({**choice.left_out, **_not_served(choice, shards)}),
        chat_template=None if is_draft else read_chat_template(small, tokenizer, read_head),
        picture_settings=MappingProxyType({} if is_draft else dict(read_picture_settings(small))),
        tokenizer_longest=_longest(tokenizer),
        modules=None if is_draft else read_modules(small, listing),
        stated_task=_stated_task(config, read_head),
    )


def _is_read(path: str) -> bool:
    """Return whether a plan reads a file."""
    return path in (*READ, *TEMPLATES, *PROCESSORS) or is_wanted(path)


def _stated_task(config: Mapping[str, Any], read_head: ReadHead) -> str:
    """Return the task of the model card where the class leaves it open; "" of others, unread."""
    names = config.get("architectures")
    is_open = isinstance(names, list) and names and names[0] in tuple(JUDGES)
    return read_card(read_head(CARD, MAX_CARD_BYTES)).task if is_open else ""


def _longest(tokenizer: Mapping[str, Any]) -> int:
    stated = tokenizer.get("model_max_length")
    return stated if type(stated) is int and 0 < stated < 1 << 31 else 0


def _contents(
    choice: FileSelection,
    shards: Shards,
    listing: Mapping[str, ListedModelFile],
    small: Mapping[str, Found],
    fetch: Fetch,
    headers: Headers | None,
) -> tuple[
    Mapping[str, FileRange | RemoteRange | Inline], tuple[TensorInfo, ...], Mapping[str, str]
]:
    """Return where every served file's bytes are, the weights' tensors, and the file of each."""
    if headers is not None:
        paths = (*choice.small, *shards.files)
        return {path: headers.content(path) for path in paths}, *read_tensors(
            shards, headers.tensors_of
        )
    weights = fetch(shards.files)
    tensors, files = read_tensors(
        shards, lambda files: {file: read_shard(weights[file]) for file in files}
    )
    return ranges_of(listing, {**small, **weights}), tensors, files


def _not_served(choice: FileSelection, shards: Shards) -> Mapping[str, str]:
    """Explain the safetensors files outside the model."""
    reason = (
        "weights that the model's index does not name"
        if shards.weight_map
        else f"weights beside {shards.files[0]!r}, which is served"
    )
    return {path: reason for path in choice.candidates if path not in shards.files}
