"""Layers without what goes: every other byte stays, and no file changes for another."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.addons.nodes.slim import rewrite
from packager.addons.nodes.slim.image import slim_image
from packager.addons.nodes.slim.record import SlimBase, attached_document, slim_document, slim_lines
from packager.addons.nodes.slim.rewrite import rewrite_layers
from packager.addons.nodes.slim.rules import choose_rules
from packager.addons.nodes.slim.scan import SlimScan, scan_image
from packager.core.errors import OutputFailed, PackagerError, ProtocolFailed, UsageError
from packager.core.image import BaseImage, Blob, Inline, Layer
from packager.images.blobs import BlobReader
from packager.images.oci import sha256
from packager.images.rootfs.reading import LayerReader
from packager.images.slim_label import LABEL, refuse_other_machine, slim_words
from tests.support import made_layers
from tests.support.cases import read_tables
from tests.support.indexed_layers import estargz, zstd_chunked
from tests.support.made_layers import (
    LARGE,
    Member,
    base_of,
    directory,
    file,
    files_after,
    layer_of,
    link,
    member,
    members_of,
    packed,
    read,
    symlink,
    tar_of,
)
from tests.support.refusals import raises_code
from tests.support.stored_images import sealed_as_described
from tests.unit.addons.nodes.slim.test_rules import CPU, GPU, WITH_BF16

MAN = "usr/share/man/man1"


def base_with(*layers: Sequence[Member], packing: str = "none", **config: Any) -> BaseImage:
    """Return a base whose layers have these entries."""
    return base_of([layer_of(tar_of(members), packing) for members in layers], **config)


def stated(name: str) -> tuple[BaseImage, dict[str, bytes]]:
    """Return a base of a table, and the files that are expected."""
    table = read_tables(__file__)[name]
    layers = ([member(*entry) for entry in one] for one in table["layers"])
    return base_with(*layers), {path: text.encode() for path, text in table["files"].items()}


PAGE = file(f"{MAN}/a", LARGE)  # it goes
KEPT = file("b", b"b")  # it stays


def scanned(base: BaseImage, *instances: Any, **asked: Any) -> SlimScan:
    chosen = choose_rules(instances, **asked)
    return scan_image(base, chosen, LayerReader(BlobReader().chunks).entries_of)


def slimmed(base: BaseImage, place: Path, *instances: Any) -> tuple[Layer | None, ...]:
    return rewrite_layers(base, scanned(base, *instances), place, BlobReader().chunks)


def tars(base: BaseImage, layers: Sequence[Layer | None]) -> list[bytes]:
    """Return the layers' archives, read with other programs than ours."""
    found = []
    for layer in layers:
        if layer is not None:
            data = read(layer.blob)
            assert sha256(data) == layer.digest
            data = made_layers.unpacked(data, layer.media_type)
            assert sha256(data) == layer.diff_id
            found.append(data)
    return found


def after(base: BaseImage, place: Path, *instances: Any) -> dict[str, bytes]:
    return files_after(tars(base, slimmed(base, place, *instances)))


@pytest.mark.parametrize("packing", ["none", "gzip", "zstd"])
def test_a_rewritten_layer_keeps_all_but_what_goes(tmp_path: Path, packing: str) -> None:
    members = [
        directory("usr/"),
        file("usr/server", b"s" * 3000, pax_headers={"SCHILY.xattr.user.a": "b"}, mode=0o4755),
        file(f"{MAN}/a.1", LARGE),
        symlink("usr/link", "server"),
        link("usr/hard", "usr/server"),
        file(f"{MAN}/b.1", b"b"),
        file("opt/" + "n" * 150, b"long"),
    ]
    kept = [one for one in members if not one[0].name.startswith(MAN)]
    base = base_with(members, packing=packing)

    [made] = slimmed(base, tmp_path)

    assert made is not None
    assert made.media_type == base.layers[0].media_type
    [data] = tars(base, [made])
    wanted = tar_of(kept)
    end = wanted.rstrip(b"\0")
    assert data.startswith(end)
    assert not any(data[len(end) :])
    assert {name: one.get_info() for name, one in members_of(data).items()} == {
        name: one.get_info() for name, one in members_of(wanted).items()
    }


def test_a_layer_that_loses_nothing_or_hardly_anything_stays_as_it_is(tmp_path: Path) -> None:
    whole = layer_of(tar_of([file("usr/server", b"s")]), "gzip")
    hardly = layer_of(tar_of([file("usr/a", b"a"), file(f"{MAN}/a", b"few")]))
    base = base_of([whole, hardly])

    assert slimmed(base, tmp_path) == (whole, hardly)
    assert list((tmp_path / "blobs" / "sha256").iterdir()) == []
    assert scanned(base).gone == ()


