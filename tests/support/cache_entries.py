"""Documents with every field filled in, and builds that leave a few files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from artifact_cache.key import KeyDocument
from packager.optimize.keys import documents
from tests.support.places import DATA

A = "a" * 64
B = "b" * 64

PARTS = json.loads((DATA / "keys" / "parts.json").read_text(encoding="utf-8"))
COMPILED = (
    *("graph", "shape", "precision", "parallelism", "target", "toolchain", "invocation"),
    *("speculation", "sampling", "lora"),
)

Key = TypeVar("Key", bound=KeyDocument)


def _made(kind: type[Key], *names: str, **own: Any) -> Key:
    """Make a document of parts under their own names and of what is its own."""
    return kind.model_validate_json(json.dumps({name: PARTS[name] for name in names} | own))


VLLM = _made(
    documents.VllmCompileKey,
    *COMPILED,
    model_path_in_image="/opt/packager/model",
    site_packages_in_image="/usr/lib/python3/dist-packages",
)
NEURON = _made(documents.NeuronKey, *COMPILED, "weights", layout="neff-cache")
TENSORRT = _made(documents.TensorRtLlmEngineKey, *COMPILED, "weights")
CHECKPOINT = _made(
    documents.QuantizedCheckpointKey,
    *("graph", "weights", "precision", "calibration", "toolchain", "invocation"),
    sharding=PARTS["parallelism"],
    computed_on="cpu",
)
LAYERS = _made(
    documents.StreamedLayersKey,
    *("graph", "weights", "precision", "calibration", "toolchain", "invocation"),
    sharding=PARTS["parallelism"],
    computed_on="cpu",
    layers="tar 1 erofs 1",
    number=1,
)
SHARDED = _made(
    documents.ShardedCheckpointKey,
    *("graph", "weights", "precision", "parallelism", "target", "toolchain", "invocation"),
)
DRAFT = _made(
    documents.DraftHeadKey,
    *("graph", "weights", "precision", "speculation", "calibration", "toolchain", "invocation"),
)
QUALITY = _made(
    documents.QualityReportKey,
    *("weights", "toolchain", "invocation"),
    candidate={"model.safetensors": B},
    data=PARTS["calibration"],
)
ANSWERS = _made(
    documents.ModelAnswersKey, *("weights", "toolchain", "invocation"), data=PARTS["calibration"]
)
STEP_INPUT = documents.StepInputKey(sha256=A)
DOCUMENTS = (
    *(VLLM, NEURON, TENSORRT, CHECKPOINT, LAYERS, SHARDED, DRAFT, QUALITY, ANSWERS, STEP_INPUT),
)


# What a later version wrote: {"schema":2}, with the digest that belongs to it.
NEWER = b'{"check":"d2bd5412509f6ba3c450e88a5b1c44b23918ed346dcc40c0e190a742b214fc1b","schema":2}'


def document(seed: int) -> documents.QuantizedCheckpointKey:
    """Give one of many documents that differ in a single field."""
    calibration = CHECKPOINT.calibration.model_copy(update={"seed": seed})
    return CHECKPOINT.model_copy(update={"calibration": calibration})


class Build:
    """A build that counts its runs and leaves two tensors and a program."""

    def __init__(self, content: bytes = b"tensors") -> None:
        self.content = content
        self.runs = 0

    def __call__(self, directory: Path) -> None:
        self.runs += 1
        (directory / "rank0").mkdir()
        (directory / "rank0/model.bin").write_bytes(self.content * 100)
        (directory / "config.json").write_bytes(b"{}")
        program = directory / "kernel.so"
        program.write_bytes(b"\x7fELF" + self.content)
        program.chmod(0o755)


def files_of(content: bytes) -> dict[str, bytes]:
    """Give what `Build(content)` leaves."""
    return {
        "config.json": b"{}",
        "kernel.so": b"\x7fELF" + content,
        "rank0/model.bin": content * 100,
    }
