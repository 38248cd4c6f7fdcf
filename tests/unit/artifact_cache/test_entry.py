"""An entry is refused when any reader anywhere could take it for something else."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest

from artifact_cache.entry import Entry, Output, Writer, entry_bytes, parse_entry
from artifact_cache.errors import MalformedEntry, NewerEntry
from artifact_cache.key import key_of, key_of_plain, plain
from tests.support.cache_entries import CHECKPOINT, VLLM, A
from tests.support.cases import cases


def an_entry(**changes: Any) -> dict[str, Any]:
    """Give the plain form of a good entry, with some values replaced."""
    entry = {
        "schema": 1,
        "key": key_of(CHECKPOINT),
        "keydoc": plain(CHECKPOINT),
        "outputs": [an_output("model.safetensors")],
        "writer": {"nonce": "0" * 32, "builder_id": "ci@org", "version": "0.1.0"},
        "built_at": 1795000000,
        "build_s": 2143.5,
        "toolchain_report": {"torch": "2.11.0"},
        "provenance_sha256": None,
    }
    return {**entry, **changes}


def an_output(path: str, **changes: Any) -> dict[str, Any]:
    return {"path": path, "sha256": A, "size": 3, "mode": "0644", **changes}


def written(entry: dict[str, Any]) -> bytes:
    """Write an entry the way a careful enemy would, with a digest that fits."""
    check = hashlib.sha256(b"packager-entry-v1\n" + canonical(entry)).hexdigest()
    return canonical({**entry, "check": check})


def canonical(value: dict[str, Any]) -> bytes:
    """RFC 8785, near enough for the texts and numbers here, and without its refusals."""
    plain = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return plain.encode("utf-8")


def parse(entry: dict[str, Any]) -> Entry:
    return parse_entry(written(entry))


def test_a_good_entry_is_taken() -> None:
    assert parse(an_entry()).build_s == 2143.5


def test_an_entry_reads_back_as_it_was_written() -> None:
    entry = Entry(
        key=key_of(VLLM),
        keydoc=plain(VLLM),
        outputs=(Output(path="cache/graph.bin", sha256=A, size=12, mode="0644"),),
        writer=Writer(nonce="0" * 32, builder_id="", version=""),
        built_at=1795000000,
        build_s=1.5,
    )

    assert parse_entry(entry_bytes(entry)) == entry


def test_an_entry_knows_its_kind_and_size() -> None:
    entry = parse(an_entry(outputs=[an_output("a", size=3), an_output("b", size=4)]))

    assert (entry.kind, entry.total_bytes) == ("quantized-checkpoint", 7)


@cases("path")
def test_a_path_that_is_not_plain_is_refused(path: str) -> None:
    with pytest.raises(MalformedEntry):
        parse(an_entry(outputs=[an_output(path)]))


@cases("paths")
def test_two_paths_that_some_disk_makes_one_are_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(MalformedEntry):
        parse(an_entry(outputs=[an_output(path) for path in paths]))


@cases("rule")
def test_an_entry_that_breaks_a_rule_is_refused(fields: str | None, output: str | None) -> None:
    changes = {"outputs": [an_output("a", **json.loads(output))]} if output else {}

    with pytest.raises(MalformedEntry):
        parse(an_entry(**json.loads(fields or "{}"), **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"keydoc": {**plain(CHECKPOINT), "sharding": None}},
        {"outputs": [an_output(str(number)) for number in range(10_001)]},
        {"toolchain_report": {"log": "x" * 2**20}},
    ],
    ids=["swapped document", "many files", "large"],
)
def test_an_entry_of_other_inputs_or_beyond_a_limit_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(MalformedEntry):
        parse(an_entry(**changes))


def test_a_kind_that_leaves_its_directory_is_refused() -> None:
    keydoc = {"schema": 1, "kind": "../../etc"}
    with pytest.raises(MalformedEntry, match="not a plain word"):
        parse(an_entry(keydoc=keydoc, key=key_of_plain(keydoc)))


@cases("data")
def test_bytes_that_are_not_one_strict_object_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedEntry):
        parse_entry(data)


def test_a_key_that_stands_twice_further_inside_is_refused() -> None:
    data = written(an_entry()).replace(b'"size":3', b'"size":3,"size":4')

    with pytest.raises(MalformedEntry, match="stands twice"):
        parse_entry(data)


def test_an_entry_of_the_future_is_told_apart_from_a_broken_one() -> None:
    with pytest.raises(NewerEntry):
        parse(an_entry(schema=2, something_new=True))


def test_an_envelope_of_another_type_is_left_to_versions_that_know_it() -> None:
    with pytest.raises(NewerEntry):
        parse_entry(b'{"payload":"e30=","payloadType":"application/json","signatures":[]}')


def enveloped(signed: bytes, **changes: Any) -> bytes:
    envelope = {
        "payloadType": "application/vnd.packager.cache.entry+json",
        "payload": base64.b64encode(signed).decode(),
        "signatures": [{"keyid": "0", "sig": "AA=="}],
    }
    return canonical({**envelope, **changes})


def test_a_signed_entry_reads_back_with_its_signatures() -> None:
    entry = parse_entry(enveloped(written(an_entry(labels={}))))

    assert [signature.keyid for signature in entry.signatures] == ["0"]
    assert parse_entry(entry_bytes(entry)) == entry
    assert entry.model_copy(update={"signatures": ()}) == parse(an_entry())


@cases("envelope")
def test_a_damaged_envelope_is_refused(fields: str) -> None:
    with pytest.raises(MalformedEntry):
        parse_entry(enveloped(written(an_entry(labels={})), **json.loads(fields)))


def test_an_envelope_of_a_crowd_is_refused() -> None:
    signatures = [{"keyid": "0", "sig": "AA=="}] * 9
    with pytest.raises(MalformedEntry):
        parse_entry(enveloped(written(an_entry(labels={})), signatures=signatures))


def test_an_enveloped_entry_that_others_could_write_differently_is_refused() -> None:
    """A signature is over bytes; two spellings of one entry must not share it."""
    with pytest.raises(MalformedEntry, match="canonical"):
        parse_entry(enveloped(written(an_entry(labels={})) + b" "))


def test_signatures_inside_the_payload_are_refused() -> None:
    with pytest.raises(MalformedEntry, match="beside the payload"):
        parse(an_entry(signatures=[]))


def test_a_signed_entry_of_the_future_is_left_alone() -> None:
    with pytest.raises(NewerEntry):
        parse_entry(enveloped(written(an_entry(schema=2, something_new=True))))


def test_no_flipped_bit_goes_unnoticed() -> None:
    data = written(an_entry())
    for place in range(len(data)):
        flipped = data[place] ^ (1 << place % 8)
        with pytest.raises(MalformedEntry):
            parse_entry(data[:place] + bytes([flipped]) + data[place + 1 :])


def test_a_kind_of_the_future_is_still_an_entry() -> None:
    keydoc = {"schema": 7, "kind": "quantum-annealing", "qubits": 3}

    assert parse(an_entry(keydoc=keydoc, key=key_of_plain(keydoc))).kind == "quantum-annealing"