def test_a_layer_that_loses_all_is_left_out_and_its_history_says_so(tmp_path: Path) -> None:
    history = read_tables(__file__)["history"]
    base = base_with([file(f"{MAN}/a", b"few")], [file("server", b"s")], history=history)
    slim = made(base, tmp_path)

    assert [one is None for one in slim.layers] == [True, False]
    sealed = documents(slim)
    assert sealed["history"] == [{"created_by": "man", "empty_layer": True}, *history[1:]]
    assert sealed["rootfs"]["diff_ids"] == [base.layers[1].diff_id]


def made(base: BaseImage, place: Path, *instances: Any) -> SlimBase:
    scan, layers = scanned(base, *instances), slimmed(base, place, *instances)
    return SlimBase(base=base, chosen=choose_rules(instances), scan=scan, layers=layers)


def documents(slim: SlimBase) -> dict[str, Any]:
    """Return the configuration of the slim image."""
    parsed: dict[str, Any] = json.loads(sealed_as_described(slim_image(slim)).config)
    return parsed


def test_a_file_that_a_kept_hard_link_names_stays_in_any_layer(tmp_path: Path) -> None:
    base, expected = stated("linked")

    assert after(base, tmp_path) == expected
    linked = [path.removeprefix(f"{MAN}/") for path in scanned(base).linked]
    assert linked == ["across", "between", "chained", "linked"]


def test_no_older_file_of_a_lower_layer_comes_to_light(tmp_path: Path) -> None:
    """The lower layer stays as it is: it would lose too little."""
    base, expected = stated("shadowed")

    assert after(base, tmp_path) == expected


def test_deletions_stay_and_a_file_in_the_place_of_a_directory_does_too(tmp_path: Path) -> None:
    base, expected = stated("deleted")

    layers = tars(base, slimmed(base, tmp_path))

    assert list(members_of(layers[1])) == [*expected]
    assert "opt/x.a/inside" in members_of(layers[0])


BROKEN = {
    "gzip cut": (packed(tar_of([file("a", LARGE)]), "gzip")[:-9], "gzip"),
    "gzip damaged": (b"\x1f\x8bnonsense" * 20, "gzip"),
    "zstd damaged": (b"nonsense" * 20, "zstd"),
    "gzip empty": (b"", "gzip"),
}


@pytest.mark.parametrize(("data", "packing"), BROKEN.values(), ids=BROKEN)
def test_a_damaged_stream_is_a_typed_error(data: bytes, packing: str) -> None:
    layer = layer_of(tar_of([file("a")]), packing)
    broken = replace(layer, blob=Blob((Inline(data),)), digest=sha256(data))

    with raises_code("LayerBroken"):
        scanned(base_of([broken]))


@pytest.mark.parametrize("field", ["digest", "diff_id"])
def test_a_layer_with_other_bytes_than_the_image_says_is_refused(field: str) -> None:
    wrong = replace(layer_of(tar_of([file("a")]), "gzip"), **{field: "sha256:" + "0" * 64})  # type: ignore[arg-type]

    with raises_code("LayerBroken", match="its image says sha256:0000"):
        scanned(base_of([wrong]))


@pytest.mark.parametrize("field", ["digest", "diff_id"])
def test_a_layer_that_changed_since_it_was_listed_is_refused(field: str, tmp_path: Path) -> None:
    base = base_of([layer_of(tar_of([PAGE, KEPT]), "gzip")])
    scan = scanned(base)
    wrong = replace(base.layers[0], **{field: "sha256:" + "0" * 64})  # type: ignore[arg-type]

    with pytest.raises(ProtocolFailed, match="expected sha256:0000"):
        rewrite_layers(replace(base, layers=(wrong,)), scan, tmp_path, BlobReader().chunks)


@pytest.mark.parametrize("indexed", [estargz, zstd_chunked])
def test_an_index_that_hides_a_hard_link_is_found_out(
    indexed: Callable[..., Layer], tmp_path: Path
) -> None:
    honest = tar_of([PAGE, KEPT])
    lying = tar_of([PAGE, KEPT, link("usr/hard", f"{MAN}/a")])
    layer = indexed(lying, listed=honest)
    base = base_of([layer])

    with raises_code("LayerBroken", match="names other files than its tar"):
        slimmed(base, tmp_path)


def test_a_layer_of_another_type_is_refused() -> None:
    encrypted = replace(layer_of(tar_of([file("a")])), media_type="application/vnd.x.tar+encrypted")

    with raises_code("LayerOfNoEngine", match="do not unpack its type"):
        scanned(base_of([encrypted]))


def test_a_full_disk_is_told_before_anything_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        rewrite.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1_000_000})()
    )
    base = base_with([PAGE, KEPT])

    with pytest.raises(OutputFailed, match=r"rewritten layers need .* are free"):
        slimmed(base, tmp_path)
    assert list((tmp_path / "blobs" / "sha256").iterdir()) == []


