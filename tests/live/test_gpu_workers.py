"""What workers do with several devices, in the tools' own environments, without a GPU.

`meta` stands for the second GPU: torch refuses to compute with tensors of two devices, meta
or not, so that a tensor which was left behind ends the pass.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.live.tool_programs import TOOLS, told_by
from tests.support.cases import cases_of

pytestmark = pytest.mark.live

cases = cases_of(__file__)

SPREAD = """
import json, torch
from transformers import (
    AutoModelForCausalLM, FalconConfig, Gemma2Config, LlamaConfig, Qwen3MoeConfig, DeepseekV3Config
)
from packager_worker import Rejected
from rows import Row
from spreading import lay_over
import hidden, states

SIZES = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=64, max_position_embeddings=64, head_dim=8)
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "gemma2, tied": Gemma2Config(**SIZES, tie_word_embeddings=True),
    "qwen3-moe": Qwen3MoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2,
                                moe_intermediate_size=16),
    "deepseek-v3": DeepseekV3Config(**{**SIZES, "num_key_value_heads": 4}, q_lora_rank=16,
        kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8, n_routed_experts=4,
        num_experts_per_tok=2, n_group=1, topk_group=1, first_k_dense_replace=1,
        moe_intermediate_size=16, n_shared_experts=1),
}
ids = torch.arange(2, 12)[None]
row = Row(ids=ids[0].tolist(), answered=[False] * 4 + [True] * 6)
told = {}
for name, config in CONFIGS.items():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model = model.eval().requires_grad_(False)
    def figures(model):
        with hidden._recording(model, [1, 2]) as recorded:
            read = hidden._look(model, row, recorded)
        return [*read, *states._look(model, row, 2)]
    plain = figures(model)
    states.check_last_states(model, row)
    lay_over(model, ["cpu", "cpu"])
    same = all(torch.equal(was, now) for was, now in zip(plain, figures(model)))
    lay_over(model, ["cpu", "meta"])
    places = {}
    for part, value in model.named_parameters():
        places.setdefault(value.device.type, []).append(part)
    tied = model.config.tie_word_embeddings  # what went to meta does not come back to their head
    given = torch.empty(0) if tied else model(ids, use_cache=False).logits
    layers = [next(layer.parameters()).device.type for layer in model.get_decoder().layers]
    told[name] = {
        "same": same, "logits": [given.device.type, *given.shape], "layers": layers,
        "embedding": model.get_input_embeddings().weight.device.type,
        "head": model.get_output_embeddings().weight.device.type,
    }
try:
    odd = AutoModelForCausalLM.from_config(FalconConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=64))
    lay_over(odd, ["cpu", "meta"])
except Rejected as error:
    told["falcon"] = {"refused": str(error)}
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def spread(training_python: Path) -> dict[str, Any]:
    found: dict[str, Any] = told_by(training_python, SPREAD, "draft-heads")
    return found


@pytest.mark.parametrize("name", ["llama", "gemma2, tied", "qwen3-moe", "deepseek-v3"])
def test_a_model_that_one_gpu_cannot_hold_is_read_on_several(
    name: str, spread: dict[str, Any]
) -> None:
    found = spread[name]

    assert found["same"] is True
    assert found["layers"] == ["cpu", "cpu", "meta"]
    tied = "tied" in name
    assert found["logits"] == (["cpu", 0] if tied else ["meta", 1, 10, 64])
    assert (found["embedding"], found["head"]) == (("cpu", "cpu") if tied else ("cpu", "meta"))


def test_layers_that_are_elsewhere_are_refused_for_several_gpus(spread: dict[str, Any]) -> None:
    assert "cannot be laid over 2 GPUs" in spread["falcon"]["refused"]


