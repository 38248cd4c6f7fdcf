"""Checks of a document against the rules, before its job starts.

A document names techniques, an instance and perhaps an image; of the model it may only say where it
is.  The rules are asked with what is known, and a condition on what is not known never holds: what
only the model decides is refused by the plan, when the job runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.catalog.compatibility import rules
from packager.catalog.containers import find_container
from packager.catalog.instances import find_instance
from packager.catalog.models import find_model
from packager.core.errors import UsageError
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding, errors_in
from packager.core.instance import Instance
from packager.core.techniques import cache_option
from packager.core.text import escape
from packager.estimate.sizing.schemes import METHODS, offered_schemes, parse_quantize
from packager.optimize.drafts.request import parse_draft
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from packager.pipeline.planning.stacking import Situation, check_situation

ReadConfig = Callable[[str], Mapping[str, Any] | None]  # a model's reference → its config.json
HEAD = "eagle3"  # kind of a head that a job trains
UNPACKED = ("mxfp4",)  # of GPT-OSS: trained unpacked
SOME_DRAFT = "draft"  # its kind is in files that were not read


def check_possible(
    request: Mapping[str, Any], *, trains_head: bool, has_own_base: bool, read_config: ReadConfig
) -> None:
    """Refuse what is impossible on this instance with this image; raises `ValidationRefused`.

    `has_own_base`: the operator's image replaces the catalog's. `read_config` reads the config of
    the model that a head is trained for, if it can.
    """
    config = (read_config(request["model"]) or {}) if trains_head else {}
    architecture = _architecture(request["model"], config)
    if trains_head:
        _check_head(config)
    situation = {
        "target": "image",
        "compile": request.get("compile", ""),
        **_machine(request, has_own_base=has_own_base),
        "draft": HEAD if trains_head else _draft_kind(request.get("draft")),
        **{name: request[name] for name in ("tp_degree", "pp_degree") if name in request},
        **{name: request[name] for name in ("dtype", "kv_dtype") if _is_set(request.get(name))},
        "kv_option": cache_option(None),
        **({"architecture": architecture} if architecture else {}),
    }
    schemes = _schemes(request.get("quantize", ""))
    found = [errors_in(check_situation({**situation, **one}, rules())) for one in schemes]
    if all(found):  # whichever the plan chooses
        raise ValidationRefused("; ".join(map(_sentence, found[0])))


def _sentence(finding: Finding) -> str:
    return f"{finding.message} ({finding.hint})" if finding.hint else finding.message


def _check_head(config: Mapping[str, Any]) -> None:
    """Refuse to train where the trainer would, hours later or at once."""
    quantized = config.get("quantization_config")
    if isinstance(quantized, dict) and quantized.get("quant_method") not in UNPACKED:
        method = escape(str(quantized.get("quant_method", "quantized"))[:40])
        raise ValidationRefused(
            f"EAGLE heads are trained on unquantized weights, and the model is quantized "
            f"({method}): train on the model that it was made of, the head serves both"
        )


def _architecture(reference: str, config: Mapping[str, Any]) -> str:
    named = config.get("architectures")
    if isinstance(named, list) and named and isinstance(named[0], str):
        return escape(named[0][:100])
    known = find_model(reference)
    return known.architecture if known is not None else ""


def _machine(request: Mapping[str, Any], *, has_own_base: bool) -> Situation:
    """Return the known facts of the instance and of its serving image."""
    if request["instance"] == "local":
        return {}
    try:
        instance = find_instance(request["instance"])
        image = None if has_own_base else _image(request, instance)
    except UsageError as error:
        raise ValidationRefused(error.message, hint=error.hint) from error
    known: Situation = {
        "device": instance.kind,
        "device_name": instance.device_name,
        "instance": instance.name,
        "instance_family": instance.family,
        "compute_capability": instance.compute_capability,
        "formats": instance.formats,
        "neuron_core": instance.device_name.partition("-")[2] if instance.kind == "neuron" else "",
    }
    if image is not None:
        known |= {
            "family": image.family,
            "variant": image.variant,
            "release": image.release or image.version,
            "engine": image.engine,
            "engine_version": image.engine_version,
        }
    return {name: value for name, value in known.items() if value or name == "variant"}


def _image(request: Mapping[str, Any], instance: Instance) -> ContainerFacts:
    version = request.get("container_version")
    return find_container(request.get("family"), instance.kind, version, None, instance.name)


def _schemes(asked: str) -> tuple[Situation, ...]:
    """Return the possible schemes of the weights; the checkpoint's own is unknown."""
    if not asked:
        return ({},)
    wanted = parse_quantize(asked)
    method: Situation = {
        "quantize": wanted.method,
        "quantize_options": frozenset(name for name, _ in wanted.options),
    }
    schemes = {**METHODS, **LlmCompressorQuantizer.methods}.get(wanted.method, ())
    schemes = offered_schemes(schemes, [name for name, _ in wanted.options])
    return tuple({**method, "scheme": one.name} for one in schemes) or (method,)


def _draft_kind(draft: str | None) -> str:
    found = parse_draft(draft)
    if isinstance(found, Finding):
        raise ValidationRefused(_sentence(found))
    if found is None:
        return ""
    return SOME_DRAFT if found.kind == "draft_model" else found.kind


def _is_set(value: object) -> bool:
    return value not in (None, "auto")
