"""Rows that users add to the catalog: `--catalog FILE` and `~/.config/packager/catalog.toml`.

    [[instance]]
    name = "rack-7"
    kind = "nvidia"
    device_name = "H100"          # a known one brings its bandwidth and TFLOPS along
    devices = 8
    device_memory_gib = 79.6
    host_memory_gib = 2048
    vcpus = 192
    compute_capability = 9.0
    link = "nvlink"
    price_usd_hour = 21.5
    source = "asset list"
    date = 2026-11-20

    [[model]]
    hf_id = "acme/Llama-3-70B-support"
    architecture = "LlamaForCausalLM"
    draft_model = "meta-llama/Llama-3.2-1B-Instruct"
    source = "model registry"
    date = 2026-11-20

    [[container]]
    family = "vllm"
    kind = "nvidia"
    engine = "vllm"
    engine_version = "0.33.0"
    base = "registry.example.com/serving/vllm:0.33.0"
    source = "platform team"
    date = 2026-11-20

    [[registry]]
    name = "behind the company proxy"
    hosts = ["registry.example.com"]
    body_mib = 90                 # larger layers go in pieces
    source = "nginx.conf"
    date = 2026-11-20

A row replaces the shipped one of the same name.  Rows of `--catalog` win over those of the standing
file.  Nothing is guessed: a missing field means unknown, and an unknown field is an error.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from packager.catalog.price_file import data_dir, load_prices
from packager.core.catalog import Accelerator, CatalogModel, Price
from packager.core.documents import MAX_TOML_BYTES, NotStrict, parse_toml, shorten
from packager.core.errors import UsageError
from packager.core.facts import ContainerFacts
from packager.core.files.atomic import user_dir
from packager.core.files.user_files import read_user_file
from packager.core.instance import LOCAL, DeviceKind, Instance, gpu_formats
from packager.core.registry import UPLOAD_FORMS, RegistryTraits, UploadForm
from packager.core.units import GIB, MIB
from packager.core.user_catalog import UserCatalog

Value = TypeVar("Value")

RESERVED = (LOCAL, "all")
LARGEST_MEMORY_GIB = 1_048_576.0  # a pebibyte: beyond it is a typing error

Memory = Annotated[float, Field(gt=0, le=LARGEST_MEMORY_GIB)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
HubId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$")]
Text = Annotated[str, Field(min_length=1, max_length=300)]
HostPattern = Annotated[str, Field(pattern=r"^[a-z0-9.*?:\[\]-]{1,255}$")]
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$")]

Flag = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")]

FORMATS = gpu_formats(99.0) | {"mxfp4"}  # of the newest GPUs: all of them
TFLOPS = ("bf16", "int8", "fp8", "fp4")
LINK_WORDS = {
    "nvlink": "NVLink",
    "pcie": "PCIe",
    "neuronlink": "NeuronLink-v2",
    "xgmi": "Infinity Fabric",
}


def user_catalog_wrong(path: Path, where: str, why: str, fields: Iterable[str] = ()) -> UsageError:
    """Return an error: a row of the user's own catalog does not say what it must."""
    hint = f"fields of this row: {', '.join(fields)}" if fields else ""
    return UsageError(f"{str(path)!r}: {where}: {why}", hint=hint, code="UserCatalogWrong")


class _Row(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True)

    source: Text
    date: datetime.date


class InstanceRow(_Row):
    """One machine type."""

    name: Name
    kind: DeviceKind
    device_name: Text
    devices: PositiveInt
    device_memory_gib: Memory
    host_memory_gib: Memory
    vcpus: PositiveInt
    compute_capability: Annotated[float, Field(ge=3.0, lt=100.0)] | None = None
    formats: list[str] | None = None
    flags: list[Flag] | None = None  # of its processor, as /proc/cpuinfo names them
    link: Literal["nvlink", "pcie", "neuronlink", "xgmi"] | None = None
    link_gb_s: PositiveFloat | None = None
    bandwidth_gb_s: PositiveFloat | None = None
    tflops: dict[str, PositiveFloat] = {}
    price_usd_hour: PositiveFloat | None = None
    region: Name = "on-premises"

    @model_validator(mode="after")
    def _agrees(self) -> InstanceRow:
        if self.name in RESERVED:
            raise ValueError(f"the name {self.name!r} has a meaning of its own")
        if self.kind == "nvidia" and self.compute_capability is None:
            raise ValueError("a row with NVIDIA GPUs needs compute_capability")
        if self.kind != "nvidia" and self.compute_capability is not None:
            raise ValueError(f"compute_capability means nothing for {self.kind}")
        if self.kind == "amd" and self.formats is None:
            raise ValueError("a row with AMD GPUs needs formats, such as ['bf16', 'fp8_w8a8']")
        if self.kind != "cpu" and self.flags is not None:
            raise ValueError("flags are those of a processor that serves: kind is 'cpu'")
        if self.kind == "cpu" and self.devices != 1:
            raise ValueError("a processor is one device")
        for field, words, known in (
            ("formats", self.formats or (), FORMATS),
            ("tflops", self.tflops, TFLOPS),
        ):
            strangers = sorted(set(words) - set(known))
            if strangers:
                raise ValueError(f"{field} has {strangers[0]!r}; known: {', '.join(sorted(known))}")
        return self