DEVICES = """
import json, torch
import devices
import importlib.util, sys
from packager_worker import WorkerFailed

class Report:
    def note(self, text):
        told.setdefault("notes", []).append(text)

told = {}
def refusal(gpus):
    try:
        devices.choose_device(gpus, Report())
    except WorkerFailed as error:
        return [str(error), error.kind]
    return None

told["one asked for, none found"] = refusal(1)
told["none asked for, none found"] = refusal(0)
told["used"] = devices.device_used(0)
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 2
torch.cuda.get_device_name = lambda _: "NVIDIA A10G"
torch.cuda.max_memory_reserved = lambda _: 17
told["none asked for, two found"] = refusal(0)
told["two of two"] = refusal(2)
told["used of two"] = devices.device_used(2)

sys.path.insert(0, EVALUATE)
spec = importlib.util.spec_from_file_location("evaluating", f"{EVALUATE}/loading.py")
evaluating = importlib.util.module_from_spec(spec)
spec.loader.exec_module(evaluating)
torch.cuda.mem_get_info = lambda gpu: (1, 100 + 20 * gpu)
told["spread"] = [evaluating.spread(gpus) for gpus in (0, 1)]
from folding import NotEquivalent, Proof

class OnGpu(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        if function is torch.equal and len({type(one) for one in tensors}) > 1:
            raise RuntimeError("Expected all tensors to be on the same device")
        found = super().__torch_function__(function, types, args, kwargs or {})
        return found.as_subclass(torch.Tensor) if function is torch.Tensor.cpu else found

class Model:
    def __init__(self, weight):
        self.weight = weight
    def named_parameters(self):
        return [("norm.weight", self.weight)]
    def named_modules(self):
        return []
    def get_parameter(self, name):
        return self.weight

norm = torch.arange(4.0)
proof = Proof(Model(norm), ())
proof.finish(Model(norm.as_subclass(OnGpu)))
try:
    proof.finish(Model((norm + 1).as_subclass(OnGpu)))
except NotEquivalent as error:
    told["proof"] = str(error)
two = evaluating.spread(2)
told["over two"] = [two["device_map"], two["max_memory"][0], two["max_memory"][1]]
print(json.dumps(told))
"""


ASKED = """
import json, types
from contextlib import nullcontext
from packager_worker import WorkerFailed
from worker import work

spec = types.SimpleNamespace(gpus=1, parameters={"task": "medusa"}, inputs={})
try:
    work(spec, types.SimpleNamespace(busy=lambda text: nullcontext()))
except WorkerFailed as error:
    print(json.dumps({"said": str(error)}))
"""


@pytest.fixture(scope="module")
def devices(quantizing_python: Path) -> dict[str, Any]:
    place = json.dumps(str(TOOLS / "evaluate"))
    program = f"EVALUATE = {place}\n{DEVICES}"
    found: dict[str, Any] = told_by(quantizing_python, program, "llmcompressor")
    return found


def test_a_torch_without_the_gpu_that_the_step_has_is_no_fault_of_the_model(
    devices: dict[str, Any],
) -> None:
    """`rejected` would be remembered, and refused on the next machine too."""
    said, kind = devices["one asked for, none found"]

    assert (kind, "finds none" in said) == ("internal", True)


@pytest.mark.parametrize(
    ("tool", "environment"), [("evaluate", "quantizing_python"), ("draft-heads", "training_python")]
)
def test_every_worker_says_that_torch_does_not_find_the_gpu(
    tool: str, environment: str, request: pytest.FixtureRequest
) -> None:
    """`evaluate --gpus 1` ended with 'Torch not compiled with CUDA enabled', and no way out."""
    told = told_by(request.getfixturevalue(environment), ASKED, tool)

    assert "the step has 1 GPUs, and torch 2.13.0+cpu finds none" in told["said"]


def test_a_step_computes_where_its_key_says(devices: dict[str, Any]) -> None:
    """llm-compressor takes whatever GPU it sees: a key for processors had a GPU's sums."""
    assert "one is visible" in devices["none asked for, two found"][0]


@cases("devices")
def test_workers_compute_record_and_prove_on_the_devices_they_have(
    devices: dict[str, Any], told: dict[str, Any]
) -> None:
    assert {name: devices[name] for name in told} == told


def test_devices_that_are_there_are_taken(devices: dict[str, Any]) -> None:
    assert (devices["none asked for, none found"], devices["two of two"]) == (None, None)
