"""Suffix decoding: what vLLM needs for it, and images do not have."""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.engine_rows import engine_name
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding


def check_suffix(container: ContainerFacts, base: str) -> Iterator[Finding]:
    """Refuse an image without the package; warn about a base that the user names."""
    pinned = container.traits.drafts.suffix_package
    if not pinned:
        return  # the family refuses it
    who = engine_name(container.engine)
    package = pinned.partition("==")[0]
    if base == container.default_base:
        message = (
            f"no {container.family} image is known to have the Python package {package!r}, "
            f"without which {who} refuses suffix decoding"
        )
        hint = f"install {pinned} in an image of your own and name it with --base, or use ngram"
        yield Finding("error", "draft-needs-package", message, hint)
        return
    message = f"suffix decoding needs the Python package {package!r} in the base image"
    hint = f"make sure that {pinned} is installed in {base[:80]!r}: {who} refuses to start else"
    yield Finding("warning", "draft-needs-package", message, hint)
