"""Errors that refuse a model: one class per cause, each with a hint."""

from __future__ import annotations

from collections.abc import Sequence

from packager.core.documents import shorten
from packager.core.errors import ModelRefused


def unsafe_name(path: str, why: str) -> ModelRefused:
    """Return an error: a path of the model could mean another file on another machine."""
    return ModelRefused(
        f"the model has a file with an unsafe name, {shorten(path)}: {why}",
        hint="rename or remove the file; names go into the image as they are",
        code="UnsafeName",
    )


class UnsafeLink(ModelRefused):
    """A symbolic link does not lead to a file of the model."""

    otherwise = ""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"the link {shorten(path)} {why}",
            hint="put the file itself in its place: `cp --dereference` copies what a link means"
            f"{self.otherwise}",
        )


class LinkLeadsOut(UnsafeLink):
    """A symbolic link leads to a file outside the model's directory and the trusted roots."""

    otherwise = "; where a download's cache of yours holds the files, name it: `--trust-root DIR`"

    def __init__(self, path: str) -> None:
        super().__init__(path, "leads out of the model's directory")


def not_a_file(path: str, what: str) -> ModelRefused:
    """Return an error: a path in the model is neither a file nor a directory."""
    return ModelRefused(
        f"{shorten(path)} in the model is a {what}",
        hint="remove it, then run again",
        code="NotAFile",
    )


def hidden_pickle(path: str, kind: str) -> ModelRefused:
    """Return an error: a file that looks harmless holds what can run code when it is loaded."""
    return ModelRefused(
        f"{path!r} is not what its name says: it is {kind}",
        hint="do not load this file anywhere; get the model from a publisher you trust",
        code="HiddenPickle",
    )


def only_pickle(paths: Sequence[str]) -> ModelRefused:
    """Return an error: all weights are pickles, which run code when they are loaded."""
    return ModelRefused(
        f"the model's weights are pickle files only: {_some(paths)}",
        hint="use a revision with safetensors, or convert in a sandbox without network or "
        "credentials: `AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW_DIR)`",
        code="OnlyPickle",
    )


class OtherFormat(ModelRefused):
    """The weights are in a format that is not packaged."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(
            f"the model has no safetensors weights, only {_some(paths)}",
            hint="use the repository or revision that this file was converted from",
        )


def other_kind(what: str, instead: str) -> ModelRefused:
    """Return an error: the directory is not a model that an engine's loader reads."""
    return ModelRefused(f"this is {what}, which is not packaged", hint=instead, code="OtherKind")


class Incomplete(ModelRefused):
    """A file that serving needs is missing."""


def broken_json(path: str, why: str) -> ModelRefused:
    """Return an error: a JSON file of the model cannot be understood in one way."""
    return ModelRefused(
        f"{path!r} is refused: {why}",
        hint=f"get {path!r} again, or correct it; `python -m json.tool {path}` shows where",
        code="BrokenJson",
    )


class CodeNeeded(ModelRefused):
    """The model works only with Python code from its own repository."""

    def __init__(
        self, path: str, classes: Sequence[str], *, architecture: str = "", model_type: str = ""
    ) -> None:
        hint = "such code is never packaged (trust_remote_code is not supported): use a version "
        if model_type:
            hint += (
                f"of the model whose configuration engines read; they have {architecture[:80]}, "
                f"and no configuration of type {model_type[:40]!r}"
            )
        else:
            hint += "the engine knows"
        super().__init__(
            f"{path!r} names code of the model's own in 'auto_map': {_some(classes)}", hint=hint
        )


def lfs_pointer(path: str) -> ModelRefused:
    """Return an error: a file is a Git LFS pointer: a clone without its large files."""
    return ModelRefused(
        f"{path!r} is a Git LFS pointer, not the file itself",
        hint="run `git lfs pull` in the model's directory",
        code="LfsPointer",
    )


def index_disagrees(what: str, index: str = "model.safetensors.index.json") -> ModelRefused:
    """Return an error: the index of the shards and the shards do not describe the same model."""
    return ModelRefused(
        f"{index!r} does not agree with the shards: {what}",
        hint="get the shards and the index again, all from one revision",
        code="IndexDisagrees",
    )


def unreadable_model(path: str, why: str) -> ModelRefused:
    """Return an error: the operating system does not let us read a file of the model."""
    return ModelRefused(
        f"{shorten(path)} cannot be read: {why.lower()}",
        hint="check the permissions of the model's files",
        code="UnreadableModel",
    )


def _some(names: Sequence[str], limit: int = 3) -> str:
    listed = ", ".join(shorten(name) for name in names[:limit])
    return f"{listed} and {len(names) - limit} more" if len(names) > limit else listed
