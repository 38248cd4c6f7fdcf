"""Commands that must succeed, and the build of tiny-llama that most live tests begin with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.commandline import TINY, Done, Packager


def ran(packager: Packager, *words: str, env: Mapping[str, str] | None = None) -> Done:
    """Run a command, which must succeed."""
    done = packager(*words) if env is None else packager(*words, env=env)
    assert done.status == 0, done.err
    return done


def told(packager: Packager, *words: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a command, which must succeed; return the document that it prints."""
    found: dict[str, Any] = json.loads(ran(packager, *words, "--format", "json", env=env).out)
    return found


def build(
    packager: Packager,
    output: str,
    *more: str,
    base: str = "scratch",
    model: Path = TINY,
    env: Mapping[str, str] | None = None,
) -> Done:
    """Build the model for this machine, which must succeed."""
    of = ("--model", str(model), "--instance", "local", "--base", base)
    return ran(packager, "build", *of, "--output", output, "--quiet", *more, env=env)
