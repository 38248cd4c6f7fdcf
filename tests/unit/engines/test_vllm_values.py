"""What vLLM's versions look up, or make classes of, beside corpus/plans_vllm_values.toml."""

from __future__ import annotations

import json

from packager.engines.schema import find_schema, read_size, shipped_versions
from packager.engines.vllm.check import check_draft_config, check_options


def test_every_version_has_the_names_it_looks_up_and_the_classes_it_makes() -> None:
    for version in shipped_versions("vllm"):
        if version in {"0.7.3", "0.8.4"}:
            continue  # of LMI alone, by their own classes
        schema = find_schema("vllm", version)
        assert "hermes" in schema.options["tool-call-parser"].values, version
        assert schema.options["tool-call-parser"].opened_by == "tool-parser-plugin"
        assert "safetensors" in schema.options["load-format"].values, version
        for name in ("compilation-config", "kv-transfer-config", "speculative-config"):
            config = schema.options[name].config
            assert config is not None and config.lax and len(config.fields) > 8, (version, name)


def test_a_speculative_configuration_is_told_of_once() -> None:
    asked = {"method": "nonsense", "modell": "/x", "num_speculative_tokens": 3}
    schema = find_schema("vllm", "0.27.1")
    found = [
        *check_options("vLLM", {"speculative-config": json.dumps(asked)}, schema),
        *check_draft_config("vLLM", asked, schema),
    ]

    errors = [one.code for one in found if one.severity == "error"]
    assert sorted(errors) == ["draft-unsupported", "key-dropped"]


def test_letters_of_sizes_are_powers_of_a_thousand_or_of_1024() -> None:
    assert [read_size(text) for text in ("7", "2k", "2K", "1.5m")] == [7, 2000, 2048, 1_500_000]
