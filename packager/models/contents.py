"""Contents required of a model's files: configuration, tokenizer, index and shards that agree."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from packager.catalog.served_architectures import GENERATIVE, is_listed, kind_of, reads_type
from packager.core.documents import NotStrict, parse_object, shorten
from packager.core.errors import NotFound
from packager.core.files.opening import FileUnreadable
from packager.core.image import FileRange
from packager.core.model import TensorInfo
from packager.core.units import counted
from packager.images.oci import shorten_list
from packager.models import mistral_format
from packager.models.pickle_machine import runs_code
from packager.models.pickles import pickle_kind
from packager.models.refusals import (
    CodeNeeded,
    Incomplete,
    broken_json,
    hidden_pickle,
    index_disagrees,
    lfs_pointer,
    other_kind,
    unreadable_model,
)
from packager.models.rules import CONFIG, INDEX, SINGLE, ListedModelFile, find_unlisted
from packager.models.safetensors import read_header
from packager.models.walk import Found

MAX_CONFIG_BYTES = 10_000_000
MAX_INDEX_BYTES = 100_000_000  # 91 000 tensors take 9 MB
TOKENIZER_CONFIG = "tokenizer_config.json"
NATIVE = (mistral_format.PARAMS, mistral_format.INDEX)
READ = (CONFIG, TOKENIZER_CONFIG, INDEX, *NATIVE)  # small files whose content matters here
WEIGHTS_SCANNED_BYTES = 1024 * 1024  # as a pickle; their headers have some kilobytes
SAVE_AGAIN = (
    "save or download the model again; DeepSpeed ZeRO-3 leaves weights empty unless it is told to "
    "gather them: `stage3_gather_16bit_weights_on_model_save`"
)
LFS_POINTER = b"version https://git-lfs.github.com/spec/"


TensorsOf = Callable[[tuple[str, ...]], Mapping[str, tuple[TensorInfo, ...]]]  # by shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """The weights files to serve, and what the index says is in each."""

    files: tuple[str, ...]
    weight_map: Mapping[str, str] | None  # tensor → file; None without an index
    index: str = INDEX  # its name

    @property
    def need_index(self) -> bool:
        """Whether loaders that go by names would not find the weights."""
        return self.weight_map is None and self.files not in ((SINGLE,), (mistral_format.SINGLE,))


def check_small_file(path: str, found: Found) -> None:
    """Refuse a file that is not what its name says."""
    with readable(path, found) as stream:
        kind = pickle_kind(stream)
        ends = _ends_of(stream)
    if kind:
        raise hidden_pickle(path, kind)
    if ends.startswith(LFS_POINTER):
        raise lfs_pointer(path)
    if path.endswith(".json"):
        # Tokenizers have tens of megabytes: both ends show truncation without a parse.
        stripped = ends.strip()
        if not stripped:
            raise broken_json(path, "it is empty")
        if stripped[:1] not in b"{[" or stripped[-1:] not in b"}]":
            raise broken_json(path, "it does not begin and end as JSON does")


def read_config(small: Mapping[str, Found], *, is_draft: bool = False) -> Mapping[str, Any]:
    """Read config.json, and refuse a model that needs code from its repository.

    Many models still ship the code that engines have since made their own: an
    architecture and a type of configuration that engines have are read without it.
    """
    config = _read_object(CONFIG, small[CONFIG], MAX_CONFIG_BYTES)
    if not is_draft:
        _refuse_other_quantization(config)
        refuse_own_code(config)
    return config


def read_native_config(small: Mapping[str, Found]) -> Mapping[str, Any]:
    """Read params.json, and config.json where there is one, in transformers' words."""
    stated = read_config(small) if CONFIG in small else {}
    params = _read_object(mistral_format.PARAMS, small[mistral_format.PARAMS], MAX_CONFIG_BYTES)
    return mistral_format.translated_config(params, stated)


