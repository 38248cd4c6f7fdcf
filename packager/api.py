"""The Python API: `from packager import plan, build`.

Each function goes the way of the command of its name, with the same services.  Keyword arguments
are the fields of a request file (`make reference` writes them).  What is wrong raises an error of
`packager.errors`; warnings go to the logger `packager`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings, settings_for
from packager.core.errors import UsageError
from packager.core.plan import Plan
from packager.core.record import BuildRecord
from packager.core.request import BuildRequest, parse_request
from packager.pipeline import pipeline

_log = logging.getLogger("packager")

PathOrName = str | os.PathLike[str]


def plan(*, model: PathOrName, instance: str, **fields: Any) -> Plan:
    """Decide how a model runs on an instance; read headers only and build nothing.

    Raises `PlanRejected` with every finding where no plan works.
    """
    request = _request(model, instance, fields)
    settings = replace(_settings(request), headers_only=True, region=request.region)
    return pipeline.plan(request, services_for(settings)).plan


def build(
    *, model: PathOrName, instance: str, output: str | Sequence[str], **fields: Any
) -> BuildRecord:
    """Write the image to `output`, one place or several, and return its record.

    An output is `oci:DIR[:TAG]`, `docker:NAME:TAG`, `REGISTRY/REPOSITORY:TAG`, `dir:DIR` or
    `s3://BUCKET/PREFIX`.  Steps run and
    their results are kept in the artifact cache, as `packager build` does without options.
    """
    if "outputs" in fields:
        raise UsageError("invalid field 'outputs'", hint="name one place or several as output=…")
    outputs = (output,) if isinstance(output, str) else tuple(output)
    if not outputs:
        raise UsageError("no output is given", hint="name one, such as output='oci:DIR'")
    request = _request(model, instance, {**fields, "outputs": outputs})
    return pipeline.build(request, services_for(_settings(request)))


def _request(model: PathOrName, instance: str, fields: dict[str, Any]) -> BuildRequest:
    given = {name: value for name, value in fields.items() if value is not None}
    return parse_request({"model": _reference(model), "instance": instance, **given})


def _reference(model: PathOrName) -> str:
    """Return text as it is; a path is a directory, also where a hub's model has that name."""
    if isinstance(model, str):
        return model
    path = os.fspath(model)
    return path if os.path.isabs(path) else os.path.join(os.curdir, path)  # noqa: PTH117, PTH118


def _settings(request: BuildRequest) -> Settings:
    return replace(settings_for(request), on_warning=_log.warning)
