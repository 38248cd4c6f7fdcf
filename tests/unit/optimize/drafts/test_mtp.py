"""`--draft mtp`: the head that a checkpoint brings along, checked from headers of real sizes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.catalog.compatibility import rules
from packager.catalog.containers import find_container
from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.findings import Finding, errors_in
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.versions import LOWEST, version_key
from packager.engines.schema import find_schema
from packager.estimate.performance.predict import Setup, draft_s, setup_of
from packager.models.architectures.profile import make_profile
from packager.optimize.drafts.mtp import check_mtp
from packager.optimize.drafts.mtp_engines import served_models
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support import heads, mtp_models
from tests.support.cases import cases_of, read_tables
from tests.support.doubles.containers import FAMILIES
from tests.support.headers import LLAMA_3_8B, facts_of, model_of, tensor
from tests.support.mtp_models import MODELS, with_config, without

cases = cases_of(__file__)

REFUSED = {**MODELS, "llama": lambda: model_of(LLAMA_3_8B), "gemma 4": mtp_models.gemma_4}
LARGE = "p5en.48xlarge"  # 8 devices of 141 GB: all of them fit


def facts(
    model: ModelFiles, *, family: str = "vllm", version: str | None = None, **asked: Any
) -> Facts:
    asked = {"draft": "mtp", **asked}
    found = facts_of(model, asked.pop("instance", LARGE), family=family, **asked)
    kind, name = found.instance.kind, found.instance.name
    return replace(found, container=find_container(family, kind, version, None, name, ()))


def plan(model: ModelFiles, **asked: Any) -> Plan:
    found = facts(model, **asked)
    return make_plan(found, PlannerServices(family=FAMILIES[found.container.family], rules=rules()))


def refusal(model: ModelFiles, **asked: Any) -> Finding:
    with pytest.raises(PlanRejected) as caught:
        plan(model, **asked)
    return errors_in(caught.value.findings)[0]


def told(planned: Plan) -> dict[str, Any]:
    """What the engine is told of the draft."""
    config = FAMILIES[planned.container.family].render(planned, Artifacts(model=()))
    for name in ("SM_VLLM_SPECULATIVE_CONFIG", "OPTION_SPECULATIVE_CONFIG"):
        if name in config.env:
            read: dict[str, Any] = json.loads(config.env[name].strip("'"))
            return read
    return {
        name.removeprefix("SM_SGLANG_SPECULATIVE_").lower(): value
        for name, value in config.env.items()
        if name.startswith("SM_SGLANG_SPECULATIVE_")
    }


named = cases("served")


@named
def test_the_head_of_the_checkpoint_is_planned_with_its_own_size(case: dict[str, Any]) -> None:
    model, weight_bytes = MODELS[case["model"]](), case["weight_bytes"]
    planned = plan(model)

    draft = planned.draft
    assert draft is not None
    assert (draft.kind, draft.reference, draft.speculative_tokens) == ("mtp", "", 1)
    assert draft.weight_bytes == weight_bytes
    assert draft.kv_bytes_per_token == case["kv_bytes_per_token"]
    # It is not counted twice: without the draft the same bytes stay on the disk.
    without_it = plan(model, draft=None, tp_degree=planned.tp_degree)
    assert planned.budget.weights_bytes == without_it.budget.weights_bytes
    assert planned.profile.unserved_bytes == weight_bytes
    assert planned.budget.draft_weights_bytes == -(-weight_bytes // planned.tp_degree)


def test_a_latent_is_whole_on_every_device_and_heads_are_split() -> None:
    latent = plan(MODELS["deepseek-v3"](), tp_degree=8)
    split = plan(MODELS["mimo"](), tp_degree=8)

    assert latent.budget.draft_kv_bytes_per_token == 1152
    assert split.budget.draft_kv_bytes_per_token == 4096 // 8


@named
def test_lmi_passes_it_to_its_vllm(case: dict[str, Any]) -> None:
    planned = plan(MODELS[case["model"]](), family="lmi", speculative_tokens=2)

    assert told(planned) == {"method": "mtp", "num_speculative_tokens": 2}


@named
def test_sglang_finds_the_head_in_the_model(case: dict[str, Any]) -> None:
    for version in (case["sglang"], "0.5.17"):
        planned = plan(MODELS[case["model"]](), family="sglang", version=version, draft="mtp:3")

        assert told(planned) == read_tables(__file__)["sglang_mtp"]


@cases("refused", model="mimo", draft="mtp", asked={}, lost=None, config={}, shapes={}, hint="")
def test_what_cannot_be_served_is_refused_with_its_reason(
    model: str,
    draft: str,
    asked: dict[str, Any],
    lost: str | None,
    config: dict[str, Any],
    shapes: dict[str, tuple[str, tuple[int, ...]]],
    code: str,
    says: str,
    hint: str,
) -> None:
    """`says` is a pattern; `lost` is in the names of the tensors that are not there."""
    files = with_config(heads.with_shapes(REFUSED[model](), shapes), **config)
    found = refusal(without(files, lost) if lost else files, draft=draft, **asked)

    assert found.code == code
    assert re.search(says, found.message)
    assert len(found.message) < 200 or not config
    assert hint in found.hint


@cases("kinds")
def test_vllm_0_10_has_a_name_for_each_kind_of_head(model: str, method: str) -> None:
    planned = plan(MODELS[model](), family="lmi", version="16", draft="mtp:1")

    assert told(planned) == {"method": method, "num_speculative_tokens": 1}


@pytest.mark.parametrize("packed", ["weight_packed", "qweight"])
def test_a_head_that_was_quantized_with_its_model_is_whole(packed: str) -> None:
    """Quantizers pack `input_proj`, too: it is there under other names."""
    model = MODELS["mimo"]()
    name = "model.mtp_layers.0.input_proj"
    kept = [one for one in model.tensors if one.name != f"{name}.weight"]
    kept += [
        tensor(f"{name}.{packed}", "I32", (4096, 1024)),
        tensor(f"{name}.scales", "BF16", (4096, 64)),
    ]

    profile, _ = make_profile(model)
    packed_head = replace(model, tensors=tuple(kept))

    assert list(check_mtp(packed_head, profile, facts(model).container, 1)) == []


@pytest.mark.parametrize("stated", [None, 0])
def test_tensors_that_config_json_does_not_declare_are_refused(stated: int | None) -> None:
    found = refusal(with_config(MODELS["mimo"](), num_nextn_predict_layers=stated))

    assert found.code == "draft-mtp-config"
    assert "model.mtp_layers.0" in found.message


def three_layers(model: ModelFiles) -> ModelFiles:
    """The same model with two more MTP layers."""
    head = [one for one in model.tensors if "mtp_layers.0." in one.name]
    more = tuple(
        one._replace(name=one.name.replace("mtp_layers.0.", f"mtp_layers.{layer}."))
        for layer in (1, 2)
        for one in head
    )
    return with_config(replace(model, tensors=(*model.tensors, *more)), num_nextn_predict_layers=3)


def test_as_many_tokens_as_layers_are_proposed_where_nothing_is_said() -> None:
    planned = plan(three_layers(MODELS["mimo"]()))

    assert planned.draft is not None
    assert planned.draft.speculative_tokens == 3
    assert planned.draft.kv_bytes_per_token == 3 * 4096


@pytest.mark.parametrize(("tokens", "is_refused"), [(1, False), (2, False), (4, True), (6, False)])
def test_vllm_wants_a_multiple_of_the_layers(tokens: int, is_refused: bool) -> None:
    model = three_layers(MODELS["mimo"]())

    if is_refused:
        found = refusal(model, draft=f"mtp:{tokens}")
        assert (found.code, "`--draft mtp:3`" in found.hint) == ("draft-mtp-tokens", True)
    else:
        assert told(plan(model, draft=f"mtp:{tokens}"))["num_speculative_tokens"] == tokens
    assert plan(model, family="sglang", draft=f"mtp:{tokens}").draft is not None


@cases("other_engines_refuse_it")
def test_other_engines_refuse_it(family: str, instance: str) -> None:
    with pytest.raises(PlanRejected) as caught:
        plan(MODELS["mimo"](), family=family, instance=instance)

    codes = {found.code for found in errors_in(caught.value.findings)}
    assert codes & {"tgi-draft-kind", "neuron-eagle3-only"}


def test_every_row_names_a_method_that_its_version_has_and_the_one_before_lacks() -> None:
    versions = ("0.10.2", "0.11.1", "0.12.0", "0.13.0", "0.14.0", "0.15.1", "0.16.0", "0.17.0",
                "0.18.0", "0.19.0", "0.20.1", "0.21.0", "0.22.1", "0.23.0", "0.24.0", "0.25.1",
                "0.26.0", "0.27.1", "0.31.0", "0.32.0")  # fmt: skip
    known = {version: find_schema("vllm", version).draft_methods for version in versions}
    for row in served_models()["vllm"]:
        key = version_key(row.since)
        since = next(one for one in versions if (version_key(one) or LOWEST) >= key)
        method = row.before_mtp if since == "0.10.2" else row.method
        assert method in known[since], row
        assert since == "0.10.2" or "mtp" in known[since]


def test_experts_of_the_head_slow_a_step_as_those_of_a_layer_do() -> None:
    """A head of 11.5 GB is not read whole for each token: 8 of its 256 experts are."""
    planned = plan(MODELS["deepseek-v3"]())
    setup = setup_of(planned, accelerator_of(planned.instance, ()))
    assert setup.draft is not None
    whole = replace(setup, draft=replace(setup.draft, has_experts=False))

    def of_draft(setup: Setup) -> float:
        return draft_s(setup, setup.draft, 1) if setup.draft else 0.0

    assert 0 < of_draft(setup) < 0.3 * of_draft(whole)
