"""Containers of every kind of object of Kubernetes and KServe, beside corpus/files.toml."""

from __future__ import annotations

from tests.support.cases import cases_of
from tests.support.checked import Check, lines

cases = cases_of(__file__, "kinds")


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


@cases("containers")
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
