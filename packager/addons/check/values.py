"""Values of a parsed configuration: words, settings, servers, remarks with places.

Lines and columns count from 1, columns in characters.  A value that only the server's machine
knows, such as a secret or a shell variable, is None and never checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from packager.core.engine_rows import engine_row
from packager.core.findings import Finding
from packager.core.positions import Place, Span

Kind = Literal[
    "properties",
    "env",
    "kubernetes",
    "compose",
    "dockerfile",
    "command",
    "config",
    "containers",
    "unit",
]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command line, after the shell's quotes are gone."""

    text: str
    place: Place
    known: bool = True  # False: a variable is in it that only the shell knows
    spans: tuple[Span, ...] = ()  # empty: no part of it is at a place that is known


@dataclass(frozen=True, slots=True)
class Setting:
    """A name with its value, in the order of the file."""

    name: str
    value: str | None
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """An edit of a file that fixes a finding: `old` at a place becomes `new`."""

    place: Place
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding with its place."""

    place: Place
    finding: Finding
    edit: Edit | None = None  # what mends it for certain


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedServer:
    """One server that a file describes. Later settings of one name win over earlier ones."""

    place: Place
    name: str = ""  # which of several in a file: "Deployment llama, container vllm"
    image: str = ""
    command: tuple[Word, ...] = ()  # replaces the image's own command
    arguments: tuple[Word, ...] = ()  # for the image's own command
    env: tuple[Setting, ...] = ()
    properties: tuple[Setting, ...] = ()  # of a serving.properties
    config: tuple[Setting, ...] = ()  # of a file for an engine's `--config`
    # What its container or job has: `devices`, a number, and `shm`, the size of /dev/shm.
    resources: tuple[Setting, ...] = ()
    remarks: tuple[Remark, ...] = ()  # of its command's lines

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables whose values are known."""
        return {one.name: one.value for one in self.env if one.value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDocument:
    """Parsed contents of one file."""

    file: str
    kind: Kind
    servers: tuple[DescribedServer, ...]
    remarks: tuple[Remark, ...] = ()  # of reading it: lines that no reader takes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigTarget:
    """The engine that a server is checked for."""

    family: str  # `vllm`, `sglang`, `tgi`, `lmi`, `neuron`
    version: str  # of the engine; of TGI and LMI that of the container
    release: int = 0  # of LMI
    variant: str = ""  # of the image: `upstream` takes a command line
    engine: str = ""  # inside LMI: `vllm` or `tensorrt-llm`
    said_by: str = ""  # where it is known from, for the reader
    unknown: str = ""  # the tag's version, if its engine is unknown

    @property
    def title(self) -> str:
        """Return the engine and its version as a reader writes them."""
        version = str(self.release) if self.family == "lmi" and self.release else self.version
        return f"{engine_row(self.family).shown or self.variant or self.family} {version}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One server with its verdict."""

    server: DescribedServer
    target: ConfigTarget | None  # None where the file starts no engine that is known
    remarks: tuple[Remark, ...] = ()
    is_checked: bool = True  # its settings were held against an engine's options


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """All remarks, in the order of the files."""

    checked: tuple[Checked, ...]
    remarks: tuple[Remark, ...]  # all of them, by file and line
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    unread: tuple[str, ...] = ()  # files in which no engine was found

    def count(self, severity: str) -> int:
        """Count the remarks of a severity."""
        return sum(remark.finding.severity == severity for remark in self.remarks)
