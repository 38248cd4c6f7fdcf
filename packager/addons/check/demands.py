"""What a server's settings ask of its machine: degrees, lengths, types, by the planner's names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packager.addons.check.engines import DIALECTS, engine_settings
from packager.addons.check.lmi import lmi_settings
from packager.addons.check.tgi import tgi_settings
from packager.addons.check.values import ConfigTarget, DescribedServer, Remark
from packager.core.findings import Finding
from packager.core.positions import Place
from packager.engines.schema import read_size

DEGREES = ("tp_degree", "pp_degree", "dp_degree")
# Fields of a request by the names of each family's settings; the first that is set counts.
FIELDS: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "tp_degree": "tensor-parallel-size",
        "pp_degree": "pipeline-parallel-size",
        "dp_degree": "data-parallel-size",
        "ep": "enable-expert-parallel",
        "max_total_tokens": "max-model-len",
        "dtype": "dtype",
        "kv_dtype": "kv-cache-dtype",
        "gpu_memory_utilization": "gpu-memory-utilization",
    },
    "sglang": {
        "tp_degree": "tp-size",
        "pp_degree": "pp-size",
        "max_total_tokens": "context-length",
        "dtype": "dtype",
        "kv_dtype": "kv-cache-dtype",
    },
    "lmi": {
        "tp_degree": "option.tensor_parallel_degree",
        "pp_degree": "option.pipeline_parallel_degree",
        "max_total_tokens": "option.max_model_len",
        "dtype": "option.dtype",
        "kv_dtype": "option.kv_cache_dtype",
        "gpu_memory_utilization": "option.gpu_memory_utilization",
    },
    "tgi": {"tp_degree": "NUM_SHARD", "max_total_tokens": "MAX_TOTAL_TOKENS", "dtype": "DTYPE"},
}
DTYPES = {"half": "float16", "fp16": "float16", "bf16": "bfloat16"}
# Settings of a server whose devices are on several machines.
SEVERAL = re.compile(
    r"nnodes|node-rank|headless|dist-init-addr|data-parallel-(?:address|size-local|start-rank|"
    r"hybrid-lb|external-lb|rank|backend)"
)
LEAST_SHM = 2**26  # bytes that Docker gives unasked: too few for the buffers between workers
SIZE = re.compile(r"(\d+)([kmgKMG]?)[iI]?[bB]?", re.ASCII)


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """A value with its place; None where only the engine knows what it means."""

    value: object
    place: Place


@dataclass(frozen=True, slots=True)
class Demand:
    """A request's fields as settings give them, and all settings."""

    fields: Mapping[str, CheckOptions]
    settings: Mapping[str, CheckOptions]  # all of them, by the names of its family
    several: bool = False  # its devices are on several machines

    def value(self, field: str) -> object:
        """Return a field's value; None if it is unset, or only the engine knows it."""
        return self.fields[field].value if field in self.fields else None

    def degree(self, field: str) -> int:
        """Return a degree that is set, else 1."""
        value = self.value(field)
        return value if isinstance(value, int) else 1

    def place(self, *fields: str) -> Place | None:
        """Return the place of the first of these fields that is set."""
        return next((self.fields[one].place for one in fields if one in self.fields), None)


def demand_of(server: DescribedServer, target: ConfigTarget) -> Demand | None:
    """Return a server's requirements; None for a family that is not planned so."""
    if target.family not in FIELDS:
        return None
    settings = _settings(server, target)
    fields = {
        name: CheckOptions(_value(name, settings[setting].value), settings[setting].place)
        for name, setting in FIELDS[target.family].items()
        if setting in settings
    }
    backend = settings.get("distributed-executor-backend")
    several = any(SEVERAL.fullmatch(name) for name in settings)
    by_ray = backend is not None and backend.value == "ray"
    return Demand(fields, settings, several or by_ray)


def devices_of(server: DescribedServer) -> CheckOptions | None:
    """Return how many devices the file gives a server; None where it does not say."""
    for setting in server.resources:
        if setting.name == "devices" and setting.value:
            return CheckOptions(int(setting.value), setting.place)
    for setting in server.env:
        listed = setting.value or ""
        if setting.name == "CUDA_VISIBLE_DEVICES" and re.fullmatch(r"\d+(,\d+)*", listed):
            return CheckOptions(len(listed.split(",")), setting.place)
    return None


def check_resources(server: DescribedServer, target: ConfigTarget) -> Iterator[Remark]:
    """Find more devices than the file gives, and too little shared memory between them."""
    demand, devices = demand_of(server, target), devices_of(server)
    if demand is None or demand.several:
        return
    wanted = demand.degree("tp_degree") * demand.degree("pp_degree") * demand.degree("dp_degree")
    place = demand.place(*DEGREES)
    given = devices.value if devices is not None else None
    if devices is not None and place is not None and isinstance(given, int) and wanted > given:
        line = devices.place.line
        message = f"the server wants {wanted} devices, and line {line} gives it {given}"
        yield Remark(place, Finding("error", "devices-missing", message, "make the two agree"))
    for setting in server.resources:
        shared = _bytes(setting.value or "") if setting.name == "shm" else None
        if wanted > 1 and shared is not None and shared <= LEAST_SHM:
            message = f"{wanted} workers share {setting.value} of /dev/shm"
            hint = "give at least 1 GiB for each: --shm-size, --ipc=host, or a volume in memory"
            found = Finding("warning", "shared-memory-small", message, hint)
            yield Remark(setting.place, found)


def _bytes(text: str) -> int | None:
    found = SIZE.fullmatch(text.strip())
    if found is None:
        return None
    power = {"": 0, "k": 1, "m": 2, "g": 3}[found[2].lower()]
    return int(found[1]) << 10 * power


def _settings(server: DescribedServer, target: ConfigTarget) -> Mapping[str, CheckOptions]:
    """Return a server's settings by the names of its family."""
    if target.family in DIALECTS:
        found = engine_settings(server, target)
    elif target.family == "tgi":
        found = tgi_settings(server, target)
    else:
        keys = lmi_settings(server)
        return {name: CheckOptions(one.value, one.place) for name, one in keys.items()}
    return {name: CheckOptions(one.value, one.place) for name, one in found.items()}


def _value(field: str, value: object) -> object:
    """Return a setting's value as a field of a request has it; None for what only engines know."""
    if field == "ep":
        return value is True or None
    text = str(value).strip().lower()
    if field == "dtype":
        text = DTYPES.get(text, text)
        return text if text in {"bfloat16", "float16"} else None
    if field == "kv_dtype":
        return "fp8" if text.startswith("fp8") else None
    if field == "gpu_memory_utilization":
        share = float(text) if re.fullmatch(r"\d*\.?\d+", text) else 0.0
        return share if 0 < share < 1 else None
    if not re.fullmatch(r"\d{1,12}(?:\.\d{1,6})?[kKmMgG]?", text):
        return None
    return int(read_size(str(value).strip())) or None
