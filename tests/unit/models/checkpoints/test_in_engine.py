"""What an engine has no place for, asked of checkpoints that arrive."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.core.traits import EngineTraits
from packager.engines.plain_modules import plain_modules
from packager.models.checkpoints.gate import check_in_engine
from tests.support.quantized import arriving


@pytest.mark.parametrize(
    ("path", "count"), [("mlp.down_proj", 4), ("mlp.down", 0), ("self_attn", 16), ("x.mlp", 0)]
)
def test_packed_weights_that_the_engine_builds_plain_are_refused(path: str, count: int) -> None:
    traits = EngineTraits(who="vLLM 9", plain_modules=frozenset({("LlamaForCausalLM", path)}))

    found = [one.message for one in check_in_engine(arriving("awq"), traits, drafts=False)]

    said = f"{count} packed weights are in modules that vLLM 9 builds without quantization"
    assert [message.startswith(said) for message in found] == [True] * bool(count)
    assert not [*check_in_engine(arriving("awq"), EngineTraits(), drafts=False)]


def test_the_table_is_that_of_the_newest_version_that_is_not_newer() -> None:
    """As vLLM's sources say: `MambaMixer` is built without quantization, indexers by version."""
    oldest, newer = plain_modules("vllm", "0.9.0"), plain_modules("vllm", "0.26.1")

    assert ("JambaForCausalLM", "mamba.x_proj") in oldest & newer
    assert ("DeepseekV32ForCausalLM", "indexer.weights_proj") in plain_modules("vllm", "0.19.0")
    assert ("DeepseekV32ForCausalLM", "indexer.weights_proj") in newer  # a part of a joined one
    newest = plain_modules("vllm", "0.32.0")
    assert ("GlmMoeDsaForCausalLM", "indexer.weights_proj") in newest  # handed on
    assert ("GlmMoeDsaForCausalLM", "mlp.gate") in newest  # a package of its own
    assert ("FalconH1ForCausalLM", "feed_forward") in oldest - newest  # never given a scheme


def test_sglang_has_a_table_of_its_own() -> None:
    """As its loaders say: no place for scales of `self_attn` of StableLM; GPTBigCode's are torn."""
    table = plain_modules("sglang", "0.5.23")

    assert ("StableLmForCausalLM", "self_attn") in table
    assert ("GPTBigCodeForCausalLM", "c_attn") in table
    assert ("LlamaForCausalLM", "self_attn") not in table


@pytest.mark.parametrize("named", [5, "LlamaForCausalLM", {}, [None]], ids=repr)
def test_an_odd_list_of_architectures_names_no_class(named: object) -> None:
    model = arriving("awq")
    model = replace(model, config={**model.config, "architectures": named})
    traits = EngineTraits(plain_modules=frozenset({("LlamaForCausalLM", "self_attn")}))

    assert not [*check_in_engine(model, traits, drafts=False)]