def read_tokenizer_config(small: Mapping[str, Found], *, has_tokenizer: bool) -> Mapping[str, Any]:
    """Read tokenizer_config.json, {} without one; refuse a tokenizer that is code."""
    if TOKENIZER_CONFIG not in small:
        return {}
    tokenizer = _read_object(TOKENIZER_CONFIG, small[TOKENIZER_CONFIG], MAX_CONFIG_BYTES)
    if not has_tokenizer:
        _refuse_needed_code(TOKENIZER_CONFIG, tokenizer, prefixes=("AutoTokenizer",))
    return tokenizer


def find_shards(
    small: Mapping[str, Found],
    candidates: tuple[str, ...],
    *,
    index: str = INDEX,
    is_draft: bool = False,
) -> Shards:
    """Decide which weights files are served; with an index, only those it names."""
    if index not in small:
        single = len(candidates) == 1 and is_draft  # `medusa_lm_head.safetensors`
        files = candidates if single else find_unlisted(candidates)
        return Shards(files=files, weight_map=None, index=index)
    weight_map = _read_object(index, small[index], MAX_INDEX_BYTES).get("weight_map")
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or set(map(type, weight_map.values())) != {str}
    ):
        raise broken_json(index, "its 'weight_map' is not a map from tensors to files")
    files = tuple(sorted(set(weight_map.values())))
    for file in files:
        if file not in candidates:
            raise _missing_shard(file, index)
    return Shards(files=files, weight_map=weight_map, index=index)


def read_tensors(
    shards: Shards, tensors_of: TensorsOf
) -> tuple[tuple[TensorInfo, ...], Mapping[str, str]]:
    """Read every shard's tensors, and the file of each, and compare them with the index."""
    tensors: list[TensorInfo] = []
    files: dict[str, str] = {}
    found = tensors_of(shards.files)
    for file in shards.files:
        here = dict.fromkeys((tensor.name for tensor in found[file]), file)
        if not files.keys().isdisjoint(here):
            name = min(files.keys() & here.keys())
            raise index_disagrees(
                f"{shorten(name)} is both in {files[name]!r} and in {file!r}", shards.index
            )
        files |= here
        tensors += found[file]
    if not any(tensor.size for tensor in tensors):
        what = "only empty tensors" if tensors else "no tensor"
        raise Incomplete(f"the model's weights hold {what}", hint=SAVE_AGAIN)
    empty = [one.name for one in tensors if not one.size and one.name.endswith(".weight")]
    if empty:
        raise Incomplete(
            f"{counted(len(empty), 'weight')} of the model have no values: {shorten_list(empty)}",
            hint=SAVE_AGAIN,
        )
    stated = shards.weight_map or {}
    agrees = stated == files or stated.items() <= files.items()  # the first takes no time
    for name, file in () if agrees else stated.items():
        if name not in files:
            raise index_disagrees(
                f"{shorten(name)} is in no shard; it should be in {file!r}", shards.index
            )
        if files[name] != file:
            raise index_disagrees(
                f"{shorten(name)} is in {files[name]!r}; it should be in {file!r}", shards.index
            )
    return tuple(tensors), files


def read_shard(found: Found) -> tuple[TensorInfo, ...]:
    """Read the header of one shard on this machine."""
    with readable(found.path, found) as stream:
        head = stream.read(len(LFS_POINTER))
        refuse_pickle(found.path, stream)
        if head == LFS_POINTER:
            raise lfs_pointer(found.path)
        stream.seek(0)
        return read_header(stream, found.path)


def refuse_pickle(file: str, stream: BinaryIO) -> None:
    """Refuse weights whose first bytes are not those of a safetensors file.

    The length of a header may read like the start of a pickle or of compressed data: with a
    `{` in its place, only what would run when it is loaded is refused, as far as the header goes.
    """
    stream.seek(0)
    head = stream.read(9)
    if head[8:] != b"{":
        kind = pickle_kind(stream)
    else:
        length = 8 + int.from_bytes(head[:8], "little")
        kind = "a pickle" if runs_code(stream, min(length, WEIGHTS_SCANNED_BYTES)) else ""
    if kind:
        raise hidden_pickle(file, kind)


