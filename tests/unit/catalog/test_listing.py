"""`packager list`, and the promise that every row keeps its source and date."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner, Result

from packager.catalog import listing
from packager.catalog.listing import Filter
from packager.catalog.techniques import techniques
from packager.cli.commands.list_ import list_
from packager.core.errors import UsageError
from packager.core.techniques import DraftKind
from packager.core.user_catalog import UserCatalog
from packager.engines.load_formats import list_load_formats
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from tests.support.cases import cases, read_tables
from tests.support.places import ROOT

TABLES = read_tables(__file__)

CATALOG = {
    "instances": listing.list_instances,
    "accelerators": listing.list_accelerators,
    "models": listing.list_models,
    "drafts": listing.list_drafts,
    "containers": listing.list_containers,
    "techniques": listing.list_techniques,
    "compatibility": listing.list_compatibility,
    "prices": listing.list_prices,
    "registries": listing.list_registries,
    "load-formats": list_load_formats,
}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}


def run(home: dict[str, str], *arguments: str) -> Result:
    done = CliRunner().invoke(list_, arguments, env=home)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def records(home: dict[str, str], *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(home, *arguments, "--format", "json").stdout)
    return found


@pytest.mark.parametrize("what", CATALOG)
def test_every_row_keeps_its_source_and_its_date(what: str) -> None:
    rows = CATALOG[what](UserCatalog(), Filter())

    assert rows
    for row in rows:
        assert row["source"].strip(), row
        assert re.fullmatch(r"20\d\d(-\d\d(-\d\d)?)?", row["date"]), row


def test_instances_are_filtered_by_device_and_memory(home: dict[str, str]) -> None:
    found = records(home, "instances", "--device", "nvidia", "--min-memory", "600")

    assert [row["instance"] for row in found] == TABLES["instances_above_80_gb"]


def test_instances_are_filtered_by_what_a_family_serves(home: dict[str, str]) -> None:
    neuron = {row["kind"] for row in records(home, "instances", "--family", "neuron")}
    volta = records(home, "instances", "p3.", "--family", "tgi")

    assert neuron == {"neuron"}
    assert volta == []


def test_prices_are_of_the_asked_region_where_there_is_one(home: dict[str, str]) -> None:
    (row,) = records(home, "instances", "ml.g5.12xlarge", "--region", "us-east-1")

    assert [row["usd_hour"], row["price_region"], row["price_date"]] == TABLES["price"]


def test_text_is_found_in_any_field(home: dict[str, str]) -> None:
    assert [row["version"] for row in records(home, "containers", "LMI27")] == [
        "0.36.0-lmi27.0.0-cu130"
    ]
    codes = {row["code"] for row in records(home, "compatibility", "medusa v2")}
    assert codes == set(TABLES["medusa_rules"])


def test_rules_that_cannot_concern_a_family_are_left_out(home: dict[str, str]) -> None:
    codes = {row["code"] for row in records(home, "compatibility", "--family", "sglang")}

    assert "sglang-no-medusa" in codes
    assert "nvfp4-needs-blackwell" in codes
    assert "tgi-draft-kind" not in codes
    assert "medusa-too-many-tokens" in codes


def test_a_rule_without_a_situation_names_what_it_depends_on(home: dict[str, str]) -> None:
    (row,) = records(home, "compatibility", "medusa-gone-from-vllm")

    assert row["reason"] == "vLLM <engine version> has no Medusa any more; 0.32 was the last"
    assert row["when"] == "engine is vllm; engine_version is >=0.33; draft is medusa"


def test_csv_has_every_field_and_reads_back(home: dict[str, str]) -> None:
    text = run(home, "models", "Mixtral-8x7B-Instruct-v0.1", "--format", "csv").stdout
    first = next(csv.DictReader(io.StringIO(text)))

    assert first["model"] == "mistralai/Mixtral-8x7B-Instruct-v0.1"
    assert first["drafts"] == "medusa:text-generation-inference/Mixtral-8x7B-Instruct-v0.1-medusa"
    assert first["preoptimized"] == "yes"
    assert first["date"] == "2024-07"


def test_text_fits_a_terminal_line(home: dict[str, str]) -> None:
    assert run(home, "instances", "ml.g5.12xlarge").stdout.splitlines() == TABLES["printed"]


def test_nothing_found_is_an_empty_list_not_an_error(home: dict[str, str]) -> None:
    assert records(home, "instances", "quantum") == []
    assert run(home, "instances", "quantum", "--format", "csv").stdout == ""
    assert run(home, "instances", "quantum").stdout == "nothing of that kind\n"


def test_own_rows_are_listed(home: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[[instance]]\nname = "rack-7"\nkind = "cpu"\ndevice_name = "EPYC"\ndevices = 1\n'
        "device_memory_gib = 512\nhost_memory_gib = 512\nvcpus = 64\n"
        'source = "asset list"\ndate = 2026-11-20\n'
    )
    (row,) = records(home, "instances", "rack-7", "--catalog", str(file))

    assert (row["device"], row["total_gib"], row["source"]) == ("EPYC", 512.0, "asset list")


@cases("a_filter_that_would_change_nothing_is_refused")
def test_a_filter_that_would_change_nothing_is_refused(
    home: dict[str, str], arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError) as error:
        run(home, *arguments)

    assert str(error.value) == message


def test_plug_ins_are_listed_by_name(home: dict[str, str]) -> None:
    assert {"name": "lmi", "what": "AWS Large Model Inference (DJL Serving)"} in records(
        home, "families"
    )


def test_every_method_of_the_quantizer_is_listed() -> None:
    listed = {found.name for found in techniques() if found.kind == "quantizer"}

    assert listed == set(LlmCompressorQuantizer.methods)


def test_every_kind_of_draft_is_listed_and_explained() -> None:
    kinds = set(get_args(DraftKind))
    explained = (ROOT / "docs" / "drafts.md").read_text(encoding="utf-8")

    assert {one.name for one in techniques() if one.kind == "draft"} == kinds
    for kind in kinds - {"draft_model"}:
        assert re.search(rf"^\| .*`{kind}[:`]", explained, re.MULTILINE), kind


def test_published_drafts_are_listed_as_the_option_takes_them(home: dict[str, str]) -> None:
    found = {row["model"]: row for row in records(home, "drafts", "P-EAGLE")}

    assert found["openai/gpt-oss-120b"]["draft"] == "peagle:amazon/gpt-oss-120b-p-eagle"
    assert found["openai/gpt-oss-120b"]["license"] == "apache-2.0"
    assert "meta-llama/Llama-3.2-1B-Instruct" in {
        row["draft"] for row in records(home, "drafts", "Llama-3.1-70B")
    }


def test_what_is_served_is_listed_by_kind_device_and_processor() -> None:
    rows = {one["kind"]: one for one in listing.list_served(UserCatalog(), Filter())}

    assert rows["text"]["cpu"] == "vllm (amd64, arm64)"
    assert rows["text"]["nvidia"] == "vllm, lmi, tgi, sglang (amd64)"
    assert "tgi" not in rows["multimodal"]["nvidia"]
    assert rows["multimodal"]["neuron"] == ""
    assert rows["speech"]["nvidia"] == "refused"
    assert rows["embedding"]["cpu"] == ""
    pooled = listing.list_served(UserCatalog(), Filter(), lambda image: image.kind == "cpu")
    [embedding] = [one for one in pooled if one["kind"] == "embedding"]
    assert (embedding["cpu"], embedding["nvidia"]) == ("vllm (amd64, arm64)", "")
    assert "draft" not in rows


def test_architectures_are_listed_with_the_versions_that_have_them() -> None:
    found = {
        one["architecture"]: one for one in listing.list_architectures(UserCatalog(), Filter())
    }

    assert found["BambaForCausalLM"]["vllm"] == "0.7.3-0.23.0"
    assert found["Qwen3_5ForConditionalGeneration"]["sglang"] == "0.5.9-"
    assert found["LlamaForCausalLM"]["vllm"] == "all"
    assert (found["BertModel"]["kind"], found["BertModel"]["planned"]) == ("embedding", True)
    assert all(one["source"] and one["date"] for one in found.values())


def test_a_model_with_several_ids_of_sagemaker_is_one_row() -> None:
    records = listing.list_models(UserCatalog(), Filter())
    bloom = [record for record in records if record["model"] == "bigscience/bloom-7b1"]

    assert [record["jumpstart_id"] for record in bloom] == TABLES["bloom"]
    assert len({record["model"] for record in records}) == len(records)
