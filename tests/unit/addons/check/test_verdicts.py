"""Which server an image is, secrets and places, beside corpus/servers.toml."""

from __future__ import annotations

import pytest

from packager.addons.check.locating import find_place
from packager.addons.check.targets import parse_target, read_image
from packager.core.errors import UsageError
from packager.core.positions import Place
from tests.support.cases import cases_of
from tests.support.checked import Check, lines, messages

cases = cases_of(__file__, "images")


@cases("images")
def test_an_image_tells_engine_version_and_how_it_is_configured(
    image: str, family: str, version: str, variant: str
) -> None:
    target = read_image(image)

    assert target is not None
    assert (target.family, target.version, target.variant) == (family, version, variant)


@cases("another_image_tells_nothing")
def test_another_image_tells_nothing(image: str) -> None:
    assert read_image(image) is None


@pytest.mark.parametrize("text", ["vlm", "vllm:abc", "lmi:99", "", ":0.27.1"])
def test_a_target_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_target(text)


def test_no_secret_is_repeated(check: Check) -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyz01234567"
    texts = {
        "a.env": f"SM_VLLM_HF_TOKEN={secret}\nHF_TOKEN={secret}\n",
        "b.sh": f"HF_TOKEN={secret} vllm serve m --hf-token {secret} --api-key={secret}\n",
        "c.yaml": "apiVersion: v1\nkind: Pod\nspec: {containers: [{image: 'a/vllm-openai:v0.27.1', "
        f"args: [--hf-token, {secret}], env: [{{name: HF_TOKEN, value: {secret}}}]}}]}}\n",
        "serving.properties": f"option.hf_token={secret}\n",
    }

    report = check(texts, "vllm:0.27.1", "lmi:28")

    assert secret not in messages(report)
    assert sum("credential-in-file" in line for line in lines(report)) == 8


def test_sagemaker_s_limits_bind_a_variable_of_its_image(check: Check) -> None:
    text = f"SM_VLLM_MODEL=m\nSM_VLLM_CHAT_TEMPLATE={'x' * 1025}\n"

    assert "a.env:2:1 sagemaker-limit" in lines(check({"a.env": text}, "vllm:0.27.1"))


def test_a_finding_is_placed_at_the_setting_that_it_names() -> None:
    names = {
        "max-model-len": Place("f", 3),
        "MAX_TOTAL_TOKENS": Place("f", 4),
        "DTYPE": Place("f", 5),
    }

    assert find_place("vLLM refuses '8k' for 'max-model-len'", names) == Place("f", 3)
    assert find_place("no 'x' in 'max-model-len.pass_config'", names) == Place("f", 3)
    assert find_place("the prompt's limit 8 is above MAX_TOTAL_TOKENS 4", names) == Place("f", 4)
    assert find_place("TGI: DTYPE and QUANTIZE are both set", names) == Place("f", 5)
    assert find_place("nothing of them", names) is None