def ranges_of(
    listing: Mapping[str, ListedModelFile], files: Mapping[str, Found]
) -> dict[str, FileRange]:
    """Return where the bytes of files on this machine are, as they were found and listed."""
    return {
        path: FileRange(
            path=str(found.real),
            offset=0,
            length=listing[path].size,
            checked=found.identity,
        )
        for path, found in files.items()
    }


@contextmanager
def readable(path: str, found: Found) -> Iterator[BinaryIO]:
    """Open a file of the model, and explain what keeps it from being read."""
    try:
        with found.open() as file, io.BufferedReader(file) as stream:
            yield stream
    except (FileUnreadable, NotFound) as error:
        cause = error.__cause__
        number = cause.errno if isinstance(cause, OSError) else 0
        raise unreadable_model(path, os.strerror(number or 0)) from error
    except OSError as error:
        raise unreadable_model(path, os.strerror(error.errno or 0)) from error


def refuse_own_code(config: Mapping[str, Any]) -> None:
    """Refuse a model that no engine loads without the code in its repository.

    An encoder needs none either: the planner refuses it for what it is.
    """
    named = _named_code(config, prefixes=("AutoConfig", "AutoModel"))
    if not named:
        return
    names, model_type = config.get("architectures"), config.get("model_type")
    architecture = names[0] if isinstance(names, list) and names else ""
    if not isinstance(architecture, str):
        raise CodeNeeded(CONFIG, named)
    if kind_of(architecture) not in (*GENERATIVE, ""):
        return
    if not is_listed(architecture):
        raise CodeNeeded(CONFIG, named)
    if isinstance(model_type, str) and not reads_type(model_type):
        raise CodeNeeded(CONFIG, named, architecture=architecture, model_type=model_type)


def _refuse_other_quantization(config: Mapping[str, Any]) -> None:
    """Refuse weights that tools with engines of their own have written."""
    mlx, stated = config.get("quantization"), config.get("quantization_config")
    if isinstance(mlx, Mapping) and {"group_size", "bits"} <= mlx.keys():
        raise other_kind(
            "a model that MLX quantized",
            "give the model that it was made from, or write it out again: "
            "`mlx_lm.convert --hf-path DIR --mlx-path NEW_DIR --dequantize`",
        )
    method = stated.get("quant_method") if isinstance(stated, Mapping) else None
    if method in ("exl2", "exl3"):
        raise other_kind(
            f"a model that ExLlama quantized ({method})",
            "give the model that it was made from; `--quantize awq` or `gptq` packs weights",
        )


def _refuse_needed_code(path: str, config: Mapping[str, Any], *, prefixes: tuple[str, ...]) -> None:
    classes = _named_code(config, prefixes=prefixes)
    if classes:
        raise CodeNeeded(path, classes)


def _named_code(config: Mapping[str, Any], *, prefixes: tuple[str, ...]) -> list[str]:
    auto_map = config.get("auto_map")
    named = sorted(auto_map) if isinstance(auto_map, dict) else []
    return [name for name in named if name.startswith(prefixes)]


def _missing_shard(file: str, index: str) -> Exception:
    if "/" in file or "\\" in file or file.startswith("."):
        return index_disagrees(f"it names {shorten(file)}, which is not beside it", index)
    if not file.endswith(".safetensors"):
        return index_disagrees(f"it names {shorten(file)}, which is not a safetensors file", index)
    return Incomplete(
        f"the model lacks {shorten(file)}, which its index names",
        hint="finish the download or the copy",
    )


def _read_object(path: str, found: Found, limit: int) -> dict[str, Any]:
    with readable(path, found) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise broken_json(path, f"it is longer than {limit} bytes")
    try:
        return parse_object(data, max_bytes=limit, allow_infinity=True)
    except NotStrict as error:
        raise broken_json(path, str(error)) from error


def _ends_of(stream: BinaryIO, length: int = 1024) -> bytes:
    stream.seek(0)
    head = stream.read(length)
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(len(head), size - length))
    return head + stream.read(length)
