"""Containers of Kubernetes, KServe and compose, and the stage of a Dockerfile."""

from __future__ import annotations

import pytest

from tests.support.checked import Check, lines, messages

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
    - name: c
      image: vllm/vllm-openai:v0.27.1
"""


def manifest(kind: str, path: list[str]) -> str:
    """Write an object whose container, with a mistake in it, is under a path."""
    text = f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: p}}\n"
    for depth, key in enumerate(path):
        text += f"{'  ' * depth}{key}:\n"
    indent = "  " * len(path)
    return (
        text
        + f"{indent}- name: c\n{indent}  image: vllm/vllm-openai:v0.27.1\n{indent}  args: [--sed]\n"
    )


TEMPLATE = ["spec", "template", "spec", "containers"]


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Pod", ["spec", "containers"]),
        ("Pod", ["spec", "initContainers"]),
        ("Deployment", TEMPLATE),
        ("StatefulSet", TEMPLATE),
        ("DaemonSet", TEMPLATE),
        ("Job", TEMPLATE),
        ("CronJob", ["spec", "jobTemplate", *TEMPLATE]),
        ("InferenceService", ["spec", "predictor", "containers"]),
        ("InferenceService", ["spec", "predictor", "workerSpec", "containers"]),
        ("ServingRuntime", ["spec", "containers"]),
        ("LLMInferenceService", ["spec", "template", "containers"]),
        ("LLMInferenceService", ["spec", "prefill", "template", "containers"]),
        ("LeaderWorkerSet",)
        + (["spec", "leaderWorkerTemplate", "workerTemplate", "spec", "containers"],),
    ],
    ids=lambda value: value if isinstance(value, str) else ".".join(value),
)
def test_a_container_is_found_wherever_the_kind_has_it(
    check: Check, kind: str, path: list[str]
) -> None:
    report = check({"a.yaml": manifest(kind, path)})

    assert [line.partition(" ")[2] for line in lines(report)] == ["key-dropped"]
    assert report.checked[0].server.name == f"{kind} p, container c"


def test_the_model_of_an_inference_service_is_a_container(check: Check) -> None:
    text = manifest("InferenceService", ["spec", "predictor", "model"]).replace(
        "- name: c", "  x: y"
    )

    assert [line.partition(" ")[2] for line in lines(check({"a.yaml": text}))] == ["key-dropped"]


def test_arguments_that_kserve_appends_are_vllm_s(check: Check) -> None:
    text = """\
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: llama}
spec:
  template:
    containers:
      - name: main
        env:
          - name: VLLM_ADDITIONAL_ARGS
            value: "--max-num-seqs 64 --sed 1"
"""

    report = check({"a.yaml": text}, "vllm:0.27.1")

    assert lines(report) == ["a.yaml:9:19 key-dropped"]


def test_documents_and_lists_are_all_looked_at(check: Check) -> None:
    many = f"{POD}      args: [--sed]\n---\n{POD}      args: [--model, m]\n"
    listed = "apiVersion: v1\nkind: List\nitems:\n  - " + f"{POD}      args: [--sed]".replace(
        "\n", "\n    "
    )

    assert len(check({"a.yaml": many}).checked) == 2
    assert lines(check({"a.yaml": many})) == ["a.yaml:8:14 key-dropped"]
    assert lines(check({"a.yaml": listed})) == ["a.yaml:11:18 key-dropped"]


def test_a_script_in_a_block_has_the_lines_of_the_file(check: Check) -> None:
    text = (
        POD
        + """\
      command: [/bin/sh, -c]
      args:
        - |
          # start
          export SEED=1
          vllm serve m \\
            --seed $SEED \\
            --sed 1
"""
    )

    assert lines(check({"a.yaml": text})) == ["a.yaml:15:13 key-dropped"]


def test_variables_in_arguments_are_replaced_as_the_kubelet_does(check: Check) -> None:
    text = (
        POD
        + """\
      args: [--model, m, --max-num-seqs, $(SEQS), --max-model-len, $(LEN)]
      env:
        - {name: SEQS, value: many}
        - {name: LEN, valueFrom: {configMapKeyRef: {name: a, key: b}}}