class DraftRow(BaseModel):
    """Draft of a model, as a row of the user's catalog."""

    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True)

    kind: Literal["draft_model", "eagle", "eagle3", "peagle", "dflash", "medusa", "mtp"]
    reference: HubId
    license: str = ""
    note: str = ""


class ModelRow(_Row):
    """One model."""

    hf_id: HubId
    architecture: Word
    family: str = ""
    jumpstart_id: str = ""
    quantization: bool | None = None
    speculative: bool | None = None
    eagle: Literal["eagle", "eagle2", "eagle3"] | None = None
    draft_model: HubId | None = None
    draft: list[DraftRow] = []
    note: str = ""


class ContainerRow(_Row):
    """One serving image."""

    family: Word  # of packager, or of an installed package
    kind: DeviceKind
    engine: Word
    engine_version: Word
    base: Text
    version: str = ""
    release: str = ""
    variant: str = "user"
    least_compute_capability: Annotated[float, Field(ge=0.0, lt=100.0)] = 0.0
    targets: list[Name] = []
    cuda: Annotated[str, Field(pattern=r"^\d{2}\.\d$")] | None = None


class RegistryRow(_Row):
    """One registry, or all whose addresses fit."""

    name: Text
    hosts: Annotated[list[HostPattern], Field(min_length=1)]
    layer_mib: PositiveInt | None = None
    layers: PositiveInt | None = None
    upload_minutes: PositiveFloat | None = None
    body_mib: PositiveInt | None = None
    chunk_mib: PositiveInt | None = None
    forms: Annotated[list[UploadForm], Field(min_length=1)] = list(UPLOAD_FORMS)
    create: str = ""
    note: str = ""


class CatalogFile(BaseModel):
    """The whole file. Its JSON schema is what editors and `packager explain` show."""

    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True)

    instance: list[InstanceRow] = []
    model: list[ModelRow] = []
    container: list[ContainerRow] = []
    registry: list[RegistryRow] = []


def user_rows_in(path: Path | None, environment: Mapping[str, str]) -> UserCatalog:
    """Gather the user's own rows and the refreshed prices; a price the user states wins."""
    rows = load_user_catalog(path, environment)
    return replace(rows, prices=rows.prices + load_prices(data_dir(environment)))


def load_user_catalog(path: Path | None, environment: Mapping[str, str]) -> UserCatalog:
    """Read the user's rows: those of `path`, then those of the standing file that it does not name.

    The standing file may be missing; `path` must exist.
    """
    standing = user_catalog_file(environment)
    files = [_read(path)] if path else []
    if _is_there(standing) and (path is None or not standing.samefile(path)):
        files.append(_read(standing))
    return UserCatalog(
        instances=tuple(_instance(row) for row in _named(files, "instance", "name")),
        accelerators=tuple(_accelerators(_named(files, "instance", "name"))),
        models=tuple(_model(row) for row in _named(files, "model", "hf_id")),
        containers=tuple(_container(row) for file in files for row in file.container),
        prices=tuple(_prices(_named(files, "instance", "name"))),
        registries=tuple(_registry(row) for row in _named(files, "registry", "name")),
    )


def user_catalog_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the user's catalog file."""
    return user_dir("config", environment) / "packager" / "catalog.toml"


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:
        return True  # for all we know; reading it says why not


def _read(path: Path) -> CatalogFile:
    data = read_user_file(
        path,
        what="catalog",
        hint="name a catalog file that you may read; the lasting one is below your HOME",
        max_bytes=MAX_TOML_BYTES,
    )
    try:
        table = parse_toml(data)
    except NotStrict as error:
        raise user_catalog_wrong(path, "it cannot be parsed", str(error)) from error
    try:
        file = CatalogFile.model_validate(table)
    except ValidationError as error:
        raise user_catalog_wrong(path, *_first(error, table)) from error
    for kind, names in (
        ("instance", [row.name for row in file.instance]),
        ("model", [row.hf_id for row in file.model]),
        ("registry", [row.name for row in file.registry]),
    ):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise user_catalog_wrong(path, f"[[{kind}]] {twice[0]}", "duplicate")
    return file


