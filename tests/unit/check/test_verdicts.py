"""What is found of servers, engine by engine: each symptom with its line."""

from __future__ import annotations

import pytest

from packager.check.locating import find_place
from packager.check.targets import parse_target, read_image
from packager.check.values import Place
from packager.errors import UsageError
from tests.support.checked import Check, lines, messages

VLLM, SGLANG, LMI, TGI = "vllm:0.27.1", "sglang:0.5.17", "lmi:28", "tgi:3.3.7"


@pytest.mark.parametrize(
    ("image", "family", "version", "variant"),
    [
        ("vllm/vllm-openai:v0.27.1", "vllm", "0.27.1", "upstream"),
        ("docker.io/vllm/vllm-openai:v0.22.1-aarch64", "vllm", "0.22.1", "upstream"),
        (
            "localhost:5000/vllm/vllm-openai:v0.27.1@sha256:" + "0" * 64,
            "vllm",
            "0.27.1",
            "upstream",
        ),
        ("x.dkr.ecr.y.amazonaws.com/vllm:0.24.0-gpu-py312-cu130-ubuntu22.04-sagemaker",)
        + ("vllm", "0.24.0", ""),
        ("public.ecr.aws/deep-learning-containers/vllm:server-sagemaker-cuda-v2.3",)
        + ("vllm", "0.27.0", "al2023"),
        ("public.ecr.aws/deep-learning-containers/vllm:0.24.0-gpu-py312-cu130-ubuntu22.04-ec2",)
        + ("vllm", "0.24.0", "upstream"),
        ("lmsysorg/sglang:v0.5.5-cu129-amd64", "sglang", "0.5.5", "upstream"),
        ("x/sglang:0.5.17-gpu-py312-cu130-ubuntu24.04-sagemaker", "sglang", "0.5.17", ""),
        ("ghcr.io/huggingface/text-generation-inference:3.3.6", "tgi", "3.3.6", "upstream"),
        ("x/huggingface-pytorch-tgi-inference:2.7.0-tgi3.3.6-gpu-py311-cu124-ubuntu22.04",)
        + ("tgi", "3.3.6", ""),
        ("x/djl-inference:0.36.0-lmi27.0.0-cu130", "lmi", "0.23.1", ""),
        ("deepjavalibrary/djl-serving:0.33.0-lmi15.0.0-cu128", "lmi", "0.8.4", ""),
        ("x/djl-inference:0.33.0-tensorrtllm0.21.0-cu128", "lmi", "0.21.0", "tensorrt-llm"),
    ],
    ids=lambda value: value.rpartition("/")[2][:40] if "/" in str(value) else "",
)
def test_an_image_tells_engine_version_and_how_it_is_configured(
    image: str, family: str, version: str, variant: str
) -> None:
    target = read_image(image)

    assert target is not None
    assert (target.family, target.version, target.variant) == (family, version, variant)


@pytest.mark.parametrize(
    "image", ["", "nginx:1.27", "prom/vllm-exporter:v0.27.1", "$IMAGE", "a:b/c"]
)
def test_another_image_tells_nothing(image: str) -> None:
    assert read_image(image) is None


@pytest.mark.parametrize("text", ["vlm", "vllm:abc", "lmi:99", "", ":0.27.1"])
def test_a_target_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_target(text)


def test_what_the_user_says_wins_over_the_tag(check: Check) -> None:
    run = "docker run vllm/vllm-openai:v0.14.0 --model m --shutdown-timeout 60\n"

    assert lines(check({"a.sh": run})) == ["a.sh:1:47 key-dropped"]
    assert lines(check({"a.sh": run}, VLLM)) == []


# vLLM's command line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--max-num-seqs 64", []),
        ("--max_num_seqs=64 -tp 2 -q fp8 --no-enable-prefix-caching", []),
        ("-O3", []),
        ("-cc.mode=3 --compilation-config.cudagraph_mode FULL", []),
        ("--max-num-seqs many", ["value-refused"]),
        ("--max-num-seqs", ["value-missing"]),
        ("--max-num-sequences 64", ["key-dropped"]),
        ("-tpp 2", ["key-dropped"]),
        ("--enforce-eager true", ["value-refused"]),
        ("--no-enforce-eager=1", ["value-refused"]),
        ("other-model", ["argument-refused"]),
        ("--max-num-seqs 64 --max-num-seqs 64", ["setting-repeated"]),
        ("--middleware a.B --middleware c.D", []),
        ("--dtype bf16", ["value-refused"]),
        ("--speculative-config.methood ngram", ["key-dropped"]),
        ('--speculative-config \'{"method": "eagle4"}\'', ["draft-unsupported"]),
        ("--enable-auto-tool-choice", ["options-conflict"]),
        ("--trust-remote-code", ["remote-code"]),
        ('--max-num-seqs $SEQS --max-model-len "$LEN"', []),
        ("--served-model-name a b c", []),
        ("$EXTRA --seed 1", []),
    ],
)
def test_a_command_line_is_checked_option_by_option(
    check: Check, arguments: str, expected: list[str]
) -> None:
    report = check({"a.sh": f"vllm serve org/model {arguments}\n"}, VLLM)

    codes = {line.partition(" ")[2] for line in lines(report)}
    assert codes >= set(expected)
    assert bool(codes) is bool(expected), messages(report)


