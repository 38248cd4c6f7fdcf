"""Adapters of directories: what is read, what is packaged, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from packager.core.adapters import check_adapter_name
from packager.models.adapters.directory import list_adapters
from tests.support.adapters import read_adapter, safetensors_file, tiny_modules, write_adapter
from tests.support.cases import cases_of
from tests.support.refusals import raises_code

cases = cases_of(__file__)


def test_an_adapter_is_its_configuration_and_pairs_of_matrices(tmp_path: Path) -> None:
    adapter = read_adapter(write_adapter(tmp_path / "a", r=4, lora_alpha=6), "sql")

    first = adapter.modules[0]
    assert (adapter.name, adapter.rank, adapter.alpha, adapter.max_rank) == ("sql", 4, 6.0, 4)
    assert (first.path, first.rank, first.inputs, first.outputs, first.scale, first.dtype) == (
        ("model.layers.0.self_attn.q_proj", 4, 256, 256, 1.5, "BF16")
    )
    assert adapter.leaves == ("q_proj", "v_proj")
    assert [file.path for file in adapter.files] == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]


def test_patterns_and_root_scales_are_those_of_peft(tmp_path: Path) -> None:
    modules = tiny_modules("q_proj", "v_proj")
    ranks = {path: 16 if path.endswith("0.self_attn.q_proj") else 4 for path in modules}
    place = write_adapter(
        tmp_path / "a",
        modules,
        ranks=ranks,
        r=4,
        lora_alpha=8,
        use_rslora=True,
        rank_pattern={"0.self_attn.q_proj": 16},
        alpha_pattern={r"layers\.[01]\.self_attn\.v_proj": 2, "v_proj": 12},
    )

    found = {module.path: (module.rank, module.scale) for module in read_adapter(place).modules}

    assert found["model.layers.0.self_attn.q_proj"] == (16, 2.0)
    assert found["model.layers.1.self_attn.q_proj"] == (4, 4.0)
    assert found["model.layers.1.self_attn.v_proj"] == (4, 1.0)
    assert found["model.layers.2.self_attn.v_proj"] == (4, 6.0)


@cases("experts")
def test_patterns_of_experts_are_matched_with_their_parameters(
    tmp_path: Path, path: str, parameters: list[str], rank: int
) -> None:
    place = write_adapter(
        tmp_path / "a",
        {f"model.layers.0.mlp.{path}": (64, 32)},
        ranks={f"model.layers.0.mlp.{path}": rank * 4},
        r=4,
        target_parameters=parameters,
        rank_pattern={r".*\.gate_up_proj": 8, "mlp.experts.down_proj": 2},
    )

    (module,) = read_adapter(place).modules

    assert (module.form, module.rank, module.scale) == ("experts", rank, 16 / rank)


@cases("fields")
def test_fields_that_make_it_something_else_are_flags(
    tmp_path: Path, config: dict[str, Any], flags: tuple[str, ...]
) -> None:
    adapter = read_adapter(write_adapter(tmp_path / "a", **config))

    assert tuple(sorted(adapter.flags)) == flags


@cases("broken_configurations")
def test_a_configuration_of_impossible_values_is_refused(
    tmp_path: Path, config: dict[str, Any], code: str, match: str
) -> None:
    place = write_adapter(tmp_path / "a")
    stated = json.loads((place / "adapter_config.json").read_text())
    (place / "adapter_config.json").write_text(json.dumps(stated | config))

    with raises_code(code, match=match):
        read_adapter(place)


@cases("broken_weights", dtype="BF16")
def test_weights_that_are_no_pairs_are_refused(
    tmp_path: Path, shapes: dict[str, list[int]], dtype: str, match: str
) -> None:
    place = write_adapter(tmp_path / "a")
    named = {name: tuple(shape) for name, shape in shapes.items()}
    (place / "adapter_model.safetensors").write_bytes(safetensors_file(named, dtype))

    with raises_code("AdapterBroken", match=match):
        read_adapter(place)


@cases("directories", content={}, removed=())
def test_a_directory_that_is_no_whole_adapter_is_refused(
    tmp_path: Path, content: dict[str, str], removed: tuple[str, ...], code: str, match: str
) -> None:
    place = write_adapter(tmp_path / "a")
    for name in removed:
        (place / name).unlink()
    for name, text in content.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(text.encode("latin-1"))

    with raises_code(code, match=match):
        read_adapter(place)


def test_what_no_engine_reads_of_an_adapter_is_left_out_and_named(tmp_path: Path) -> None:
    place = write_adapter(tmp_path / "a")
    for name in ("model.py", "adapter_model.bin", "tokenizer.json", "optimizer.pt", "LICENSE"):
        (place / name).write_text("{}")
    (place / "default").mkdir()
    (place / "default" / "adapter_model.safetensors").write_bytes(b"x")

    adapter = read_adapter(place)

    assert [file.path for file in adapter.files] == [
        "LICENSE",
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    assert {path: why.partition(":")[0] for path, why in adapter.left_out.items()} == {
        "adapter_model.bin": "pickle",
        "default/adapter_model.safetensors": "below the adapter's own directory",
        "model.py": "code is not packaged",
        "optimizer.pt": "training state",
        "tokenizer.json": "tokenizer and chat template of an adapter",
    }


def test_a_link_out_of_the_adapter_is_refused(tmp_path: Path) -> None:
    place = write_adapter(tmp_path / "a")
    (tmp_path / "b").write_bytes((place / "adapter_model.safetensors").read_bytes())
    (place / "adapter_model.safetensors").unlink()
    (place / "adapter_model.safetensors").symlink_to(tmp_path / "b")

    with raises_code("LinkLeadsOut"):
        read_adapter(place)


def test_a_hostile_pattern_is_not_matched(tmp_path: Path) -> None:
    place = write_adapter(tmp_path / "a", rank_pattern={"(.*a){30}": 8})

    with raises_code("AdapterBroken", match="may take long"):
        read_adapter(place)


@pytest.mark.parametrize("name", ["sql", "a", "v1-2--x", "A" * 63])
def test_a_name_that_every_server_takes_is_taken(name: str) -> None:
    check_adapter_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-a",
        "a-",
        "a_b",
        "a:b",
        "a=b",
        "a,b",
        "a@b",
        "a/b",
        "..",
        "tgi",
        "TGI",
        "é",
        "A" * 64,
        "a\n",
    ],
)
def test_a_name_that_some_server_splits_is_refused(name: str) -> None:
    with raises_code("AdapterName"):
        check_adapter_name(name)


def test_a_directory_of_adapters_has_each_by_its_name(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_adapter(tmp_path / "all" / name)
    (tmp_path / "all" / ".cache").mkdir()

    assert list_adapters(str(tmp_path / "all")) == {
        "a": str(tmp_path / "all" / "a"),
        "b": str(tmp_path / "all" / "b"),
    }


@pytest.mark.parametrize("made", ["none", "one", "odd"])
def test_a_directory_that_lacks_an_adapter_is_refused(tmp_path: Path, made: str) -> None:
    root = tmp_path / "all"
    root.mkdir()
    if made == "one":
        write_adapter(root)
    if made == "odd":
        write_adapter(root / "a")
        (root / "b").mkdir()

    with raises_code("Incomplete", match="no adapter"):
        list_adapters(str(root))
