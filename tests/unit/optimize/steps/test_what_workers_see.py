"""An artifact holds nothing that its key leaves out.

What a worker cannot see cannot reach what it leaves.  So for each kind of artifact every
input that may be left out of the key is changed: where the key stays the same, everything
that the worker is shown must stay the same too, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from artifact_cache.key import key_of, plain
from packager.core.image import Blob, Inline
from packager.core.model import FileRole, ModelFile, ModelFiles
from packager.core.quality import Evaluation
from packager.core.recipe import Step
from packager.core.samples import Sample, Samples
from packager.core.tool import ToolFacts
from packager.core.training import HeadTraining, TrainingTexts
from packager.models.architectures.profile import make_profile
from packager.optimize.drafts.train.steps import answers_step, texts_of, training_step
from packager.optimize.evaluate.step import evaluation_step
from tests.support.cases import read_tables
from tests.support.headers import TINY, model_of
from tests.support.known import known
from tests.unit.addons.contrib import test_tensorrt_llm as tensorrt
from tests.unit.optimize.compile import test_neuron as neuron
from tests.unit.optimize.compile import test_vllm_cache as vllm
from tests.unit.optimize.quantize import test_quantizers as quantizing

TABLES = read_tables(__file__)

TOOL = ToolFacts(name="draft-heads", worker="a" * 64, requirements="b" * 64, packages={})
CONFIG = {**TINY, "eos_token_id": 1, "_name_or_path": "org/base", "use_cache": True}


def file(path: str, role: FileRole, text: str) -> ModelFile:
    data = text.encode()
    digest = hashlib.sha256(data).hexdigest()
    return ModelFile(path=path, role=role, content=Inline(data), sha256=digest)


def with_files(model: ModelFiles, changed: Mapping[str, str]) -> ModelFiles:
    """Give a model its files, of which some have another text."""
    texts = {"config.json": json.dumps(dict(model.config)), **TABLES["texts"]}
    roles = TABLES["roles"]
    files = (
        file(path, roles.get(path, "other"), changed.get(path, text))
        for path, text in texts.items()
    )
    return replace(model, files=tuple(files))


def given(changed: Mapping[str, str], config: Mapping[str, Any]) -> ModelFiles:
    return with_files(model_of({**CONFIG, **config}), changed)


Describe = Callable[[Mapping[str, str], Mapping[str, Any]], Step]


def quantized(method: str) -> Describe:
    def describe(changed: Mapping[str, str], config: Mapping[str, Any]) -> Step:
        return quantizing.step_of(given(changed, config), "ml.g6.xlarge", quantize=method)

    return describe


def evaluated(changed: Mapping[str, str], config: Mapping[str, Any]) -> Step:
    model = given(changed, config)
    texts = Samples(source="texts", samples=(Sample(text="one"),))
    return evaluation_step(model, model.files, texts, Evaluation(), replace(TOOL, name="evaluate"))


def answered(changed: Mapping[str, str], config: Mapping[str, Any]) -> Step:
    model = given(changed, config)
    return answers_step(model, make_profile(model)[0], TEXTS, HeadTraining(method="medusa"), TOOL)


def trained(changed: Mapping[str, str], config: Mapping[str, Any]) -> Step:
    model = given(changed, config)
    asked = HeadTraining(method="medusa")
    return training_step(model, make_profile(model)[0], TEXTS, asked, None, TOOL)


def engine(quantize: str | None) -> Describe:
    def describe(changed: Mapping[str, str], config: Mapping[str, Any]) -> Step:
        facts = tensorrt.engine_facts(quantize=quantize)
        model = with_files(
            replace(facts.model, config={**facts.model.config, "eos_token_id": 1, **config}),
            changed,
        )
        return tensorrt.step_for(replace(facts, model=model))

    return describe


def graphs(variant: str) -> Describe:
    def describe(changed: Mapping[str, str], config: Mapping[str, Any]) -> Step:
        told = {**CONFIG, "max_position_embeddings": 2048, **config}
        facts = neuron.compile_facts(variant, "ml.trn1.2xlarge", config=told)
        return neuron.step_for(replace(facts, model=with_files(facts.model, changed)))

    return describe


def compiled(changed: Mapping[str, str], config: Mapping[str, Any]) -> Step:
    facts = vllm.compile_facts({**CONFIG, **config})
    return vllm.step_for(replace(facts, model=with_files(facts.model, changed)))


BOTH = Samples(source="texts", samples=(Sample(text="one"), Sample(text="two")))
TEXTS = texts_of(TrainingTexts(train=BOTH, held_out=replace(BOTH, samples=BOTH.samples[:1])))

KINDS: Mapping[str, Describe] = {
    "fp8": quantized("fp8"),
    "rtn": quantized("rtn"),
    "awq": quantized("awq"),
    "fp8 static": quantized("fp8,static"),
    "evaluation": evaluated,
    "answers": answered,
    "head": trained,
    "engine": engine(None),
    "quantized engine": engine("awq"),
    "neuron export": graphs("hf-vllm-neuronx"),
    "neuron nxdi": graphs("vllm-nxdi"),
}

FILES = tuple(TABLES["texts"])
FIELDS: Mapping[str, Any] = TABLES["fields"]
CHANGES: Mapping[str, tuple[Mapping[str, str], Mapping[str, Any]]] = {
    **{path: ({path: "another"}, {}) for path in FILES},
    **{name: ({}, {name: value}) for name, value in FIELDS.items()},
    "whitespace in config.json": ({"config.json": json.dumps(dict(TINY), indent=7)}, {}),
}

# The worker is shown them all, and what it keeps holds neither: graphs of numbers that are loaded
# later, asked for no text (tests/integration/containers/test_neuron_worker.py has what is kept).
SHOWN_AND_NOT_KEPT = {"neuron export": frozenset(FILES), "neuron nxdi": frozenset(FILES)}


def shown(step: Step, left_out: frozenset[str]) -> Any:
    """Everything of a step that its worker can see."""
    inputs = {
        (role, one.path): _bytes(one)
        for role, files in step.inputs.items()
        for one in files.files
        if one.path not in left_out
    }
    return inputs, dict(step.parameters), dict(step.env), step.gpus, dict(step.places), step.tool


def _bytes(one: ModelFile) -> str:
    assert not isinstance(one.content, Blob)
    if isinstance(one.content, Inline):
        return hashlib.sha256(one.content.data).hexdigest()
    return one.sha256


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_with_the_same_key_shows_a_worker_the_same(kind: str, change: str) -> None:
    before, after = KINDS[kind]({}, {}), KINDS[kind](*CHANGES[change])
    assert before.key is not None
    assert after.key is not None

    hidden = SHOWN_AND_NOT_KEPT.get(kind, frozenset())
    same_key = key_of(before.key) == key_of(after.key)

    assert not same_key or shown(before, hidden) == shown(after, hidden)
    assert same_key or shown(before, frozenset()) != shown(after, frozenset())


@pytest.mark.parametrize("kind", TABLES["shared"])
def test_what_only_travels_along_makes_nothing_anew(kind: str) -> None:
    """Editing a model card must not quantize 70 billion weights again."""
    describe = {**KINDS, "vllm": compiled}[kind]
    before = known(describe({}, {}).key)

    shared = set()
    for name, change in CHANGES.items():
        after = known(describe(*change).key)
        if key_of(after) == key_of(before):
            shared.add(name)

    groups = (TABLES["groups"][group] for group in TABLES["shared"][kind])
    assert shared == {name for group in groups for name in group}


def test_a_key_names_the_file_and_the_field_that_changed() -> None:
    document = plain(known(quantized("awq")({}, {"hidden_act": "gelu"}).key))

    assert document["graph"]["architecture"]["hidden_act"] == '"gelu"'
    assert document["weights"]["files"] == {
        "model.safetensors": hashlib.sha256(b"weights").hexdigest(),
        "model.safetensors.index.json": hashlib.sha256(b"{}").hexdigest(),
        "tokenizer.json": hashlib.sha256(b"tokenizer").hexdigest(),
        "chat_template.jinja": hashlib.sha256(b"template").hexdigest(),
    }


def test_the_architecture_that_nxd_inference_is_told_is_in_the_key() -> None:
    """inference_demo is told --model-type; two that share every size would share a graph."""
    other = graphs("vllm-nxdi")({}, {"architectures": ["MistralForCausalLM"]})
    ours = graphs("vllm-nxdi")({}, {})
    assert ours.key is not None
    assert other.key is not None

    assert ours.parameters["command"] != other.parameters["command"]
    assert key_of(ours.key) != key_of(other.key)


def test_vllm_files_what_it_compiles_for_gpus_under_the_whole_config() -> None:
    """A cache of the base model would be compiled again for the instruct model: no hit."""
    from packager.optimize.compile.vllm_cache import _fields_left_out

    plan = vllm.plan_for(vllm.compile_facts())
    container = replace(plan.container, kind="nvidia", variant="upstream")

    assert "eos_token_id" in _fields_left_out(plan)
    assert "architectures" not in _fields_left_out(plan)
    assert "eos_token_id" not in _fields_left_out(replace(plan, container=container))