def test_every_form_of_a_server_s_command_is_found(check: Check) -> None:
    text = """\
nohup vllm serve m --sed 1 &
CUDA_VISIBLE_DEVICES=0 python3 -m vllm.entrypoints.openai.api_server --model m --sed 1
exec /opt/venv/bin/vllm serve m --sed 1
uv run python -m sglang.launch_server --model-path m --sed 1
sglang serve m --sed 1
text-generation-launcher --model-id m --sed 1
docker run --rm -it --gpus all -p 8000:8000 -e A=1 vllm/vllm-openai:v0.27.1 --model m --sed 1
sudo docker run --entrypoint vllm vllm/vllm-openai:v0.27.1 serve m --sed 1
echo vllm is nice
"""

    found = [line for line in lines(check({"a.sh": text})) if line.endswith("key-dropped")]

    assert [line.split(":")[1] for line in found] == [str(number) for number in range(1, 9)]


def test_version_that_nobody_names_is_noted_once(check: Check) -> None:
    report = check({"a.sh": "vllm serve m\n"})

    assert "version-unknown" in [one.finding.code for one in report.remarks]


# SageMaker's images


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ("SM_VLLM_ENABLE_PREFIX_CACHING=false", "false-left-out"),
        ("SM_VLLM_ENABLE_PREFIX_CACHING=False", "false-left-out"),
        ("SM_VLLM_SERVED_MODEL_NAME=false", "key-dropped"),
        ("SM_VLLM_MAX_MODEL_LEN=true", "value-refused"),
        ("SM_VLLM_NO_MAX_MODEL_LEN=true", "key-dropped"),
        ("SM_VLLM_MAX_MODEL_LENGTH=1", "key-dropped"),
        ("SM_VLLM_COMPILATION_CONFIG='{\"mode\": 3}'", "quotes-kept"),
        ("SM_SGLANG_TP_SIZE=2", "engines-mixed"),
        ("OPTION_DTYPE=fp16", "engines-mixed"),
        ("SM_VLLM_API_KEY=sk-0123456789abcdefghijklmn", "credential-in-file"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz01234567", "credential-in-file"),
        ("SM_VLLM_TRUST_REMOTE_CODE=true", "remote-code"),
        (f"SM_VLLM_CHAT_TEMPLATE={'x' * 1025}", "sagemaker-limit"),
    ],
)
def test_a_variable_of_the_vllm_image_is_checked(check: Check, setting: str, code: str) -> None:
    report = check({"a.env": f"SM_VLLM_MODEL=m\nSM_VLLM_SEED=1\n{setting}\n"}, VLLM)

    assert f"a.env:3:1 {code}" in lines(report), messages(report)


def test_settings_that_are_right_are_not_complained_of(check: Check) -> None:
    text = """\
SM_VLLM_MODEL=/opt/ml/model
SM_VLLM_MAX_MODEL_LEN=8192
SM_VLLM_NO_ENABLE_PREFIX_CACHING=true
SM_VLLM_SKIP_MM_PROFILING=true
SM_VLLM_COMPILATION_CONFIG={"mode":3}
NCCL_DEBUG=INFO
HF_TOKEN
"""

    assert lines(check({"a.env": text}, VLLM)) == []


def test_json_needs_single_quotes_for_images_that_split_again(check: Check) -> None:
    bare = {"a.env": 'SM_VLLM_COMPILATION_CONFIG={"mode":3}\n'}
    quoted = {"a.env": "SM_VLLM_COMPILATION_CONFIG='{\"mode\":3}'\n"}

    assert lines(check(bare, "vllm:0.23.0")) == ["a.env:1:1 quotes-lost"]
    assert lines(check(quoted, "vllm:0.23.0")) == []
    assert lines(check(bare, "vllm:0.24.0")) == []


