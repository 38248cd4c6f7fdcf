from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from packager.engines.lmi.check import check_settings
from packager.engines.lmi.legacy import Migration, migrate
from packager.engines.lmi.options import lmi_options
from packager.engines.schema import find_schema

SCHEMA = find_schema("vllm", "0.26.0")


def migrated(old: Mapping[str, str]) -> Migration:
    return migrate(old, SCHEMA, 28)


def codes(migration: Migration, severity: str) -> list[str]:
    return [f.code for f in migration.findings if f.severity == severity]


def test_lmi_dist_with_a_draft_becomes_vllm_with_a_speculative_configuration() -> None:
    migration = migrated(
        {
            "engine": "MPI",
            "option.rolling_batch": "lmi-dist",
            "option.tensor_parallel_degree": "4",
            "option.speculative_draft_model": "/opt/ml/model/draft",
            "option.speculative_length": "4",
            "option.draft_model_tp_size": "1",
        }
    )

    assert migration.settings["engine"] == "Python"
    assert migration.settings["option.rolling_batch"] == "disable"
    assert migration.settings["option.async_mode"] == "true"
    assert json.loads(migration.settings["option.speculative_config"]) == {
        "method": "draft_model",
        "model": "/opt/ml/model/draft",
        "num_speculative_tokens": 4,
        "draft_tensor_parallel_size": 1,
    }
    assert not any("draft_model" in key for key in migration.settings)
    assert codes(migration, "error") == []


def test_what_sagemakers_sdk_sets_for_a_draft_is_understood() -> None:
    path = "/opt/ml/additional-model-data-sources/draft_model/"
    migration = migrated({"OPTION_SPECULATIVE_DRAFT_MODEL": path})

    config = json.loads(migration.settings["option.speculative_config"])
    assert (config["model"], config["num_speculative_tokens"]) == (path, 5)


def test_n_grams_of_lmi_14_become_n_grams() -> None:
    migration = migrated(
        {
            "option.speculative_model": "[ngram]",
            "option.num_speculative_tokens": "3",
            "option.ngram_prompt_lookup_max": "4",
        }
    )

    assert json.loads(migration.settings["option.speculative_config"]) == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_max": 4,
    }


def test_names_of_tgi_become_lmis() -> None:
    migration = migrated(
        {
            "SM_NUM_GPUS": "4",
            "MAX_BATCH_SIZE": "8",
            "MAX_BATCH_PREFILL_TOKENS": "2048",
            "CUDA_MEMORY_FRACTION": "0.8",
            "ENABLE_CUDA_GRAPHS": "false",
        }
    )

    read = migration.settings
    assert read["option.tensor_parallel_degree"] == "4"
    assert read["option.max_rolling_batch_size"] == "8"
    assert read["option.max_rolling_batch_prefill_tokens"] == "2048"
    assert read["option.gpu_memory_utilization"] == "0.8"
    assert read["option.enforce_eager"] == "true"


@pytest.mark.parametrize("method", ["awq", "gptq", "compressed-tensors"])
def test_a_quantized_checkpoint_loses_the_key_that_slows_it_down(method: str) -> None:
    migration = migrated({"option.quantize": method})

    assert "option.quantize" not in migration.settings
    assert "key-migrated" in codes(migration, "note")


@pytest.mark.parametrize(
    ("old", "code"),
    [
        ({"option.rolling_batch": "trtllm"}, "value-refused"),
        ({"option.rolling_batch": "fast"}, "value-refused"),
        ({"option.quantize": "smoothquant"}, "value-refused"),
        ({"option.quantize": "static_int8"}, "value-refused"),
        ({"option.speculative_draft_model": "s3://b/draft"}, "value-refused"),
        (
            {"option.speculative_model": "/d", "option.speculative_config": "{}"},
            "options-conflict",
        ),
    ],
    ids=str,
)
def test_what_has_no_successor_is_an_error(old: dict[str, str], code: str) -> None:
    assert code in codes(migrated(old), "error")


@pytest.mark.parametrize(
    "key",
    ["option.record_acceptance_rate", "option.paged_attention", "option.awq_block_size"],
)
def test_keys_that_are_read_no_more_are_left_out_and_said(key: str) -> None:
    migration = migrated({key: "1"})

    assert key not in migration.settings
    assert codes(migration, "warning") == ["key-dropped"]


def test_half_is_fp16() -> None:
    assert migrated({"option.dtype": "half"}).settings["option.dtype"] == "fp16"


def test_what_comes_out_needs_no_migration_and_lmi_reads_all_of_it() -> None:
    once = migrated({"option.rolling_batch": "lmi-dist", "option.max_rolling_batch_size": "64"})
    twice = migrated(once.settings)

    assert (twice.settings, twice.findings) == (once.settings, ())
    assert list(check_settings(once.settings, lmi_options(SCHEMA, 28))) == []
