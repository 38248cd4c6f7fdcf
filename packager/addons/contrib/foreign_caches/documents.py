"""The key documents of graphs that something else compiled."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from artifact_cache.key import KeyDocument
from packager.addons.contrib.foreign_caches.compiled import Compiled
from packager.addons.contrib.foreign_caches.stated import own_words, read_document
from packager.core.errors import UsageError
from packager.core.trees import Stated
from packager.optimize.compile.neuron_keys import KNOWN, contradictions, unknown_in, with_values
from packager.optimize.keys.documents import parse_document


def document_of(compiled: Compiled, stated: Stated) -> KeyDocument:
    """Return the key document of a model's graphs; raises where values are missing."""
    own = own_words(stated)
    base: Mapping[str, Any] = KNOWN
    if stated.document is not None:
        base = read_document(stated.document)
        architecture = "/graph/architecture"
        agreed = dict(compiled.said)
        if architecture in compiled.derived and architecture not in own:
            agreed[architecture] = compiled.derived[architecture]
        _refuse_contradiction(compiled, base, agreed)
    else:
        base = with_values(base, compiled.derived)
        base = with_values(base, compiled.said)
    try:
        made = with_values(base, own)
    except KeyError as error:
        raise UsageError(
            f"a key document of compiled graphs has no {error.args[0]}",
            hint="write --state /shape/max_batch=8; artifact_cache/README.md names the fields",
        ) from error
    _refuse_contradiction(compiled, made, compiled.said)
    if missing := list(unknown_in(made)):
        raise UsageError(
            f"{compiled.model}: the tree does not say {', '.join(missing)}",
            hint="; ".join(_ways_to_say(missing)),
        )
    try:
        return parse_document(made)
    except (ValidationError, ValueError) as error:
        reason = error.errors()[0] if isinstance(error, ValidationError) else None
        where = "/".join(map(str, reason["loc"])) if reason else ""
        text = reason["msg"] if reason else str(error)
        raise UsageError(
            f"{compiled.model}: {where}: {text}",
            hint="correct what is stated of the compiled model",
        ) from error


def _refuse_contradiction(
    compiled: Compiled, document: Mapping[str, Any], said: Mapping[str, Any]
) -> None:
    for one in contradictions(document, said):
        raise UsageError(
            f"{compiled.model}: {one.pointer} is {json.dumps(one.wanted)} in the tree, "
            f"and said to be {json.dumps(one.found, default=str)}",
            hint="import it under a key document that agrees with it",
        )


def _ways_to_say(missing: Sequence[str]) -> Iterator[str]:
    if "/target/logical_core_size" in missing:
        yield "add --logical-core-size N"
    if "/target/arch" in missing:
        yield "add --instance TYPE"
    if "/graph/architecture" in missing:
        yield "add --config FILE, the model's config.json"
    others = [one for one in missing if not one.startswith(("/target/", "/graph/"))]
    if others:
        yield f"add --state {others[0]}=JSON, or --as FILE with the whole key document"