def _first(error: ValidationError, table: Mapping[str, Any]) -> tuple[str, str, Iterable[str]]:
    """Return where the first error is in the file, what it is, and the valid values.

    A misspelt field is also a missing one: the field that is too much is the one to name.
    """
    found = error.errors()
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    kind, *rest = (str(part) for part in first["loc"])
    if kind not in ROWS:
        return f"[[{kind}]]", "there is no such row", [f"[[{name}]]" for name in ROWS]
    message = first["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if not rest:
        return f"[[{kind}]]", message, ROWS[kind].model_fields
    row = table[kind][int(rest[0])]
    named = row if isinstance(row, dict) else {}
    name = next((named[key] for key in ("name", "hf_id", "base") if key in named), None)
    shown = shorten(name)[1:-1] if isinstance(name, str) else f"number {int(rest[0]) + 1}"
    where = f"[[{kind}]] {shown}"
    field = ".".join(rest[1:])
    return where, f"{field}: {message}" if field else message, ROWS[kind].model_fields


ROWS: dict[str, type[BaseModel]] = {
    "instance": InstanceRow,
    "model": ModelRow,
    "container": ContainerRow,
    "registry": RegistryRow,
}


def _named(files: list[CatalogFile], kind: str, key: str) -> list[Any]:
    rows: dict[str, Any] = {}
    for file in files:
        for row in getattr(file, kind):
            rows.setdefault(getattr(row, key), row)
    return list(rows.values())


def _value_of(target: Callable[..., Value], row: _Row, **others: Any) -> Value:
    """Return a value made of a row's fields with the same names, and of `others`.

    Fields that the row does not state have the value's own default.
    """
    stated = row.model_dump(exclude_none=True) | {"date": row.date.isoformat()}
    value: Value = _adapter(target).validate_python(stated | others)
    return value


@cache
def _adapter(target: Any) -> TypeAdapter[Any]:
    return TypeAdapter(target)


def _instance(row: InstanceRow) -> Instance:
    formats = frozenset(row.formats or ())
    if row.formats is None and row.compute_capability is not None:
        formats = gpu_formats(row.compute_capability)
    return _value_of(
        Instance,
        row,
        device_bytes=round(row.device_memory_gib * GIB),
        host_bytes=round(row.host_memory_gib * GIB),
        formats=formats | {"fp16", "fp32"},
        flags=tuple(row.flags or ()),
        price_basis="user" if row.price_usd_hour else "",
        link=LINK_WORDS.get(row.link or "", ""),
    )


def _accelerators(rows: list[InstanceRow]) -> Iterator[Accelerator]:
    """Yield devices that the user has figures for; the others are looked up by name."""
    for row in rows:
        if row.bandwidth_gb_s is None:
            continue
        instance = _instance(row)
        linked = row.devices > 1
        yield _value_of(
            Accelerator,
            row,
            name=row.device_name,
            usable_bytes=instance.device_bytes,
            bandwidth_bytes_s=row.bandwidth_gb_s * 1e9,
            link=(row.link or "") if linked else "",
            link_bytes_s=(row.link_gb_s or 0.0) * 1e9 if linked else 0.0,
            formats=instance.formats,
        )


def _model(row: ModelRow) -> CatalogModel:
    origin = {"source": row.source, "date": row.date.isoformat()}
    drafts = [draft.model_dump() | origin for draft in row.draft]
    return _value_of(CatalogModel, row, drafts=drafts)


def _container(row: ContainerRow) -> ContainerFacts:
    source = f"{row.source} ({row.date.isoformat()})"
    return _value_of(ContainerFacts, row, default_base=row.base, source=source)


def _registry(row: RegistryRow) -> RegistryTraits:
    return _value_of(
        RegistryTraits,
        row,
        layer_bytes=(row.layer_mib or 0) * MIB,
        upload_s=60.0 * (row.upload_minutes or 0),
        body_bytes=(row.body_mib or 0) * MIB,
        chunk_bytes=(row.chunk_mib or 0) * MIB,
    )


def _prices(rows: list[InstanceRow]) -> Iterator[Price]:
    for row in rows:
        if row.price_usd_hour is not None:
            yield _value_of(
                Price, row, instance=row.name, usd_hour=row.price_usd_hour, basis="user"
            )
