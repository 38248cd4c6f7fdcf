"""Pictures of requests: their tokens in a prompt, and what the engine must be let take."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.model import ModelFiles
from packager.core.units import counted
from packager.core.workload import Workload
from packager.estimate.sizing.pictures import picture_tokens


def with_pictures(workload: Workload, model: ModelFiles, images: str | None) -> Workload:
    """Return the workload with the tokens of so many pictures in each prompt."""
    if images is None:
        return workload
    pictures, width, height = map(int, images.split("x"))
    each = picture_tokens(model.config, model.picture_settings, (width, height)) or 0
    tokens = pictures * each
    longer = workload.p95_input_tokens
    return replace(
        workload,
        input_tokens=workload.input_tokens + tokens,
        p95_input_tokens=longer + tokens if longer else 0,
        pictures=pictures,
        picture_tokens=tokens,
    )


def check_pictures(facts: Facts) -> Iterator[Finding]:
    """Report what pictures take of a prompt; refuse them where a model, or an option, has none."""
    request, workload = facts.request, facts.workload
    if request.images is None:
        return
    if not isinstance(facts.model.config.get("vision_config"), Mapping):
        message = f"{facts.model.ref.name} takes no pictures: its configuration has no encoder"
        hint = "leave --images out, or choose a model that sees"
        yield Finding("error", "pictures-not-seen", message, hint)
        return
    _, width, height = request.images.split("x")
    if not workload.picture_tokens:
        kind = str(facts.model.config.get("model_type", ""))[:60]
        message = f"how a picture is cut for {kind!r} is not known, so its tokens are not counted"
        hint = "count them as tokens: --workload IN:OUT with the pictures' tokens in IN"
        yield Finding("error", "pictures-unknown", message, hint)
        return
    each = workload.picture_tokens // workload.pictures
    message = (
        f"a picture of {width}x{height} takes {each:,} tokens of the prompt; "
        f"{counted(workload.pictures, 'picture')} of a request {workload.picture_tokens:,}"
    )
    figures = {"picture_tokens": each, "request_tokens": workload.picture_tokens}
    yield Finding("note", "pictures-counted", message, "", data=figures)
    allowed = _allowed(request.engine_options or {})
    if allowed is not None and allowed < workload.pictures:
        message = (
            f"limit-mm-per-prompt lets a request have {counted(allowed, 'picture')}, "
            f"and {workload.pictures} are planned for"
        )
        yield Finding("error", "pictures-limited", message, "raise the limit, or leave it out")


def _allowed(options: Mapping[str, str]) -> int | None:
    """Return the pictures that an option of the engine allows; None where none says it."""
    for name, value in options.items():
        if name.removeprefix("--").lower().replace("_", "-") != "limit-mm-per-prompt":
            continue
        try:
            limit = json.loads(value)["image"]
            limit = limit["count"] if isinstance(limit, dict) else limit
        except (ValueError, KeyError, TypeError):
            return None
        return limit if isinstance(limit, int) else None
    return None
