"""The proof of a slim base: the same model on both bases, with the same requests."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from packager.addons.nodes.slim.record import SlimProof
from packager.cli.serving.smoke import SmokeResult
from packager.core.documents import shorten
from packager.core.errors import SmokeFailed

_HINT = "nothing was written; leave rules out with --without-rule, or keep files with --keep"


def prove_slim(
    model: str,
    *,
    build: Callable[[str, str], str],
    ask: Callable[[str], SmokeResult],
    remove: Callable[[str], None],
    original: str,
    slim: str,
    say: Callable[[str], None],
) -> SlimProof:
    """Build `model` on both bases, start both, compare every answer; raise where one differs.

    `build` takes a base and an image's name in the engine, and returns how it is started.  The
    images are removed whatever happens.
    """
    word = secrets.token_hex(4)
    say(f"proof: {model} on the original base")
    before = _asked(build, ask, remove, original, f"packager-slim-proof:{word}-original")
    say(f"proof: {model} on the slim base")
    try:
        after = _asked(build, ask, remove, slim, f"packager-slim-proof:{word}-slim")
    except SmokeFailed as error:
        raise SmokeFailed(
            f"the slim base does not serve: {error.message}", hint=_HINT, log=error.log
        ) from error
    for one, other in zip(before.answers, after.answers, strict=True):
        if (one.text, one.tokens) != (other.text, other.tokens):
            raise SmokeFailed(
                f"the slim base answers {one.endpoint} with {shorten(other.text)}, "
                f"the original with {shorten(one.text)}",
                hint=_HINT,
            )
    return SlimProof(
        model=model,
        answers=tuple(answer.text for answer in after.answers),
        original_ready_s=round(before.seconds_to_ping, 1),
        slim_ready_s=round(after.seconds_to_ping, 1),
    )


def _asked(
    build: Callable[[str, str], str],
    ask: Callable[[str], SmokeResult],
    remove: Callable[[str], None],
    base: str,
    name: str,
) -> SmokeResult:
    try:
        return ask(build(base, name))
    finally:
        remove(name)
