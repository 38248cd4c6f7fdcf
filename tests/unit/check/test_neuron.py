"""Variables and command lines of Hugging Face's vLLM for Neuron devices, and of TGI's script."""

from __future__ import annotations

import pytest

from tests.support.checked import Check, lines

PLAIN = "SM_ON_MODEL=/opt/ml/model\nSM_ON_BATCH_SIZE=4\nSM_ON_SEQUENCE_LENGTH=4096\n"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("SM_ON_SERVED_MODEL_NAME=chat", []),
        ("SM_ON_ALLOW_NON_CACHED_MODEL=", []),
        ("SM_ON_MAX_LOGPROBS=5", []),
        ("SM_ON_NO_ENABLE_LOG_REQUESTS=", []),
        ("SM_ON_TASK=rerank", ["a.env:4:1 value-refused"]),
        ("SM_ON_MAX_NUM_SEQS=8", ["a.env:4:1 options-conflict"]),
        ("SM_ON_BLOCK_SIZE=16", ["a.env:4:1 key-dropped"]),
        ("SM_ON_NONSENSE=1", ["a.env:4:1 key-dropped"]),
        ("SM_ON_PORT=8000", ["a.env:4:1 options-conflict"]),
        ("SM_ON_ENABLE_LORA=true", ["a.env:4:1 value-refused"]),
    ],
)
def test_variables_of_serve_are_judged_as_its_script_reads_them(
    check: Check, line: str, found: list[str]
) -> None:
    assert lines(check({"a.env": f"{PLAIN}{line}\n"})) == found


def test_false_behind_a_switch_turns_it_on(check: Check) -> None:
    """The script gives `--enable_lora false`, and vLLM takes the word for a model's name."""
    report = check({"a.env": f"{PLAIN}SM_ON_ENABLE_LORA=false\n"})

    assert lines(report, "error") == ["a.env:4:1 value-refused"]
    (found,) = [one.finding for one in report.remarks if one.finding.severity == "error"]
    assert found.message.startswith("'SM_ON_ENABLE_LORA' turns 'enable-lora' on")


def test_a_command_line_of_serve_is_judged(check: Check) -> None:
    text = "optimum-cli neuron serve --model /m --batch_size 4 --port 8080 --max-num-seqs 8\n"

    assert [line.split()[-1] for line in lines(check({"run.sh": text}))] == ["options-conflict"]


def test_what_sagemakers_script_overwrites_is_found_in_a_file(check: Check) -> None:
    text = "HF_MODEL_ID=/opt/ml/model\nSM_NUM_GPUS=2\nNUM_SHARD=4\nPORT=8000\n"

    assert lines(check({"a.env": text}, "tgi:3.3.6")) == [
        "a.env:3:1 key-dropped",
        "a.env:4:1 key-dropped",
    ]


def test_upstreams_launcher_reads_no_name_of_sagemakers_script(check: Check) -> None:
    text = """services:
  tgi:
    image: ghcr.io/huggingface/text-generation-inference:3.3.7
    environment:
      SM_NUM_GPUS: "2"
"""

    assert lines(check({"compose.yaml": text})) == ["compose.yaml:5:7 key-dropped"]


def test_each_version_of_tgi_has_its_own_variables_in_a_file(check: Check) -> None:
    text = "HF_MODEL_ID=/opt/ml/model\nPAYLOAD_LIMIT=5000000\n"

    assert lines(check({"a.env": text}, "tgi:3.3.6")) == []