"""
    )

    assert lines(check({"a.yaml": text})) == ["a.yaml:8:26 value-refused"]


def test_variables_of_a_config_map_in_the_same_file_count(check: Check) -> None:
    text = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data:
  SM_VLLM_MODEL: m
  SM_VLLM_SED: "1"
---
apiVersion: v1
kind: Pod
spec:
  containers:
    - image: x/vllm:0.27.1-gpu-py312-cu130-ubuntu22.04-sagemaker
      envFrom: [{configMapRef: {name: settings}}]
"""

    assert lines(check({"a.yaml": text})) == ["a.yaml:6:16 key-dropped"]


def test_a_serving_properties_in_a_config_map_is_checked(check: Check) -> None:
    text = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: lmi}
data:
  serving.properties: |
    engine=Python
    option.max_modell_len=1
"""

    assert lines(check({"a.yaml": text}, "lmi:28")) == ["a.yaml:7:5 key-dropped"]


@pytest.mark.parametrize("value", ["8", "true", "1.5"])
def test_numbers_without_quotes_are_refused_by_kubernetes(check: Check, value: str) -> None:
    text = POD + f"      env: [{{name: A, value: {value}}}]\n      args: [--seed, {value}]\n"

    codes = [line.partition(" ")[2] for line in lines(check({"a.yaml": text}))]

    assert codes.count("value-not-text") == 2


def test_other_containers_are_left_alone(check: Check) -> None:
    text = POD.replace("vllm/vllm-openai", "nginx") + "      args: [--nonsense]\n"

    report = check({"a.yaml": text})

    assert report.remarks == ()
    assert report.checked[0].target is None


# Compose


def test_a_command_of_several_lines_is_one(check: Check) -> None:
    text = """\
services:
  a:
    image: vllm/vllm-openai:v0.27.1
    command: >
      --model m
      --sed 1
  b:
    image: vllm/vllm-openai:v0.27.1
    command: --model m --sed 1
  c:
    image: vllm/vllm-openai:v0.27.1
    command: |
      --model m
      --sed 1
"""

    assert lines(check({"compose.yaml": text})) == [
        "compose.yaml:4:14 key-dropped",
        "compose.yaml:9:24 key-dropped",
        "compose.yaml:14:7 key-dropped",
    ]


def test_services_share_settings_by_anchors(check: Check) -> None:
    text = """\
x-base: &base
  image: vllm/vllm-openai:v0.27.1
services:
  a:
    <<: *base
    command: [--sed]
"""

    assert lines(check({"compose.yaml": text})) == ["compose.yaml:6:15 key-dropped"]


def test_environment_is_a_list_or_a_mapping(check: Check) -> None:
    image = "x/vllm:0.27.1-gpu-py312-cu130-ubuntu22.04-sagemaker"
    text = f"""\
services:
  a: {{image: '{image}', environment: [SM_VLLM_SED=1, SM_VLLM_SEED=$$1, SM_VLLM_DTYPE]}}
  b:
    image: {image}
    environment:
      SM_VLLM_SED: 1
      SM_VLLM_SEED: ${{SEED}}
      SM_VLLM_ENFORCE_EAGER: true
"""

    codes = [line.partition(" ")[2] for line in lines(check({"compose.yaml": text}))]

    assert codes == ["key-dropped", "value-refused", "key-dropped", "value-not-text"]


# Dockerfiles


def test_the_last_stage_counts_with_what_it_is_made_from(check: Check) -> None:
    text = """\
FROM vllm/vllm-openai:v0.27.1 AS engine
ENV A=1
FROM ubuntu:24.04
RUN echo '--sed'
FROM engine
ENV DTYPE=auto \\
    LEN=8k
ENTRYPOINT ["vllm", "serve", "m"]
CMD ["--sed", "1"]
"""

    assert lines(check({"Dockerfile": text})) == ["Dockerfile:9:5 key-dropped"]


def test_a_shell_s_form_of_cmd_is_read(check: Check) -> None:
    text = "FROM ubuntu\nCMD vllm serve m \\\n  --sed 1\n"

    assert lines(check({"Dockerfile": text}, "vllm:0.27.1")) == ["Dockerfile:3:3 key-dropped"]


def test_a_word_that_is_no_instruction_is_named(check: Check) -> None:
    report = check({"Dockerfile": "FROM a\nENVS A=1\n"})

    assert lines(report) == ["Dockerfile:2:6 line-unreadable"]
    assert "'ENVS'" in messages(report)
