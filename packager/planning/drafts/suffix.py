"""Suffix decoding: what vLLM needs for it, and images do not have."""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.facts import Facts
from packager.core.findings import Finding

PACKAGE = "arctic-inference"
PINNED = f"{PACKAGE}==0.1.1"  # the version that vLLM's own message names, 0.11.1 to 0.32.0


def check_suffix(facts: Facts) -> Iterator[Finding]:
    """Refuse an image that lacks the package; ask about a base that the user names."""
    container, base = facts.container, facts.request.base
    if container.engine != "vllm":
        return  # the family refuses it
    if base in (None, container.default_base):
        message = (
            f"no {container.family} image is known to have the Python package {PACKAGE!r}, "
            "without which vLLM refuses suffix decoding"
        )
        hint = f"install {PINNED} in an image of your own and name it with --base, or use ngram"
        yield Finding("error", "draft-needs-package", message, hint)
        return
    message = f"suffix decoding needs the Python package {PACKAGE!r} in the base image"
    hint = f"make sure that {PINNED} is installed in {str(base)[:80]!r}: vLLM refuses to start else"
    yield Finding("warning", "draft-needs-package", message, hint)
