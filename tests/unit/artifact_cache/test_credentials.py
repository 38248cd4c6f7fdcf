"""Key documents are shared as text: no setting in one is a credential."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from artifact_cache.credentials import holds_credential, is_credential
from packager.keys.parts import Invocation


@pytest.mark.parametrize(
    "name",
    [
        "api-key",
        "API_KEY",
        "apiKey",
        "x-api-keys",
        "hf_token",
        "HUGGING_FACE_HUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_SESSION_TOKEN",
        "ssl-keyfile-password",
        "clientSecret",
        "PG_PASSWD",
        "db.passphrase",
        "NGROK_AUTHTOKEN",
        "Authorization",
        "SENTRY_DSN",
    ],
)
def test_a_credential_is_known_by_its_name(name: str) -> None:
    assert is_credential(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "--",
        "max-num-batched-tokens",
        "long-prefill-token-threshold",
        "pad_token_id",
        "TOKENIZERS_PARALLELISM",
        "keyboard",
        "key-value-cache",
        "VLLM_CPU_KVCACHE_SPACE",
        "monkey",
    ],
)
def test_other_names_are_none(name: str) -> None:
    assert not is_credential(name)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("https://user:hidden@host/path", True),
        ("s3://token@bucket", True),
        ("https://host/user:hidden@path", False),
        ("https://host?mail=a@b", False),
        ('{"a": [{"b": {"accessKey": 1}}]}', True),
        ('{"a": [1, "password"]}', False),
        ("[" * 100_000, False),
        ("://" * 100_000, False),
        ("a" * 1_000_000 + "://", False),
    ],
    ids=lambda value: str(value)[:32],
)
def test_a_value_is_looked_into_where_it_has_names(value: str, expected: bool) -> None:
    assert holds_credential("option", value) == expected


@pytest.mark.parametrize(
    "told",
    [
        {"engine_args": {"api-key": "hidden"}},
        {"env": {"HF_TOKEN": "hidden"}},
        {"env": {"PROXY": "http://user:hidden@proxy"}},
        {"compiler_args": ("--password=hidden",)},
        {"compiler_args": ("--fetch=https://user:hidden@host",)},
    ],
    ids=str,
)
def test_no_key_document_takes_a_credential(told: dict[str, object]) -> None:
    nothing = {"compiler_args": (), "engine_args": {}, "env": {}}

    with pytest.raises(ValidationError, match="holds a credential"):
        Invocation(**{**nothing, **told})  # type: ignore[arg-type]
