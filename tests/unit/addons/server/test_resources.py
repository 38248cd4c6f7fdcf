"""Resources of a server: unique names, pages, and what a killed server had answered."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from packager.addons.deploy.sagemaker.api_refusals import (
    ResourceInUse,
    ResourceNotFound,
    ValidationRefused,
)
from packager.addons.server.resources import Resource, ResourceQuery, ResourceStore
from tests.support.cases import cases


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResourceStore]:
    opened = ResourceStore(tmp_path / "serve" / "resources.sqlite")
    yield opened
    opened.close()


def make(store: ResourceStore, name: str, *, status: str = "", kind: str = "endpoint") -> Resource:
    return store.create(
        kind, name, {"asked": name}, arn=f"arn:aws:test:{kind}/{name}", status=status
    )


def test_what_is_created_is_found_again(store: ResourceStore) -> None:
    made = store.create(
        "model", "one", {"Image": "x"}, arn="arn:model/one", status="Ready", tags={"team": "ml"}
    )

    assert store.get("model", "one") == made
    assert (made.document, made.status, made.tags) == ({"Image": "x"}, "Ready", {"team": "ml"})
    assert store.find_arn("arn:model/one") == made
    assert store.find_arn("arn:model/two") is None


def test_a_name_is_taken_once_for_each_kind(store: ResourceStore) -> None:
    make(store, "one")
    make(store, "one", kind="model")

    with pytest.raises(ResourceInUse, match="already existing endpoint"):
        make(store, "one")


def test_of_many_that_create_one_name_one_succeeds(store: ResourceStore) -> None:
    outcomes: list[str] = []

    def create() -> None:
        try:
            make(store, "one")
            outcomes.append("made")
        except ResourceInUse:
            outcomes.append("in use")

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["in use"] * 7 + ["made"]


def test_what_is_deleted_is_gone_and_its_name_is_free(store: ResourceStore) -> None:
    make(store, "one")

    assert store.delete("endpoint", "one").name == "one"
    with pytest.raises(ResourceNotFound):
        store.get("endpoint", "one")
    with pytest.raises(ResourceNotFound):
        store.delete("endpoint", "one")
    make(store, "one")


def test_an_update_changes_what_it_names_and_the_time(store: ResourceStore) -> None:
    made = make(store, "one", status="Creating")

    changed = store.update("endpoint", "one", status="InService")

    assert (changed.status, changed.document) == ("InService", {"asked": "one"})
    assert changed.modified > made.modified
    assert changed.created == made.created


def test_an_update_from_another_status_changes_nothing(store: ResourceStore) -> None:
    made = make(store, "one", status="Deleting")

    same = store.update("endpoint", "one", status="InService", only_from=frozenset({"Creating"}))

    assert same == made == store.get("endpoint", "one")


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("sort_by", ["name", "created", "status"])
def test_pages_show_each_resource_once_while_others_come_and_go(
    store: ResourceStore, sort_by: str, descending: bool
) -> None:
    for number in range(9):
        make(store, f"n{number}", status="even" if number % 2 == 0 else "odd")
    query = ResourceQuery(kind="endpoint", sort_by=sort_by, descending=descending, most=4)  # type: ignore[arg-type]

    first = store.list(query)
    store.delete("endpoint", first.resources[-1].name)  # the token names it
    seen = [each.name for each in first.resources]
    token = first.token
    while token:
        page = store.list(
            ResourceQuery(
                kind="endpoint",
                sort_by=sort_by,  # type: ignore[arg-type]
                descending=descending,
                most=4,
                after=token,
            )
        )
        seen += [each.name for each in page.resources]
        token = page.token

    ordered = ["n0", "n2", "n4", "n6", "n8", "n1", "n3", "n5", "n7"]
    expected = ordered if sort_by == "status" else [f"n{number}" for number in range(9)]
    assert seen == (expected[::-1] if descending else expected)


def test_filters_are_all_applied(store: ResourceStore) -> None:
    first = make(store, "Llama-one", status="InService")
    second = make(store, "llama-two", status="Failed")
    make(store, "other", status="InService")

    def names(**filters: object) -> list[str]:
        page = store.list(ResourceQuery(kind="endpoint", descending=False, **filters))  # type: ignore[arg-type]
        return [each.name for each in page.resources]

    assert names(name_contains="LLAMA") == ["Llama-one", "llama-two"]
    assert names(statuses=frozenset({"InService"})) == ["Llama-one", "other"]
    assert names(created_after=first.created) == ["llama-two", "other"]
    assert names(created_before=second.created) == ["Llama-one"]
    assert names(modified_after=second.modified) == ["other"]
    assert names(modified_before=first.modified) == []
    assert names(name_contains="%") == []


@cases("a_token_that_no_list_gave_is_refused")
def test_a_token_that_no_list_gave_is_refused(store: ResourceStore, token: str) -> None:
    with pytest.raises(ValidationRefused, match="NextToken"):
        store.list(ResourceQuery(kind="endpoint", after=token))


@pytest.mark.parametrize("value", [2**63, 10**30, -1, True, None, 1.5, ["a"], {"a": 1}])
def test_a_forged_place_in_a_list_is_refused(store: ResourceStore, value: object) -> None:
    make(store, "one")
    make(store, "two")
    token = store.list(ResourceQuery(kind="endpoint", most=1)).token
    forged = {**json.loads(base64.urlsafe_b64decode(token)), "value": value}
    text = base64.urlsafe_b64encode(json.dumps(forged).encode()).decode()

    with pytest.raises(ValidationRefused, match="NextToken"):
        store.list(ResourceQuery(kind="endpoint", most=1, after=text))


def test_a_token_of_another_query_is_refused(store: ResourceStore) -> None:
    make(store, "one")
    make(store, "two")
    token = store.list(ResourceQuery(kind="endpoint", most=1)).token

    store.list(ResourceQuery(kind="endpoint", most=2, after=token))  # a page may have another size
    for other in (
        ResourceQuery(kind="model", after=token),
        ResourceQuery(kind="endpoint", descending=False, after=token),
        ResourceQuery(kind="endpoint", name_contains="o", after=token),
    ):
        with pytest.raises(ValidationRefused, match="other filters"):
            store.list(other)


def test_another_process_sees_what_was_answered(store: ResourceStore, tmp_path: Path) -> None:
    made = make(store, "one")

    other = ResourceStore(tmp_path / "serve" / "resources.sqlite")  # as after a kill: no close

    assert other.get("endpoint", "one") == made
    other.close()
