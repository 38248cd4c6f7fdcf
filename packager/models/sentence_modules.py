"""The files of sentence-transformers beside a model, which say how vectors are made of its states.

All of them are untrusted.  A part that decides what a vector means is refused where it is broken or
missing: an engine that does not find it takes another way of pooling, and says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from packager.core.documents import NotStrict, parse_json, parse_object, shorten
from packager.core.pooling import SentenceModules
from packager.models.contents import readable
from packager.models.refusals import Incomplete, broken_json
from packager.models.rules import MODULE, MODULES, SINGLE, ListedModelFile
from packager.models.walk import Found

SETTINGS = "config_sentence_transformers.json"
LENGTHS = re.compile(r"sentence_[a-z-]{2,20}_config\.json", re.ASCII)
WITHOUT_FILES = frozenset(("Normalize", "Dropout"))

_LIMIT = 1 << 20  # bytes of one of the files
_MOST = 64  # modules, or prompts
_LONGEST = 65536  # characters of a prompt
_MODE = "pooling_mode_"
_PUBLISHED = "get the model's files again, all from one revision"


def is_wanted(path: str) -> bool:
    """Return whether a plan reads a file."""
    folder, _, name = path.rpartition("/")
    if folder:
        return bool(MODULE.fullmatch(folder)) and name == "config.json"
    return name in (MODULES, SETTINGS) or bool(LENGTHS.fullmatch(name))


def read_modules(
    small: Mapping[str, Found], listing: Mapping[str, ListedModelFile]
) -> SentenceModules | None:
    """Read what the files state; None without `modules.json`.

    Of weights of modules the size counts, as `listing` has it.
    """
    if MODULES not in small:
        return None
    rows = _rows(small)
    types, folders, pooled, projections = [], [], [], []
    weights, judged = 0, None
    for kind, folder in rows:
        types.append(kind)
        name = kind.rpartition(".")[2]
        if not folder or name in WITHOUT_FILES:
            continue
        config = _object(small, f"{folder}/config.json")
        folders.append(folder)
        if name == "Pooling":
            pooled += _modes(config)
        elif name == "Dense":
            projections.append((_count(config, "in_features"), _count(config, "out_features")))
            weights += _weights_of(folder, listing)
        elif name == "LogitScore":
            judged = (_count(config, "true_token_id"), _count(config, "false_token_id"))
    settings = _object(small, SETTINGS) if SETTINGS in small else {}
    prompts = _prompts(settings.get("prompts"))
    default = settings.get("default_prompt_name")
    return SentenceModules(
        types=tuple(types),
        folders=tuple(folders),
        pooled=tuple(pooled),
        projections=tuple(projections),
        projection_bytes=weights,
        longest=_longest(small),
        prompts=MappingProxyType(prompts),
        default_prompt=default if isinstance(default, str) and default in prompts else "",
        truncates=_count(settings, "truncate_dim"),
        activation=_word(settings.get("activation_fn")),
        judged_by=judged if judged and all(judged) else None,
    )


def _rows(small: Mapping[str, Found]) -> list[tuple[str, str]]:
    """Return the class and the directory of each module; the model's own is at the root."""
    data = _read(small, MODULES)
    try:
        document = parse_json(data, max_bytes=_LIMIT)
    except NotStrict as error:
        raise broken_json(MODULES, str(error)) from error
    if not isinstance(document, list) or not 0 < len(document) <= _MOST:
        raise broken_json(MODULES, f"it is no list of 1 to {_MOST} modules")
    rows = []
    for row in document:
        kind, folder = (row.get("type"), row.get("path")) if isinstance(row, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(folder, str) or len(kind) > _LONGEST:
            raise broken_json(MODULES, "a module has no 'type' and 'path' that are texts")
        if folder and not MODULE.fullmatch(folder):
            said = f"{shorten(folder)} is no directory of a module such as '1_Pooling'"
            raise broken_json(MODULES, said)
        rows.append((kind, folder))
    return rows


def _modes(config: Mapping[str, Any]) -> list[str]:
    """Return the modes of pooling that are on; newer files write one word."""
    word = config.get("pooling_mode")
    if isinstance(word, str):
        return [word[:40]]
    named = [key.removeprefix(_MODE) for key in config if key.startswith(_MODE)]
    on = [mode for mode in named if config[_MODE + mode] is True]
    return [mode.removesuffix("_token").removesuffix("_tokens")[:40] for mode in on]


def _weights_of(folder: str, listing: Mapping[str, ListedModelFile]) -> int:
    path = f"{folder}/{SINGLE}"
    if path not in listing:
        raise Incomplete(
            f"the model lacks {path!r}, through which its vectors go",
            hint="a pickle in its place is not packaged: load the model by sentence-transformers "
            "in a sandbox and save it again, `SentenceTransformer(DIR).save(NEW_DIR)`",
        )
    return listing[path].size


def _prompts(stated: object) -> dict[str, str]:
    if not isinstance(stated, dict):
        return {}
    texts = {
        name: text
        for name, text in stated.items()
        if isinstance(text, str) and len(name) + len(text) <= _LONGEST
    }
    return dict(list(texts.items())[:_MOST])


def _word(stated: object) -> str:
    return stated.rpartition(".")[2][:40] if isinstance(stated, str) else ""


def _longest(small: Mapping[str, Found]) -> int:
    paths = (path for path in sorted(small) if LENGTHS.fullmatch(path))
    stated = (_count(_object(small, path), "max_seq_length") for path in paths)
    return next((tokens for tokens in stated if tokens), 0)


def _count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if type(value) is int and 0 < value < 1 << 31 else 0


def _object(small: Mapping[str, Found], path: str) -> Mapping[str, Any]:
    data = _read(small, path)
    try:
        return parse_object(data, max_bytes=_LIMIT)
    except NotStrict as error:
        raise broken_json(path, str(error)) from error


def _read(small: Mapping[str, Found], path: str) -> bytes:
    if path not in small:
        message = f"the model lacks {path!r}, which {MODULES!r} names"
        raise Incomplete(message, hint=_PUBLISHED)
    with readable(path, small[path]) as stream:
        data: bytes = stream.read(_LIMIT + 1)
    return data
