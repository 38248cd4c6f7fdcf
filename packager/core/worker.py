"""Documents that an executor and a worker exchange. Changing one bumps `PROTOCOL`.

    python worker.py SPEC.json

The worker reads a `WorkerSpec`, writes files below its `output`, reports on
stdout with one `WorkerEvent` a line, and writes a `WorkerResult` last.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from packager.core.strict_models import StrictDocument

PROTOCOL: Literal[1] = 1


class WorkerSpec(StrictDocument):
    """One run: where everything is, and what is asked for."""

    protocol: Literal[1] = PROTOCOL
    tool: str
    step: str
    inputs: dict[str, str] = Field(description="role → directory to read from, never to write to")
    parameters: dict[str, Any] = Field(description="what the technique asks of the tool")
    output: str = Field(description="an empty directory; all files in it are the result")
    work: str = Field(description="a directory for anything else, kept until the end of the run")
    result: str = Field(description="where the result document goes")
    gpus: int = Field(default=0, ge=0, description="GPUs that may be used")


class WorkerEvent(StrictDocument):
    """One line on stdout. Any line is a sign of life."""

    event: Literal["progress", "note", "alive"]
    message: str = Field(default="", max_length=1000)
    done: float = Field(default=0, ge=0)
    total: float = Field(default=0, ge=0, description="0 where it is not known")


class WorkerError(StrictDocument):
    """Reason why a run has no result.

    `rejected`: the inputs cannot be worked on, now or ever.  `bad-input`: a file
    is missing or broken.  `out-of-memory`: a larger machine may do it.
    `internal`: anything else.
    """

    class_: Literal["rejected", "bad-input", "out-of-memory", "internal"] = Field(alias="class")
    message: str
    hint: str = ""


class WorkerResult(StrictDocument):
    """The end of a run: an error, or the files and how they came to be."""

    protocol: Literal[1] = PROTOCOL
    error: WorkerError | None = None
    files: tuple[str, ...] = Field(default=(), description="every file below `output`")
    versions: dict[str, str] = Field(
        default_factory=dict, description="of the packages that were used, with their local part"
    )
    seconds: float = Field(default=0, ge=0)
    peak_memory_bytes: int = Field(default=0, ge=0)
    details: dict[str, Any] = Field(default_factory=dict, description="for record and report")
