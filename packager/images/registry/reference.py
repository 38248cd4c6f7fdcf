"""Image references: `HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]`.

The grammar is that of the distribution project (reference/reference.go), with
its rules for names without a host: they are on Docker Hub.
"""

from __future__ import annotations

import re

from packager.core.errors import UsageError
from packager.core.references import Reference

DOCKER_HUB = "docker.io"
_LONGEST_NAME = 255

_HUB_ALIASES = {"docker.io", "index.docker.io", "registry-1.docker.io"}
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_LABEL = r"(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9])"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(?::[0-9]{{1,5}})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def bad_reference(text: str, reason: str, *, hint: str = "") -> UsageError:
    """Return an error: not an image reference."""
    return UsageError(
        f"{text!r} is not an image reference: {reason}",
        hint=hint or "write it as HOST/REPOSITORY:TAG or HOST/REPOSITORY@sha256:…",
        code="BadReference",
    )


def parse_reference(text: str) -> Reference:
    """Parse and check a reference; a missing host means Docker Hub."""
    if "://" in text:
        raise bad_reference(
            text, "it starts with a scheme", hint=f"leave out {text.partition('://')[0]}://"
        )
    named, at, digest = text.partition("@")
    if at:
        check_digest(text, digest)
    host, rest = _split_host(named)
    repository, colon, tag = rest.partition(":")
    if colon and not is_tag(tag):
        raise bad_reference(
            text,
            f"{tag!r} is not a tag",
            hint="a tag has up to 128 letters, digits, '_', '.' and '-'",
        )
    if not _is_host(host):
        raise bad_reference(text, f"{host!r} is not a host")
    if host in _HUB_ALIASES:
        host = DOCKER_HUB
        if repository and "/" not in repository:
            repository = f"library/{repository}"
    if not _REPOSITORY.fullmatch(repository):
        lower = repository.lower()
        raise bad_reference(
            text,
            f"{repository!r} is not a repository name",
            hint=f"use lower case: {lower!r}" if _REPOSITORY.fullmatch(lower) else "",
        )
    if len(f"{host}/{repository}") > _LONGEST_NAME:
        raise bad_reference(text, f"its name is longer than {_LONGEST_NAME} characters")
    return Reference(host=host, repository=repository, tag=tag or None, digest=digest or None)


def check_digest(text: str, digest: str) -> None:
    """Refuse what stands behind the `@` of an image and is no digest."""
    if not _DIGEST.fullmatch(digest):
        raise bad_reference(
            text, f"{digest!r} is not a digest", hint="a digest is sha256: and 64 digits of 0-9a-f"
        )


def refuse_digest(text: str, digest: str | None, form: str) -> None:
    """Refuse an output with a digest."""
    if digest:
        raise UsageError(
            f"output {text!r} has a digest, which only the build can know",
            hint=f"write {form}",
        )


def is_tag(text: str) -> bool:
    """Return whether `text` is a valid tag."""
    return _TAG.fullmatch(text) is not None


def _split_host(named: str) -> tuple[str, str]:
    """Split off the registry host: it has a dot, a colon or is `localhost`.

    Else Docker Hub is meant.
    """
    first, slash, rest = named.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first or first != first.lower()):
        return first, rest
    return DOCKER_HUB, named


def _is_host(host: str) -> bool:
    if not _HOST.fullmatch(host):
        return False
    port = host.rpartition(":")[2] if not host.endswith("]") and ":" in host else "1"
    return 0 < int(port) < 65536
