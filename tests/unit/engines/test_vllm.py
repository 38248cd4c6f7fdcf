"""How vLLM's images are started and configured, beside corpus/plans_vllm.toml."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from packager.core.artifact import Artifacts
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.core.share import share_dir
from packager.engines.schema import find_schema
from packager.engines.vllm.check import check_sagemaker_env
from packager.engines.vllm.family import VllmFamily
from packager.engines.vllm.render import command as command_line
from packager.engines.vllm.render import sagemaker_env
from tests.support.cases import cases, read_tables
from tests.support.engine_plans import NGRAM, plan_for
from tests.support.headers import LLAMA_3_8B, model_of, plan_of


def render(plan: Plan) -> ServingConfig:
    return VllmFamily().render(plan, Artifacts(model=()))


@pytest.mark.parametrize("name", ["launch.py", "inputs_adapter.py", "sitecustomize.py"])
def test_the_launcher_and_the_adapter_are_put_in_as_they_are_shipped(name: str) -> None:
    placed = {file.path: file.data for file in render(plan_for("vllm-cpu")).files}
    shipped = share_dir("containers") / "serving" / "vllm" / name

    assert placed[f"/opt/packager/serving/{name}"] == shipped.read_bytes()


def test_a_cpu_compiles_nothing_and_reserves_a_cache_in_whole_gigabytes() -> None:
    config = render(plan_of(model_of(LLAMA_3_8B), "c7i.8xlarge"))
    (file,) = (file for file in config.files if file.path.endswith("/command.json"))
    command: dict[str, Any] = json.loads(file.data)

    assert "--enforce-eager" in command["argv"]
    assert command["env"] == read_tables(__file__)["cpu_environment"]


def test_images_that_split_the_command_again_get_json_in_quotes() -> None:
    value = render(plan_for("vllm-0.23", draft=NGRAM)).env["SM_VLLM_SPECULATIVE_CONFIG"]

    (word,) = shlex.split(value)
    assert json.loads(word)["method"] == "ngram"


@cases("images_that_split_the_command_again_get_every_value_as_one_word")
def test_images_that_split_the_command_again_get_every_value_as_one_word(
    asked: str, rendered: str
) -> None:
    options = {"otlp-traces-endpoint": asked}

    schema = find_schema("vllm", "0.23.0")

    assert sagemaker_env(options, "0.23.0", schema) == {"SM_VLLM_OTLP_TRACES_ENDPOINT": rendered}
    assert sagemaker_env(options, "0.27.1", schema) == {"SM_VLLM_OTLP_TRACES_ENDPOINT": asked}


SIZES = ("cudagraph-capture-sizes", "[1,2,4]")


@cases("several_values_are_what_the_entrypoint_of_the_image_makes_words_of")
def test_several_values_are_what_the_entrypoint_of_the_image_makes_words_of(
    version: str, asked: tuple[str, str], rendered: str
) -> None:
    schema = find_schema("vllm", version)

    assert list(sagemaker_env(dict([asked]), version, schema).values()) == [rendered]
    assert not list(check_sagemaker_env(dict([asked]), version, schema))


def test_several_values_are_refused_where_the_image_passes_one() -> None:
    schema = find_schema("vllm", "0.27.1")

    (finding,) = check_sagemaker_env(dict([SIZES]), "0.27.1", schema)
    assert (finding.severity, finding.code) == ("error", "value-refused")
    assert "passes one value for 'cudagraph-capture-sizes', and 3 are given" in finding.message


@cases("upstreams_command_has_a_word_for_each_value")
def test_upstreams_command_has_a_word_for_each_value(
    asked: tuple[str, str], words: list[str]
) -> None:
    options = {"model": "/m", asked[0]: asked[1]}
    argv = command_line(options, find_schema("vllm", "0.33.0"), version="0.33.0")

    assert argv[3:] == [f"--{asked[0]}", *words]


@cases("the_server_is_started_by_what_the_version_wants")
def test_the_server_is_started_by_what_the_version_wants(version: str, start: list[str]) -> None:
    assert command_line({"model": "/m"}, find_schema("vllm", version), version=version) == start
