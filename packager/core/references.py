"""References to models and images, parsed.

Each is parsed once, where the text comes in (`models.reference`, `images.target`), and is a
value from there on: no code below takes the text apart, which is kept for messages and records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from artifact_cache.s3.buckets import split_place

DEFAULT_TAG = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTarget:
    """Location of an image: scheme, and what follows it."""

    text: str  # as it was written, for messages, labels and records
    scheme: str  # the row in the tables of sinks and bases: `oci`, `docker`, `registry`
    rest: str  # `text` without `scheme:`; of a registry all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutTarget(ImageTarget):
    """An image in an OCI layout: `oci:DIR[:TAG][@DIGEST]`."""

    directory: Path  # absolute
    tag: str | None  # None when none was written
    digest: str | None = None  # wins over a tag

    @property
    def is_tagged(self) -> bool:
        """Whether the text says which image of the layout is meant."""
        return self.tag is not None or self.digest is not None

    @classmethod
    def at(cls, directory: Path) -> LayoutTarget:
        """Return the target of a layout with one image, in a directory that we chose."""
        return cls(
            text=f"oci:{directory}",
            scheme="oci",
            rest=str(directory),
            directory=directory.absolute(),
            tag=None,
        )

    def with_tag(self, tag: str) -> Self:
        """Return the target with this tag, where none was written."""
        return replace(self, text=f"{self.text}:{tag}", rest=f"{self.rest}:{tag}", tag=tag)

    def absolute(self) -> Self:
        """Return the same image for another working directory."""
        tag, digest = f":{self.tag}" if self.tag else "", f"@{self.digest}" if self.digest else ""
        rest = f"{self.directory}{tag}{digest}"
        return replace(self, text=f"{self.scheme}:{rest}", rest=rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The parts of `HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]`; what was not written is None."""

    host: str  # `docker.io`, `localhost:5000`, `[::1]:5000`
    repository: str
    tag: str | None = None
    digest: str | None = None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryTarget(ImageTarget):
    """An image in a registry."""

    image: Reference

    @property
    def is_tagged(self) -> bool:
        """Whether the text says which image of the repository is meant."""
        return self.image.tag is not None or self.image.digest is not None

    def with_tag(self, tag: str) -> Self:
        """Return the target with this tag, where none was written."""
        text = f"{self.text}:{tag}"
        return replace(self, text=text, rest=text, image=replace(self.image, tag=tag))

    def with_digest(self, digest: str) -> Self:
        """Return the target pinned to this digest, in place of one that was written."""
        text = f"{self.text.partition('@')[0]}@{digest}"
        return replace(self, text=text, rest=text, image=replace(self.image, digest=digest))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReference:
    """Reference to a model, parsed: its source, and what the source needs of the text."""

    text: str  # as it was written, for messages and requests
    source: str  # the row in the table of sources: `local`, `hub`, `hf`, `s3`


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReference(ModelReference):
    """A model in a directory: `./DIR`."""

    path: str  # as it was written: relative to the working directory, perhaps with `~`

    @classmethod
    def at(cls, path: Path | str) -> DirectoryReference:
        """Return the reference of a directory, whatever its name looks like."""
        return cls(text=str(path), source="local", path=str(path))

    def absolute(self) -> DirectoryReference:
        """Return the same directory for another working directory; one that is not there stays."""
        path = Path(self.path)
        return DirectoryReference.at(path.absolute()) if path.exists() else self


@dataclass(frozen=True, slots=True, kw_only=True)
class HubReference(ModelReference):
    """A model on a hub: `org/name[@revision]`, or `hf://…` to stream it."""

    name: str
    revision: str | None  # None when none was written
    is_streamed: bool  # its weights are never written to this machine

    def at(self, revision: str) -> HubReference:
        """Return the same model at another revision, such as the commit it was pinned to."""
        text = spell_hub_id(self.name, revision, is_streamed=self.is_streamed)
        return replace(self, text=text, revision=revision)


def spell_hub_id(name: str, revision: str, *, is_streamed: bool) -> str:
    """Write the reference of a model at a revision of a hub."""
    return f"{'hf://' if is_streamed else ''}{name}@{revision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketReference(ModelReference):
    """A model below a prefix of a bucket: `s3://BUCKET[/PREFIX]`."""

    bucket: str
    prefix: str  # "" for the whole bucket; else it ends with "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlace:
    """A place in a bucket: `s3://BUCKET/KEY`."""

    bucket: str
    key: str  # "" for the bucket itself


def parse_bucket_place(text: str) -> BucketPlace | None:
    """Return the place that a text names; None unless it begins with `s3://`."""
    if not text.startswith("s3://"):
        return None
    bucket, key = split_place(text)
    return BucketPlace(bucket=bucket, key=key)
