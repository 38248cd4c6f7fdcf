"""Parts of an image as values, before a format spells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

ComponentType = Literal[
    "application", "container", "data", "file", "library", "machine-learning-model",
    "operating-system",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenseClaim:
    """A licence as somebody states it: an id of SPDX's list, or a name of their own."""

    id: str = ""
    name: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One part. `ref` is unique in its document."""

    ref: str
    type: ComponentType
    name: str
    group: str = ""
    version: str = ""
    purl: str = ""
    sha256: str = ""  # hexadecimal
    licenses: tuple[LicenseClaim, ...] = ()
    components: tuple[Component, ...] = ()
    ancestors: tuple[Component, ...] = ()  # what it was made from
    notes: str = ""  # how
    about: tuple[tuple[str, str], ...] = ()  # properties
    model_card: tuple[tuple[str, Any], ...] = ()  # as CycloneDX spells it
    is_tool: bool = False  # used to make another, and in no image
    needs: tuple[str, ...] = ()  # refs of what it was made or is served with


@dataclass(frozen=True, slots=True, kw_only=True)
class Sbom:
    """All parts of an image or a tree."""

    subject: Component
    components: tuple[Component, ...]
    complete: tuple[str, ...]  # refs of which every part is listed, with its digest
    incomplete: tuple[str, ...]  # refs of which parts, or digests, are not known
    version: str  # of packager
