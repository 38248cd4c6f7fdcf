"""Documents that pydantic reads: of builds, keys, steps, measurements, settings."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from artifact_cache.entry import Entry, Signature, _Envelope, entry_bytes, parse_entry
from artifact_cache.key import key_of, plain
from artifact_cache.negative import Failure
from artifact_cache.negative import _bytes as failure_bytes
from artifact_cache.negative import _parse as parse_failure
from artifact_cache.pins import Pin
from artifact_cache.pins import _read as read_pin
from artifact_cache.trust import _TrustedKeys, generate_key, load_trusted_keys, trust_key
from packager.addons.bench.tune.journal import Built, Event, Failed, Header, Rated, Retried
from packager.addons.bench.tune.journal import _parse as parse_journal
from packager.addons.bundle.manifest import Bundle, parse_bundle
from packager.addons.fleet.grid import read_grid_or_plan
from packager.addons.fleet.planning import canonical
from packager.addons.server.jobs.folders import PROGRESS_FILE
from packager.addons.server.jobs.progress import Progress, read_progress
from packager.addons.server.jobs.rows import asked_text
from packager.addons.server.jobs.values import NewJob
from packager.catalog.user_catalog import CatalogFile, load_user_catalog
from packager.cli.commands.lock import read_lock
from packager.core.bench import BenchReport
from packager.core.documents import parse_model
from packager.core.lock import LOCK_SCHEMA, ProjectLock, lock_text
from packager.core.order import NodeLine, StepOrder
from packager.core.quality import QualityReport
from packager.core.record import RECORD_SCHEMA, BuildRecord
from packager.core.request import BuildRequest, parse_request
from packager.core.speculation import SpeculationReport
from packager.core.startup import StartupReport
from packager.core.training import TrainingReport
from packager.core.tree_manifest import TreeManifest, read_manifest
from packager.core.tuning import TuneReport
from packager.core.units import GIB
from packager.core.warmup import Grid, WarmPlan
from packager.core.worker import WorkerEvent, WorkerResult, WorkerSpec
from packager.optimize.cache.settings import CacheOptions, _File, cache_settings
from packager.optimize.cache.streamed import KeptLayers
from packager.optimize.keys.documents import KINDS as KEYS
from packager.optimize.keys.documents import parse_document
from packager.optimize.steps.tools.definition import ToolFile, read_tool
from packager.pipeline.records import parse_record, record_document
from tests.support.cache_entries import CHECKPOINT, DOCUMENTS
from tests.support.document_kinds.kinds import DocumentKind, in_file, modelled, required, written
from tests.support.frozen_schemas import filled, inlined
from tests.support.places import DATA

DIGEST = f"sha256:{'a' * 64}"
WRITTEN = tomllib.loads((DATA / "schemas" / "cache.toml").read_text(encoding="utf-8"))


def entry() -> Entry:
    made = WRITTEN["entry"] | {"key": key_of(CHECKPOINT), "keydoc": plain(CHECKPOINT)}
    return Entry.model_validate_json(json.dumps(made))


def _signed_entry() -> bytes:
    signature = Signature(keyid="d" * 64, sig="YQ==")
    return entry_bytes(entry().model_copy(update={"signatures": (signature,)}))


def _trusted_keys(place: Path) -> bytes:
    trust_key(place / "trusted.json", generate_key(place / "key.pem"), "ours")
    return (place / "trusted.json").read_bytes()


def _journal(_place: Path) -> bytes:
    lines = []
    for model in (Header, Built, Failed, Rated, Retried):
        document = filled(inlined(model.model_json_schema()))
        lines.append(model.model_validate(document).model_dump_json() + "\n")
    return "".join(lines).encode()


def failure() -> Failure:
    return Failure(**WRITTEN["failure"])


def _settings(path: Path) -> object:
    environment = {"XDG_CONFIG_HOME": str(path.parent.parent)}
    return cache_settings(CacheOptions(), environment).shared


def _tool(path: Path) -> object:
    (path.parent / "worker.py").touch()
    (path.parent / "requirements.txt").touch()
    return read_tool("tool", path.parent, path.parent / "common").file.install


def _keys() -> tuple[DocumentKind, ...]:
    samples = {document.kind: document for document in DOCUMENTS}
    return tuple(
        DocumentKind(
            name=f"key-{kind}",
            version=model.model_fields["schema_version"].default,
            place="`schema` of the key's class",
            writer="packager.optimize.keys.documents",
            model=model,
            make=lambda _place, kind=kind: json.dumps(plain(samples[kind]), indent=1).encode(),
            read=lambda data, _place: parse_document(json.loads(data)),
        )
        for kind, model in KEYS.items()
    )


def _read_grid(path: Path) -> object:
    return read_grid_or_plan(str(path))


def _toml(
    name: str, model: Any, path: str, read: Callable[[Path], object], *, version: int = 1
) -> DocumentKind:
    """Return a kind that people write: `data/schemas/NAME.toml` is the example."""
    return DocumentKind(
        name=name,
        version=version,
        writer="",
        model=model,
        make=lambda _place: (DATA / "schemas" / f"{name}.toml").read_bytes(),
        read=in_file(path, read),
        suffix=".toml",
    )


MODELLED: tuple[DocumentKind, ...] = (
    modelled(
        "build-record",
        "packager.core.record.RECORD_SCHEMA",
        BuildRecord,
        writer="packager.pipeline.records",
        write=record_document,
        read=lambda data, _place: parse_record(data, "record.json"),
        changes={"schema_version": RECORD_SCHEMA, "request.max_layer_size": GIB},
    ),
    modelled(
        "project-lock",
        "packager.core.lock.LOCK_SCHEMA",
        ProjectLock,
        writer="packager.cli.commands.lock",
        write=lambda lock: lock_text(lock).encode(),
        read=in_file("packager.lock", read_lock),
        changes={"schema_version": LOCK_SCHEMA},
    ),
    modelled(
        "request",
        4,
        BuildRequest,
        writer="packager.addons.server.pages.form",
        read=lambda data, _place: parse_request(json.loads(data)),
        changes={"max_layer_size": GIB},
    ),
    modelled(
        "bundle",
        "packager.addons.bundle.manifest.BUNDLE_SCHEMA",
        Bundle,
        writer="packager.addons.bundle.create",
        read=lambda data, _place: parse_bundle(data, "bundle.json"),
        changes={
            "files": [{"path": "images/oci-layout", "sha256": "0" * 64, "size": 3, "parts": []}],
        },
    ),
    modelled(
        "tree-manifest",
        1,
        TreeManifest,
        writer="packager.core.tree_manifest",
        read=lambda data, _place: read_manifest(data),
    ),
    *_keys(),
    modelled("warm-grid", 1, Grid, writer="", read=in_file("grid.json", _read_grid)),
    modelled(
        "warm-plan",
        "packager.core.warmup.PLAN_SCHEMA",
        WarmPlan,
        writer="packager.addons.fleet.planning",
        write=canonical,
        read=in_file("plan.json", _read_grid),
        changes={"jobs.0.request.max_layer_size": GIB},
    ),
    *(
        modelled(name, "packager.core.worker.PROTOCOL", model, writer=writer)
        for name, model, writer in (
            ("worker-spec", WorkerSpec, "packager.optimize.steps.local"),
            ("worker-event", WorkerEvent, ""),
            ("worker-result", WorkerResult, ""),
        )
    ),
    modelled(
        "step-order",
        "packager.core.order.ORDER_VERSION",
        StepOrder,
        writer="packager.optimize.steps.ray.exchange",
        write=lambda order: order.model_dump_json(exclude_defaults=True).encode(),
        read=lambda data, _place: parse_model(StepOrder, data),
        refused={1: "order: field required"},
    ),
    modelled("step-node-line", 1, NodeLine, writer="packager.addons.fleet.commands.warm_step"),
    modelled("bench-report", "packager.core.bench.SCHEMA", BenchReport, writer=""),
    modelled("startup-report", "packager.core.startup.SCHEMA", StartupReport, writer=""),
    modelled(
        "tune-report",
        "packager.core.tuning.SCHEMA",
        TuneReport,
        writer="packager.addons.bench.commands.tune",
    ),
    modelled("quality-report", 1, QualityReport, writer="packager.cli.commands.evaluate"),
    modelled(
        "speculation-report",
        1,
        SpeculationReport,
        writer="packager.addons.bench.commands.draft_measure",
    ),
    modelled("training-report", 2, TrainingReport, writer="packager.pipeline.tree"),
    written(
        "tune-journal",
        "packager.addons.bench.tune.journal",
        _journal,
        lambda data, _place: parse_journal(data, Path("journal")),
        "VERSION",
        model=Header | Event,
        suffix=".jsonl",
    ),
    modelled(
        "job-asked",
        "packager.addons.server.jobs.rows.VERSION",
        NewJob,
        writer="packager.addons.server.jobs.rows",
        write=lambda job: asked_text(job).encode(),
    ),
    modelled(
        "job-progress",
        1,
        Progress,
        writer="packager.addons.server.jobs.progress",
        read=in_file(PROGRESS_FILE, lambda path: read_progress(path.parent).steps),
    ),
    written(
        "cache-entry",
        "artifact_cache.entry",
        lambda _place: entry_bytes(entry()),
        lambda data, _place: parse_entry(data),
        "SCHEMA",
        model=Entry,
        part=lambda document: {name: document[name] for name in document if name != "check"},
    ),
    modelled(
        "streamed-layers",
        1,
        KeptLayers,
        writer="packager.optimize.cache.streamed",
        read=lambda data, _place: parse_model(KeptLayers, data),
        changes={
            "layers": [
                {"role": "weights", "content": DIGEST, "size": 3, "digest": DIGEST},
            ],
        },
    ),
    written(
        "cache-envelope",
        "artifact_cache.entry",
        lambda _place: _signed_entry(),
        lambda data, _place: required(parse_entry(data).signatures),
        model=_Envelope,
    ),
    modelled("cache-pin", 1, Pin, writer="artifact_cache.pins", read=in_file("pin.json", read_pin)),
    written(
        "cache-trusted-keys",
        "artifact_cache.trust",
        _trusted_keys,
        in_file("trusted.json", load_trusted_keys),
        model=_TrustedKeys,
    ),
    written(
        "cache-failure",
        "artifact_cache.negative",
        lambda _place: failure_bytes(failure()),
        lambda data, _place: required(parse_failure(data)),
        model=Failure,
        part=lambda document: json.loads(document["failure"]),
    ),
    _toml("cache-settings", _File, "packager/cache.toml", _settings),
    _toml(
        "catalog",
        CatalogFile,
        "catalog.toml",
        lambda path: load_user_catalog(path, {"HOME": str(path.parent)}).instances,
        version=2,  # rows of processors state their flags
    ),
    _toml("tool", ToolFile, "tool/tool.toml", _tool),
)
