from __future__ import annotations

from pathlib import Path

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.catalog.containers import find_container
from packager.catalog.instances import find_instance
from packager.catalog.models import find_model
from packager.catalog.prices import price_of
from packager.catalog.user_catalog import load_user_catalog, user_rows_in
from packager.core.errors import NotFound
from packager.core.units import GIB
from packager.core.user_catalog import UserCatalog
from tests.support.cases import cases
from tests.support.known import known
from tests.support.refusals import raises_code

OWN = Path(__file__).parent / "corpus" / "own"
ROWS = {path.stem: path.read_text(encoding="utf-8") for path in OWN.glob("*.toml")}
RACK = ROWS["rack"]
MODEL = ROWS["model"]
CONTAINER = ROWS["container"]
AMD = ROWS["amd"]
PROCESSOR = ROWS["processor"]


def load(tmp_path: Path, text: str) -> UserCatalog:
    file = tmp_path / "catalog.toml"
    file.write_text(text)
    return load_user_catalog(file, {"XDG_CONFIG_HOME": str(tmp_path / "none")})


def test_a_box_on_premises_is_an_instance_like_any_other(tmp_path: Path) -> None:
    own = load(tmp_path, RACK)
    instance = find_instance("rack-7", own.instances)

    assert (instance.kind, instance.devices, instance.compute_capability) == ("nvidia", 8, 9.0)
    assert instance.device_bytes == round(79.6 * GIB)
    assert "fp8_w8a8" in instance.formats and "nvfp4_w4a4" not in instance.formats
    assert (instance.source, instance.date) == ("asset list", "2026-11-20")


def test_a_known_gpu_brings_its_figures_along(tmp_path: Path) -> None:
    own = load(tmp_path, RACK)
    device = accelerator_of(find_instance("rack-7", own.instances), own.accelerators)

    assert device.bandwidth_bytes_s == 3350e9
    assert (device.link, device.link_bytes_s) == ("nvlink", 450e9)
    assert device.usable_bytes == round(79.6 * GIB)


def test_own_figures_are_taken_for_a_gpu_nobody_knows(tmp_path: Path) -> None:
    text = RACK.replace('"H100"', '"RTX 4090"').replace('"nvlink"', '"pcie"')
    text += "bandwidth_gb_s = 1008\nlink_gb_s = 32\ntflops = { bf16 = 165, fp8 = 330 }\n"
    own = load(tmp_path, text)
    device = accelerator_of(find_instance("rack-7", own.instances), own.accelerators)

    assert device.bandwidth_bytes_s == 1008e9
    assert device.tflops == {"bf16": 165, "fp8": 330}
    assert (device.link, device.link_bytes_s) == ("pcie", 32e9)


def test_its_price_is_the_users_word(tmp_path: Path) -> None:
    own = load(tmp_path, RACK)
    price = known(price_of(find_instance("rack-7", own.instances), "us-east-1", own.prices))

    assert (price.usd_hour, price.region, price.basis) == (21.5, "on-premises", "user")


def test_a_row_of_a_shipped_name_replaces_it(tmp_path: Path) -> None:
    own = load(tmp_path, RACK.replace("rack-7", "ml.p5.48xlarge"))

    assert find_instance("p5.48xlarge", own.instances).source == "asset list"
    assert find_instance("p5.48xlarge").source != "asset list"


def test_own_models_and_images_are_found(tmp_path: Path) -> None:
    own = load(tmp_path, MODEL + CONTAINER)
    model = find_model("acme/llama-3-70b-support", own.models)
    image = find_container("vllm", "nvidia", "ours", extra=own.containers)

    assert (image.cuda, image.least_driver) == ("12.9", "525")

    assert model is not None
    assert [draft.reference for draft in model.drafts] == ["acme/support-eagle3"]
    assert image.default_base == "registry.example.com/serving/vllm:ours"
    assert image.source == "platform team (2026-11-20)"


def test_rows_of_the_named_file_win_over_the_standing_one(tmp_path: Path) -> None:
    standing = tmp_path / "config" / "packager" / "catalog.toml"
    standing.parent.mkdir(parents=True)
    standing.write_text(RACK + RACK.replace("rack-7", "rack-8"))
    named = tmp_path / "mine.toml"
    named.write_text(RACK.replace("devices = 8", "devices = 4"))
    own = load_user_catalog(named, {"XDG_CONFIG_HOME": str(tmp_path / "config")})

    assert [(row.name, row.devices) for row in own.instances] == [("rack-7", 4), ("rack-8", 8)]


def test_no_standing_file_is_no_rows(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}

    assert user_rows_in(None, environment) == UserCatalog()


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        load_user_catalog(tmp_path / "none.toml", {"XDG_CONFIG_HOME": str(tmp_path)})


@cases("a_wrong_row_is_named_with_its_mistake", more="")
def test_a_wrong_row_is_named_with_its_mistake(
    tmp_path: Path, row: str, old: str, new: str, more: str, message: str
) -> None:
    assert old in ROWS[row]

    with raises_code("UserCatalogWrong") as error:
        load(tmp_path, ROWS[row].replace(old, new, 1) + more)

    assert message in str(error.value)


def test_a_misspelled_field_gets_the_fields_there_are(tmp_path: Path) -> None:
    with raises_code("UserCatalogWrong") as error:
        load(tmp_path, RACK.replace("devices = 8", "gpus = 8"))

    assert "rack-7: gpus: extra inputs are not permitted" in str(error.value)
    assert error.value.hint.startswith("fields of this row: source, date, name, kind")


def test_memory_beyond_any_machine_is_a_typing_error(tmp_path: Path) -> None:
    with raises_code("UserCatalogWrong", match="device_memory_gib"):
        load(tmp_path, RACK.replace("79.6", "1e300"))


def test_a_rack_of_amd_gpus_brings_its_formats_and_the_catalogs_figures(tmp_path: Path) -> None:
    own = load(tmp_path, AMD)
    machine = find_instance("rack-9", own.instances)
    device = accelerator_of(machine, own.accelerators)

    assert (machine.kind, machine.link) == ("amd", "Infinity Fabric")
    assert machine.formats == {"bf16", "fp16", "fp32", "fp8_w8a8", "mxfp4"}
    assert (device.bandwidth_bytes_s, device.link) == (5300e9, "xgmi")
    assert find_container(None, machine.kind).variant == "rocm"


def test_a_processor_of_ones_own_says_its_flags(tmp_path: Path) -> None:
    found = find_instance("rack-12", load(tmp_path, PROCESSOR).instances)

    assert (found.kind, found.flags) == ("cpu", ("avx2", "f16c"))


def test_flags_are_those_of_a_processor(tmp_path: Path) -> None:
    with raises_code("UserCatalogWrong", match="kind is 'cpu'"):
        load(tmp_path, RACK + 'flags = ["avx2"]\n')
