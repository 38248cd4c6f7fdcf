"""Names of runs, and of the containers and images that belong to them."""

from __future__ import annotations

import re

from packager.core.errors import UsageError

RUN_LABEL = "dev.packager.run"  # of a container: the run's name; no other container is touched
MODEL_LABEL = "dev.packager.run.model"  # the name that clients send

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def check_name(name: str) -> str:
    """Return a name that the user gave; raise `UsageError` for one that Docker refuses."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} cannot name a run",
            hint="use up to 63 letters, digits, '.', '_' and '-', a letter or digit first",
        )
    return name


def run_name(served_name: str) -> str:
    """Return the default name of a run: the last part of the model's name."""
    last = served_name.rstrip("/").rpartition("/")[2]
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", last).strip("-._")
    return plain[:63] or "model"


def container_name(name: str) -> str:
    """Return the container's name: Docker has it once, so no second run can take it."""
    return f"packager-run-{name}"


def image_name(name: str) -> str:
    """Return the name of the image built for a run; in lower case, as repositories require."""
    repository = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return f"packager-run/{repository or 'model'}:latest"