@pytest.mark.parametrize(
    ("value", "codes"),
    [
        ("1 2 4", []),
        ("'[1,2,4]'", []),
        ("1 two 4", ["value-refused"]),
        ("1 '2", ["quotes-lost", "value-refused"]),
    ],
)
def test_several_values_are_words_for_images_that_split_again(
    check: Check, value: str, codes: list[str]
) -> None:
    text = f"SM_VLLM_CUDAGRAPH_CAPTURE_SIZES={value}\n"

    assert lines(check({"a.env": text}, "vllm:0.23.0")) == [f"a.env:1:1 {code}" for code in codes]


def test_a_value_with_spaces_falls_apart_where_it_is_split_again(check: Check) -> None:
    text = {"a.env": "SM_VLLM_SERVED_MODEL_NAME=a b\nSM_VLLM_CHAT_TEMPLATE=a b\n"}

    assert lines(check(text, "vllm:0.23.0")) == ["a.env:2:1 quotes-lost"]
    assert lines(check(text, VLLM)) == []


def test_upstream_s_image_reads_no_variables_of_sagemaker(check: Check) -> None:
    manifest = """\
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: a
      image: vllm/vllm-openai:v0.27.1
      args: [--model, m]
      env:
        - {name: SM_VLLM_DTYPE, value: auto}
"""

    assert lines(check({"a.yaml": manifest})) == ["a.yaml:9:18 key-dropped"]


def test_sagemaker_s_image_takes_no_arguments(check: Check) -> None:
    image = "x/vllm:0.27.1-gpu-py312-cu130-ubuntu22.04-sagemaker"

    report = check({"a.sh": f"docker run -e SM_VLLM_MODEL=m {image} --max-num-seqs 1\n"})

    assert [line.partition(" ")[2] for line in lines(report)] == ["key-dropped"]
    assert "accepts no arguments" in messages(report)


# LMI


def test_the_file_wins_over_variables_and_sagemaker_s_over_the_file(check: Check) -> None:
    files = {
        "serving.properties": "engine=Python\noption.max_model_len=8192\n"
        "option.model_loading_timeout=600\n",
        "a.env": "OPTION_MAX_MODEL_LEN=4096\nOPTION_DTYPE=fp16\nSAGEMAKER_STARTUP_TIMEOUT=9\n",
    }

    report = check(files, LMI)

    assert lines(report) == [
        "serving.properties:3:1 setting-overridden",
        "a.env:1:1 setting-overridden",
    ]
    assert "'option.max_model_len' in serving.properties line 2 wins" in messages(report)


def test_the_same_value_in_both_places_is_fine(check: Check) -> None:
    files = {"serving.properties": "option.max_model_len=8", "a.env": "OPTION_MAX_MODEL_LEN=8"}

    assert lines(check(files, LMI)) == []


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ("option.max_modell_len=1", "key-dropped"),
        ("option.max_model_len=long", "value-refused"),
        ("option.rolling_batch=lmi-dist", "key-migrated"),
        ("option.speculative_draft_model=m", "key-dropped"),
        ("option.max_model_len = 1\noption.max_model_len = 2", "setting-repeated"),
        ("option.trust_remote_code=true", "remote-code"),
    ],
)
def test_a_property_of_lmi_is_checked(check: Check, setting: str, code: str) -> None:
    report = check({"serving.properties": f"engine=Python\n{setting}\n"}, LMI)

    assert f"serving.properties:2:1 {code}" in lines(report), messages(report)


def test_keys_of_an_older_lmi_lead_to_migrate(check: Check) -> None:
    report = check({"serving.properties": "option.speculative_draft_model=m\n"}, LMI)

    assert "`packager migrate serving.properties --to 28`" in messages(report)


def test_as_many_devices_as_there_are_is_a_degree(check: Check) -> None:
    assert lines(check({"serving.properties": "option.tensor_parallel_degree=max"}, LMI)) == []


def test_mixed_case_of_a_variable_is_another_key(check: Check) -> None:
    report = check(
        {"a.env": "OPTION_MAX_MODEL_LEN=1\nOPTION_ENTRYPOINT=x\nOPTION_Dtype=fp16\n"}, LMI
    )

    assert lines(report) == ["a.env:3:1 key-dropped"]


# SGLang, TGI


