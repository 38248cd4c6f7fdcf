"""Which kind a file is, and what is read of each."""

from __future__ import annotations

import io

import javaproperties
import pytest
import yaml

from packager.addons.check.properties import read_settings
from packager.addons.check.reading import read_document
from packager.addons.check.text import NotReadable
from packager.addons.check.values import Kind
from packager.core.documents import NotStrict
from packager.core.yaml_nodes import parse_yaml
from tests.support.cases import cases_of, read_tables

cases = cases_of(__file__, "kinds")


@cases("kinds")
def test_a_file_is_known_by_its_name_and_content(name: str, text: str, kind: Kind) -> None:
    assert read_document(name, text.encode()).kind == kind


@cases("what_configures_no_server_is_refused_by_name")
def test_what_configures_no_server_is_refused_by_name(data: bytes, reason: str) -> None:
    with pytest.raises(NotReadable, match=reason) as refused:
        read_document("file", data)
    assert refused.value.exit_code == 2
    assert "'file'" in refused.value.message


def test_aliases_of_aliases_do_not_fill_the_memory() -> None:
    laughs = 'a0: &a0 ["lol"]\n' + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )

    with pytest.raises(NotStrict, match="more than 100000 values"):
        parse_yaml(laughs)


def test_yaml_reads_as_pyyaml_constructs_it() -> None:
    text = read_tables(__file__, "kinds")["yaml"]
    [node] = parse_yaml(text)
    read = yaml.safe_load(text)

    one = node.get("one")
    assert one is not None
    assert {key: value.text for key, value in one.entries().items()} == {"image": "b", "env": ""}
    assert one.value("env", "A") == str(read["one"]["env"]["A"])
    assert [one.type for one in node.listed("list")] == [
        *("bool", "int", "float", "null", "text", "text", "text")
    ]
    assert node.value("block") == read["block"]
    assert node.value("folded") == read["folded"]


@cases("properties_read_as_java_reads_them")
def test_properties_read_as_java_reads_them(text: str) -> None:
    settings, _ = read_settings("serving.properties", text.replace("\r\n", "\n"))

    expected = javaproperties.load(io.StringIO(text))
    assert {one.name: one.value for one in settings} == {
        key: value.rstrip() for key, value in expected.items()
    }


def test_places_in_properties_are_those_of_the_keys() -> None:
    settings, _ = read_settings("f", "# x\n\n  a=1 \\\n  2\nb=3")

    places = {one.name: (one.place.line, one.place.column) for one in settings}
    assert places == {"a": (3, 3), "b": (5, 1)}


def test_latin_1_is_read_as_java_reads_properties() -> None:
    document = read_document("serving.properties", b"option.model_id=caf\xe9\n")

    assert document.servers[0].properties[0].value == "café"
