"""Bytes that bars of a hub's client stand for."""

from __future__ import annotations

from packager.models.hub_progress import progress_bar_class, told_after


def test_bytes_of_an_earlier_download_are_told_apart() -> None:
    seen: list[tuple[int, int, int]] = []
    bar = progress_bar_class(lambda done, size, kept=0: seen.append((done, size, kept)), 100)

    with bar(total=60, initial=40, unit="B") as one, bar(total=40, unit="B") as other:
        one.update(10)
        other.update(40)
        one.update(10)

    assert seen == [(50, 100, 40), (90, 100, 40), (100, 100, 40)]


def test_a_file_that_is_downloaded_again_goes_on_where_the_others_ended() -> None:
    seen: list[tuple[int, int]] = []
    tell = told_after(lambda done, size, kept=0: seen.append((done, size)), 100)

    tell(3, 7)

    assert seen == [(103, 107)]
