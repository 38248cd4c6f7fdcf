"""What `plan` refuses of a model and a machine is refused of other people's files as well."""

from __future__ import annotations

from functools import cache, partial

from packager.addons.check.planned import CheckedMachine, plan_remarks
from packager.addons.check.reading import read_document
from packager.addons.check.targets import parse_target
from packager.addons.check.verdicts import judge
from packager.catalog.instances import find_instance
from packager.cli.plugins.tables import FAMILIES
from packager.core.model import ModelFiles
from packager.engines.rules import device_facts, model_facts
from packager.models.architectures.profile import make_profile
from tests.support import zoo
from tests.support.cases import cases_of
from tests.support.checked import lines
from tests.support.headers import model_of
from tests.support.layouts import config_of, headers_of

cases = cases_of(__file__)
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


@cache
def model(name: str) -> ModelFiles:
    """Make a released model; `qwen3-30b-a3b-fp8` has experts in blocks of 128, 768 wide."""
    if name.startswith("llama"):
        plain, _, scaling = name.partition("+")
        stretched = {"rope_scaling": {"rope_type": scaling, "factor": 16.0}} if scaling else {}
        return model_of({**config_of(plain), **stretched}, name=f"org/{plain}")
    shapes = {}
    for tensor, (dtype, shape) in headers_of("qwen3-30b-a3b").items():
        shapes[tensor] = (dtype, shape)
        if tensor.endswith("_proj.weight"):
            shapes[tensor] = ("F8_E4M3", shape)
            shapes[f"{tensor}_scale_inv"] = ("F32", tuple(-(-side // 128) for side in shape))
    return zoo.files({**zoo.QWEN3_30B_A3B, "quantization_config": FP8}, shapes)


@cases(
    "planned",
    served="llama-3-8b",
    instance="ml.p5.48xlarge",
    target="vllm:0.27.1",
    name="a.sh",
    noted=[],
)
def test_a_server_is_held_against_a_model_and_a_machine(
    text: str, told: list[str], served: str, instance: str, target: str, name: str, noted: list[str]
) -> None:
    files, machine = model(served), find_instance(instance)
    held = CheckedMachine(
        model=files, instance=machine, family=lambda one: FAMILIES.find(one).make()
    )

    report = judge(
        [read_document(name, text.encode())],
        asked=[parse_target(target)],
        facts={**model_facts(make_profile(files)[0]), **device_facts(machine)},
        planner=partial(plan_remarks, machine=held),
    )

    assert [line.removeprefix(f"{name}:") for line in lines(report)] == told
    assert [line.removeprefix(f"{name}:") for line in lines(report, "note")] == noted
