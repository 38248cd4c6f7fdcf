"""What TGI's launcher compares, beside corpus/plans_tgi.toml."""

from __future__ import annotations

from packager.engines.tgi.check import check_launcher


def test_a_prompt_longer_than_a_prefill_needs_chunks() -> None:
    env = {"MAX_INPUT_LENGTH": "8000", "MAX_BATCH_PREFILL_TOKENS": "4096"}

    assert [f.code for f in check_launcher(env, chunks=False)] == ["options-conflict"]
    assert list(check_launcher(env, chunks=True)) == []