def test_sglang_takes_no_underscores(check: Check) -> None:
    report = check({"a.sh": "python -m sglang.launch_server --model-path m --tp_size 2\n"}, SGLANG)

    assert lines(report) == ["a.sh:1:47 key-dropped"]
    assert "write it as --tp-size" in messages(report)


def test_a_flag_of_the_sglang_image_that_is_false_is_fine(check: Check) -> None:
    text = (
        "SM_SGLANG_MODEL_PATH=m\nSM_SGLANG_DISABLE_RADIX_CACHE=false\nSM_SGLANG_SCHEDULE_POLICY=x\n"
    )

    assert lines(check({"a.env": text}, SGLANG)) == ["a.env:3:1 value-refused"]


def test_tgi_s_command_line_wins_over_its_variables(check: Check) -> None:
    text = "NUM_SHARD=2 QUANTIZE=awx text-generation-launcher --model-id m --num-shard 4\n"

    assert lines(check({"a.sh": text}, TGI)) == [
        "a.sh:1:1 setting-overridden",
        "a.sh:1:13 value-refused",
    ]


def test_a_variable_that_is_nearly_tgi_s_is_named_and_others_are_not(check: Check) -> None:
    text = "MODEL_ID=m\nMAX_TOTAL_TOKEN=1\nNCCL_DEBUG=INFO\nMAX_TOTAL_TOKENS=2\n"

    assert lines(check({"a.env": text}, TGI)) == ["a.env:2:1 key-dropped"]


# Secrets, places, facts


def test_no_secret_is_repeated(check: Check) -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyz01234567"
    texts = {
        "a.env": f"SM_VLLM_HF_TOKEN={secret}\nHF_TOKEN={secret}\n",
        "b.sh": f"HF_TOKEN={secret} vllm serve m --hf-token {secret} --api-key={secret}\n",
        "c.yaml": "apiVersion: v1\nkind: Pod\nspec: {containers: [{image: 'a/vllm-openai:v0.27.1', "
        f"args: [--hf-token, {secret}], env: [{{name: HF_TOKEN, value: {secret}}}]}}]}}\n",
        "serving.properties": f"option.hf_token={secret}\n",
    }

    report = check(texts, VLLM, LMI)

    assert secret not in messages(report)
    assert sum("credential-in-file" in line for line in lines(report)) == 8


@pytest.mark.parametrize(
    "value", ["$HF_TOKEN", "${HF_TOKEN}", "{{ token }}", "<token>", "/run/secrets/token", ""]
)
def test_a_reference_to_a_secret_is_none(check: Check, value: str) -> None:
    assert lines(check({"a.env": f"SM_VLLM_MODEL=m\nHF_TOKEN={value}\n"}, VLLM)) == []


def test_a_rule_about_the_model_asks_for_its_facts(check: Check) -> None:
    run = {"a.sh": "vllm serve m --enable-expert-parallel\n"}

    assert lines(check(run, VLLM)) == []
    assert lines(check(run, VLLM, facts={"experts": 0})) == ["a.sh:1:14 options-conflict"]


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


@pytest.mark.parametrize(
    ("value", "is_secret"),
    [
        ('{"classifier_from_token": ["no", "yes"]}', False),
        ('{"api_key": "sk-0123456789"}', True),
        ('{"a": [{"password": "x y"}]}', True),
        ('{"secret": null, "token": 5}', False),
    ],
)
def test_json_holds_a_credential_where_a_name_in_it_has_a_text(
    check: Check, value: str, is_secret: bool
) -> None:
    report = check({"a.sh": f"vllm serve m --hf-overrides '{value}'\n"}, VLLM)

    assert ("credential-in-file" in str(lines(report))) is is_secret


def test_yaml_of_something_else_is_not_taken_for_options(check: Check) -> None:
    report = check({"ci.yml": "smoke-test: {trust_remote_code: true}\njobs: []\nseed: 1\n"})

    assert lines(report) == []
    assert [remark.finding.code for remark in report.remarks] == ["engine-unknown"]


def test_a_script_that_also_sets_variables_for_an_image_is_left_alone(check: Check) -> None:
    text = "export SM_VLLM_LOAD_FORMAT=auto\nvllm serve m\n"

    assert lines(check({"a.sh": text}, VLLM)) == []


def test_a_file_that_may_be_mounted_is_only_noted(check: Check) -> None:
    report = check({"a.sh": "vllm serve m --chat-template /mnt/a.jinja\n"}, VLLM)

    assert lines(report) == []
    assert "file-not-packaged" in [remark.finding.code for remark in report.remarks]
