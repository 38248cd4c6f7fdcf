"""Where a page comes from: model, instance, date, version, and the command that makes it again."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from packager.core.command_line import command_text, named_fields, request_words
from packager.core.instance import LOCAL
from packager.core.model import ModelFiles, ModelRef
from packager.core.plan import Plan
from packager.core.references import HubReference, ModelReference, spell_hub_id
from packager.core.request import BuildRequest

_PLACES = ("base", "outputs")  # only a build has them
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Inputs of a page, so that another reader can make it again."""

    model: str  # at the revision that was found; of an absolute path the last part
    identity: str  # revision or digest of the model; "" where the model was not read
    instance: str
    made: datetime
    packager: str
    command: str

    @property
    def made_words(self) -> str:
        return f"{self.made:%Y-%m-%d %H:%M} UTC"


def make_trace(
    request: BuildRequest,
    model: ModelFiles | None,
    *,
    made: datetime,
    packager: str,
    others: Iterable[str] = (),
) -> Trace:
    """Describe a page for a request; `others` are options of the command beside the request's."""
    pinned = pin_model(request, model.ref) if model else request
    return Trace(
        model=_without_directory(pinned.model),
        identity=model_identity(model) if model else "",
        instance=request.instance,
        made=made,
        packager=packager,
        command=plan_command(pinned, *others, "--format", "html"),
    )


def _without_directory(model: str) -> str:
    path = PurePosixPath(model)
    return path.name if path.is_absolute() else model


def pin_model(request: BuildRequest, found: ModelRef) -> BuildRequest:
    """Return the request for the revision that was found: a hub's name may mean another later."""
    if found.source != "hub" or not found.revision:
        return request
    is_streamed = not request.model.startswith(found.name)
    text = spell_hub_id(found.name, found.revision, is_streamed=is_streamed)
    return request.model_copy(update={"model": text})


def plan_command(request: BuildRequest, *others: str) -> str:
    """Write the command that plans a request."""
    words = request_words(request, leave_out=_PLACES)
    return command_text(("packager", "plan", *words, *others))


def changed_command(request: BuildRequest, options: str) -> str:
    """Write the command that plans a request with other options, which replace its own."""
    words = shlex.split(options)
    changes: dict[str, Any] = dict(named_fields(zip(words[::2], words[1::2], strict=True)))
    if changes.get("draft") == "none":
        changes["speculative_tokens"] = None
    return plan_command(request.model_copy(update=changes))


def name_of(request: BuildRequest, reference: ModelReference) -> str:
    """Return the name of an unread model for a page, without its parent directories."""
    if request.served_name:
        return request.served_name
    if isinstance(reference, HubReference):
        return reference.name
    return PurePosixPath(request.model).name


def build_command(
    request: BuildRequest, plan: Plan, changes: Mapping[str, Any], *others: str
) -> str:
    """Write the command that builds a plan's image; "" where no single image can serve it.

    The output is the request's, else one named after the model.
    """
    if plan.nodes > 1:
        return ""
    pinned = pin_model(request, plan.model)
    asked = pinned.model_copy(update={"instance": plan.instance.name, **changes})
    outputs = asked.outputs or (_own_place(plan),)
    words = request_words(asked.model_copy(update={"outputs": outputs}))
    return command_text(("packager", "build", *words, *others))


def _own_place(plan: Plan) -> str:
    name = _slug(plan.served_name.rpartition("/")[2])
    if plan.instance.name == LOCAL:
        return f"docker:{name}:local"
    return f"oci:{name}-{_slug(plan.instance.name)}"


def _slug(name: str) -> str:
    return _NOT_IN_NAMES.sub("-", name.lower()).strip("-._")[:60] or "model"


def model_identity(model: ModelFiles) -> str:
    """Return what identifies the model's content: a hub's commit, or a digest.

    A plan reads no weights: the digest covers config.json and the headers.
    """
    if model.ref.revision:
        return f"revision {model.ref.revision}"
    tensors = sorted((one.name, one.dtype, one.shape) for one in model.tensors)
    text = json.dumps([dict(model.config), tensors], sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"sha256:{digest} of its configuration and tensor headers"
