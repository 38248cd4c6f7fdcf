"""Image references: `HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]`.

The grammar is that of the distribution project (reference/reference.go), with
its rules for names without a host: they are on Docker Hub.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from packager.errors import UsageError

DOCKER_HUB = "docker.io"
DEFAULT_TAG = "latest"
_LONGEST_NAME = 255

_HUB_ALIASES = {"docker.io", "index.docker.io", "registry-1.docker.io"}
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_LABEL = r"(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9])"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(?::[0-9]{{1,5}})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A parsed reference. `tag` and `digest` are empty when they were not written."""

    host: str  # `docker.io`, `localhost:5000`, `[::1]:5000`
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """Host and repository: what a blob can be mounted from."""
        return f"{self.host}/{self.repository}"

    @property
    def pointer(self) -> str:
        """What to ask the registry for; a digest wins over a tag."""
        return self.digest or self.tag or DEFAULT_TAG

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"


class BadReference(UsageError):
    """Not an image reference."""

    def __init__(self, text: str, reason: str, *, hint: str = "") -> None:
        super().__init__(
            f"{text!r} is not an image reference: {reason}",
            hint=hint or "write it as HOST/REPOSITORY:TAG or HOST/REPOSITORY@sha256:…",
        )


def parse_reference(text: str) -> Reference:
    """Parse and check a reference; a missing host means Docker Hub."""
    if "://" in text:
        raise BadReference(
            text, "it starts with a scheme", hint=f"leave out {text.partition('://')[0]}://"
        )
    named, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise BadReference(
            text, f"{digest!r} is not a digest", hint="a digest is sha256: and 64 digits of 0-9a-f"
        )
    host, rest = _split_host(named)
    repository, colon, tag = rest.partition(":")
    if colon and not is_tag(tag):
        raise BadReference(
            text,
            f"{tag!r} is not a tag",
            hint="a tag has up to 128 letters, digits, '_', '.' and '-'",
        )
    if not _is_host(host):
        raise BadReference(text, f"{host!r} is not a host")
    if host in _HUB_ALIASES:
        host = DOCKER_HUB
        if repository and "/" not in repository:
            repository = f"library/{repository}"
    if not _REPOSITORY.fullmatch(repository):
        lower = repository.lower()
        raise BadReference(
            text,
            f"{repository!r} is not a repository name",
            hint=f"use lower case: {lower!r}" if _REPOSITORY.fullmatch(lower) else "",
        )
    if len(f"{host}/{repository}") > _LONGEST_NAME:
        raise BadReference(text, f"its name is longer than {_LONGEST_NAME} characters")
    return Reference(host=host, repository=repository, tag=tag, digest=digest)


def is_tag(text: str) -> bool:
    """Say whether a registry may have a tag of this name."""
    return _TAG.fullmatch(text) is not None


def _split_host(named: str) -> tuple[str, str]:
    """Split before the repository. Without a dot, colon or `localhost` it is no host."""
    first, slash, rest = named.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first or first != first.lower()):
        return first, rest
    return DOCKER_HUB, named


def _is_host(host: str) -> bool:
    if not _HOST.fullmatch(host):
        return False
    port = host.rpartition(":")[2] if not host.endswith("]") and ":" in host else "1"
    return 0 < int(port) < 65536
