"""Composition root: the only package that instantiates adapters.

Its names are imported when they are asked for: a command starts with the adapters that it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packager.wiring.bases import build_missing_base as build_missing_base
    from packager.wiring.builds import find_model as find_model
    from packager.wiring.builds import parse_model_reference as parse_model_reference
    from packager.wiring.builds import services_for as services_for
    from packager.wiring.caches import artifact_cache_for as artifact_cache_for
    from packager.wiring.caches import artifacts_dir as artifacts_dir
    from packager.wiring.caches import cache_dir as cache_dir
    from packager.wiring.caches import entry_sink as entry_sink
    from packager.wiring.caches import import_entries as import_entries
    from packager.wiring.caches import last_lookups as last_lookups
    from packager.wiring.caches import open_artifact_cache as open_artifact_cache
    from packager.wiring.caches import past_runs as past_runs
    from packager.wiring.caches import settings_of_cache as settings_of_cache
    from packager.wiring.caches import signer_for as signer_for
    from packager.wiring.caches import signing_key_place as signing_key_place
    from packager.wiring.caches import trust_for as trust_for
    from packager.wiring.caches import trusted_keys_place as trusted_keys_place
    from packager.wiring.configs import read_config_soon as read_config_soon
    from packager.wiring.heads import head_services_for as head_services_for
    from packager.wiring.images import ImageServices as ImageServices
    from packager.wiring.images import image_services_for as image_services_for
    from packager.wiring.node_caches import node_image_services_for as node_image_services_for
    from packager.wiring.nodes import node_services_for as node_services_for
    from packager.wiring.opinions import opinion_executor as opinion_executor
    from packager.wiring.opinions import opinion_workspace as opinion_workspace
    from packager.wiring.outputs import sinks_for as sinks_for
    from packager.wiring.registries import Clients as Clients
    from packager.wiring.settings import EPOCH as EPOCH
    from packager.wiring.settings import Settings as Settings
    from packager.wiring.settings import created_time as created_time
    from packager.wiring.settings import jobs_dir as jobs_dir
    from packager.wiring.settings import parse_output as parse_output
    from packager.wiring.settings import settings_for as settings_for
    from packager.wiring.settings import state_dir as state_dir
    from packager.wiring.settings import stated_time as stated_time
    from packager.wiring.steps import check_jobs_executor as check_jobs_executor
    from packager.wiring.steps import gpus_here as gpus_here
    from packager.wiring.techniques import environments_for as environments_for
    from packager.wiring.techniques import find_compilers as find_compilers
    from packager.wiring.techniques import find_quantizer as find_quantizer
    from packager.wiring.techniques import tool_names as tool_names
    from packager.wiring.texts import evaluation_texts as evaluation_texts
    from packager.wiring.texts import find_evaluation as find_evaluation
    from packager.wiring.texts import find_samples as find_samples
    from packager.wiring.texts import read_workload as read_workload
    from packager.wiring.texts import training_texts as training_texts
    from packager.wiring.warm_up import fleet_for as fleet_for
    from packager.wiring.warm_up import presence_for as presence_for

_HOMES = {
    "build_missing_base": "bases",
    "find_model": "builds",
    "parse_model_reference": "builds",
    "services_for": "builds",
    "artifact_cache_for": "caches",
    "artifacts_dir": "caches",
    "cache_dir": "caches",
    "entry_sink": "caches",
    "import_entries": "caches",
    "last_lookups": "caches",
    "open_artifact_cache": "caches",
    "past_runs": "caches",
    "settings_of_cache": "caches",
    "signer_for": "caches",
    "signing_key_place": "caches",
    "trust_for": "caches",
    "trusted_keys_place": "caches",
    "read_config_soon": "configs",
    "head_services_for": "heads",
    "ImageServices": "images",
    "image_services_for": "images",
    "node_image_services_for": "node_caches",
    "node_services_for": "nodes",
    "opinion_executor": "opinions",
    "opinion_workspace": "opinions",
    "sinks_for": "outputs",
    "Clients": "registries",
    "EPOCH": "settings",
    "Settings": "settings",
    "created_time": "settings",
    "jobs_dir": "settings",
    "parse_output": "settings",
    "settings_for": "settings",
    "state_dir": "settings",
    "stated_time": "settings",
    "check_jobs_executor": "steps",
    "gpus_here": "steps",
    "environments_for": "techniques",
    "find_compilers": "techniques",
    "find_quantizer": "techniques",
    "tool_names": "techniques",
    "evaluation_texts": "texts",
    "find_evaluation": "texts",
    "find_samples": "texts",
    "read_workload": "texts",
    "training_texts": "texts",
    "fleet_for": "warm_up",
    "presence_for": "warm_up",
}

__all__ = tuple(sorted(_HOMES))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