def test_nothing_half_made_is_left_where_a_layer_breaks_off(tmp_path: Path) -> None:
    base = base_with([PAGE, file("b", b"b" * 9000)])
    scan = scanned(base)

    def cut(blob: Blob) -> Iterator[memoryview]:
        data = read(blob)
        yield memoryview(data[: len(data) - 12_000])
        raise ProtocolFailed("the registry broke off", hint="")

    with pytest.raises(PackagerError, match="broke off"):
        rewrite_layers(base, scan, tmp_path, cut)
    assert list((tmp_path / "blobs" / "sha256").iterdir()) == []


def labelled(base: BaseImage, text: str) -> BaseImage:
    return replace(base, config={"config": {"Labels": {LABEL: text}}})


def test_the_label_says_from_what_by_which_rules_and_for_which_machines(tmp_path: Path) -> None:
    vllm = "opt/lib/python3.11/site-packages/vllm"
    base = base_with([file(f"{vllm}/_C_AVX2.abi3.so", LARGE), file(f"{MAN}/a", b"a"), KEPT])
    config = documents(made(base, tmp_path, WITH_BF16))["config"]

    expected = {"from": base.digest, **read_tables(__file__)["label"]}
    assert json.loads(config["Labels"][LABEL]) == expected
    slim_base = labelled(base, config["Labels"][LABEL])
    refuse_other_machine(slim_base, WITH_BF16)
    with pytest.raises(UsageError, match="it is for cpu"):
        refuse_other_machine(slim_base, GPU)
    with pytest.raises(UsageError, match="known to have avx512_bf16"):
        refuse_other_machine(slim_base, CPU)


def test_a_base_without_kernels_of_a_gpu_is_refused_for_that_gpu(tmp_path: Path) -> None:
    resource = "usr/lib/libnvinfer_builder_resource_sm90.so.10"
    base = base_with([file(resource, LARGE), KEPT])
    label = documents(made(base, tmp_path, GPU))["config"]["Labels"][LABEL]

    refuse_other_machine(labelled(base, label), GPU)
    with pytest.raises(UsageError, match=r"kernels of its own for compute capability 8\.6 alone"):
        refuse_other_machine(labelled(base, label), replace(GPU, compute_capability=9.0))


def test_inspect_says_what_a_slim_base_was_made_from(tmp_path: Path) -> None:
    base = base_with([PAGE, KEPT])
    label = documents(made(base, tmp_path))["config"]["Labels"][LABEL]

    assert slim_words(label) == f"made from {base.digest}, without 1.2 MB of its files"
    for text in ("", "{", "[]", '{"from": "x\\u001b", "rules": {}}'):
        assert slim_words(text) == ""


@pytest.mark.parametrize("text", ["{", "[]", "x" * 20_000, '{"kinds": {"cpu": 1}}', '{"isa": 5}'])
def test_a_strangers_label_is_refused_or_says_nothing(text: str) -> None:
    base = labelled(base_of([]), text)

    if text.startswith('{"'):
        refuse_other_machine(base, GPU)
    else:
        with pytest.raises(UsageError, match=r"its label dev\.packager\.slim cannot be read"):
            refuse_other_machine(base, GPU)


def test_the_record_says_what_went_how_much_by_which_rule_and_why(tmp_path: Path) -> None:
    base = base_with([file(f"{MAN}/a\x1b[31m", LARGE), KEPT])
    slim = made(base, tmp_path)
    document = slim_document(slim, "sha256:" + "d" * 64)

    assert document["from"] == base.digest
    assert (document["gone_files"], document["gone_bytes"]) == (1, 1_200_000)
    [rule] = document["rules"]
    assert rule["name"] == "documentation"
    assert rule["why"].startswith("manuals, change logs")
    assert rule["largest"] == [{"path": f"{MAN}/a\\x1b[31m", "bytes": 1_200_000}]
    assert document["layers"][0]["state"] == "rewritten"
    assert document["size_before"] - document["size_after"] > 1_200_000
    lines = slim_lines(slim)
    assert (
        "documentation: manuals, change logs and examples of the system's packages are for people"
        in lines
    )


def test_what_is_attached_names_no_directory_of_this_machine(tmp_path: Path) -> None:
    base = replace(base_with([KEPT]), reference="oci:/home/me/base")
    document = slim_document(made(base, tmp_path))
    document["proof"] = {"model": "/home/me/tiny", "answers": ["a"]}

    said = json.loads(attached_document(document))

    assert said["reference"] == "oci"
    assert said["proof"]["model"] == "tiny"
    assert "/home/me" not in json.dumps(said)


def test_entries_of_devices_stay(tmp_path: Path) -> None:
    base = base_with([file(f"{MAN}/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3), PAGE])

    [layer] = tars(base, slimmed(base, tmp_path))

    assert list(members_of(layer)) == [f"{MAN}/null"]
