"""What was sent as a credential is found in a text, however it is spelled there."""

from __future__ import annotations

import base64
import json

import pytest

from artifact_cache.printable import QUOTED_BYTES, escape, quote_answer
from artifact_cache.secrets import (
    hide_secrets,
    remember_headers,
    remember_secret,
    remember_user,
    remember_variables,
    repeats_secret,
)
from artifact_cache.strict_json import shorten
from tests.support.spellings import spellings

SECRET = "sk-Canary/+=\"'<1>é"
BASIC = base64.b64encode(f"user:{SECRET}".encode()).decode()


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {SECRET}"},
        {"authorization": f"Basic {BASIC}"},
        {"X-Amz-Security-Token": SECRET},
        {"Cookie": SECRET},
    ],
)
def test_no_spelling_of_a_header_s_credential_is_left_in_a_text(headers: dict[str, str]) -> None:
    remember_headers(headers)

    for spelled in spellings(SECRET):
        said = f"a: {spelled.decode()}, b"
        assert spelled.decode() not in escape(said), spelled
        assert escape(said).startswith("a: ***"), spelled


def test_a_secret_at_the_end_of_what_is_read_is_not_shown_by_half() -> None:
    secret = "sk-" + "Canary" * 1000
    remember_secret(secret)

    shown = quote_answer((secret.encode() * 20)[:QUOTED_BYTES], 300)

    assert "Canary" not in shown


def test_a_secret_is_hidden_before_a_text_is_cut() -> None:
    remember_secret(SECRET)

    assert quote_answer("x" * 295 + SECRET, 300) == "x" * 295 + "***"
    assert shorten("x" * 155 + SECRET, 200) == f"'{'x' * 155}***'"


@pytest.mark.parametrize("secret", ["abc", "EMPTY", "password", "12345678"])
def test_with_a_secret_that_other_texts_have_nothing_of_a_server_is_quoted(secret: str) -> None:
    remember_secret(secret)

    assert "it says" not in quote_answer("it says so", 300)
    assert escape(f"our own {secret}") == f"our own {secret}"
    assert repeats_secret(f"code-{secret}")
    assert secret not in shorten(f"X {secret}")


@pytest.mark.parametrize("before", ["\n", "\t", "é", "\u202e", "a", '"'])
def test_a_document_stays_one_when_a_secret_is_hidden_in_it(before: str) -> None:
    """The letters before it may be those of an escape, and no letters of base64."""
    remember_secret(SECRET)
    encoded = base64.b64encode(SECRET.encode()).decode()

    shown = hide_secrets(json.dumps({"a": before + encoded}))

    assert encoded not in shown
    assert json.loads(shown)["a"].endswith("***")


def test_who_logs_in_by_an_address_has_a_secret() -> None:
    remember_user("http://user:p%40ss-Word1@proxy:8080/way")
    remember_user("http://token-Canary-1@proxy")

    assert escape("p@ss-Word1 and token-Canary-1") == "*** and ***"


def test_credentials_among_variables_are_secrets() -> None:
    remember_variables(
        {"HF_TOKEN": "hf_Canary/one", "PROXY": "http://u:p-Canary.two@x", "N": "four"}
    )

    assert hide_secrets("hf_Canary/one p-Canary.two four") == "*** *** four"


def test_a_signature_of_one_request_is_no_secret() -> None:
    remember_headers({"Authorization": "AWS4-HMAC-SHA256 Credential=AKIA/x, Signature=abcdef0"})

    assert escape("Signature=abcdef0") == "Signature=abcdef0"
