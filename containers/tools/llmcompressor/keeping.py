"""What an interrupted quantization leaves for the next run: whole files, and a journal of them.

    kept/journal.json         the digest of the rest, and which files hold what
    kept/DIGEST.safetensors   tensors, named by the digest of the file's bytes

A file counts when the journal names it.  The journal is replaced by renaming, after the
files that it names are on the disk: a kill at any point leaves the state before or after.
What is damaged, or is of another job, is dropped with a notice.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from lasting import finish
from packager_worker import Spec, versions_of

PACKAGES = ("torch", "llmcompressor", "compressed-tensors", "transformers")
FREE = frozenset({"memory_bytes", "host_bytes"})  # where weights lie changes no bit
JOURNAL, PART = "journal.json", "part"

DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.complex64: "C64",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip

Note = Callable[[str], None]


@dataclass
class Stage:
    """One pass over the model's blocks: how many are finished, and the tensors they changed."""

    name: str
    blocks: int
    done: int = 0
    files: list[str] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        return self.done == self.blocks


@dataclass
class Progress:
    """All that the journal says."""

    stages: list[Stage] = field(default_factory=list)
    activations: dict[str, str] = field(default_factory=dict)  # of the newest stage: name → file
    packed: list[str] = field(default_factory=list)  # tensors of modules as they are saved
    random: list[Any] = field(default_factory=list)  # states of the generators of random numbers
    saved: dict[str, str] = field(default_factory=dict)  # files of the quantized model → digest

    @property
    def files(self) -> set[str]:
        of_stages = {name for stage in self.stages for name in stage.files}
        return of_stages | set(self.activations.values()) | set(self.packed)


class Kept:
    """The kept work of one job, below a directory of its own."""

    def __init__(self, place: Path, job: str, note: Note) -> None:
        self._place = place
        self._job = job
        self.progress = Progress()
        place.mkdir(parents=True, exist_ok=True)
        if (place / JOURNAL).exists():
            try:
                self.progress = self._read()
            except ValueError as error:
                note(f"what an interrupted run left is not used: {error}")
        self._prune()

    def write(self, tensors: Mapping[str, torch.Tensor], told: Mapping[str, str]) -> str:
        """Write a file that counts from the next `publish` on; return its name."""
        draft = self._place / PART
        whole = hashlib.sha256()
        try:
            with draft.open("wb") as file:
                for data in _serialized(tensors, told):
                    whole.update(data)
                    file.write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(draft)) from error
        name = f"{whole.hexdigest()}.safetensors"
        finish(draft, self._place / name)
        return name

    def path(self, name: str) -> Path:
        """Return where a file of the journal is."""
        return self._place / name

    def publish(self) -> None:
        """Make `progress` what the next run finds, and remove files that it does not name."""
        body = json.dumps({"job": self._job, **asdict(self.progress)}).encode()
        draft = self._place / PART
        draft.write_bytes(_digest(body) + b"\n" + body)
        finish(draft, self._place / JOURNAL)
        self._prune()

    def publish_saved(self, saved: Path) -> None:
        """Keep a quantized model that is written whole, in place of what led to it."""
        files = sorted(path for path in saved.rglob("*") if path.is_file())
        for path in files:
            _sync(path)
        _sync(saved)
        digests = {str(path.relative_to(saved)): digest_of(path) for path in files}
        self.progress = Progress(saved=digests)
        self.publish()

    def has_saved(self, saved: Path) -> bool:
        """Return whether the quantized model is there as it was written."""
        told = self.progress.saved
        return bool(told) and all(
            (saved / name).is_file() and digest_of(saved / name) == digest
            for name, digest in told.items()
        )

    def _read(self) -> Progress:
        """Read the journal and compare each file; `ValueError` says what is wrong."""
        digest, _, body = (self._place / JOURNAL).read_bytes().partition(b"\n")
        if digest != _digest(body):
            raise ValueError("its journal is damaged")
        told = json.loads(body)
        if told.pop("job", None) != self._job:
            raise ValueError("it is of another job")
        try:
            stages = [Stage(**stage) for stage in told.pop("stages")]
            progress = Progress(stages=stages, **told)
        except (KeyError, TypeError) as error:
            raise ValueError("its journal is of another version") from error
        for name in sorted(progress.files):
            path = self._place / name
            if not path.is_file() or f"{digest_of(path)}.safetensors" != name:
                raise ValueError(f"{name[:12]} is damaged")
        return progress

    def _prune(self) -> None:
        named = {JOURNAL, *self.progress.files} if self.progress != Progress() else set()
        for path in self._place.iterdir():
            if path.name not in named:
                path.unlink()


def job_of(spec: Spec) -> str:
    """Identify what is asked for and what computes it.

    An executor names the work directory for the digests of all inputs; here files of the
    model count by size, and small ones by content.
    """
    asked = {name: value for name, value in spec.parameters.items() if name not in FREE}
    machine = [platform.machine(), torch.backends.cpu.get_cpu_capability(), bool(spec.gpus)]
    whole = hashlib.sha256(json.dumps([asked, machine], sort_keys=True).encode())
    whole.update(json.dumps(versions_of(PACKAGES), sort_keys=True).encode())
    for role, place in sorted(spec.inputs.items()):
        for path in sorted(path for path in place.rglob("*") if path.is_file()):
            size = path.stat().st_size
            content = digest_of(path) if size < 2**26 else ""
            whole.update(json.dumps([role, str(path.relative_to(place)), size, content]).encode())
    return whole.hexdigest()


def _serialized(
    tensors: Mapping[str, torch.Tensor], told: Mapping[str, str]
) -> Iterator[bytes | memoryview]:
    """Yield a safetensors file piece by piece: the library's writer copies all of it first."""
    header: dict[str, Any] = {"__metadata__": dict(told)}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        dtype, shape = DTYPES[tensor.dtype], list(tensor.shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    yield len(text).to_bytes(8, "little") + text
    for tensor in tensors.values():
        yield memoryview(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


def emptied(place: Path) -> Path:
    """Remove what an earlier run left at a place."""
    with suppress(FileNotFoundError):
        shutil.rmtree(place)
    return place


def digest_of(path: Path) -> str:
    """Digest a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
