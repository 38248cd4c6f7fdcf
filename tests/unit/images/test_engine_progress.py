"""Progress of an engine never falls, whatever the engine says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from packager.cli.meter import Meter
from packager.core.events import Event, StepEvent
from packager.core.image import SealedImage
from packager.images.daemon.sink import _EngineProgress

SIZES = {"a" * 12: 600, "b" * 12: 0, "c" * 12: 10**12}
STATUSES = (
    *("Pulling fs layer", "Waiting", "Downloading", "Verifying Checksum", "Download complete"),
    *("Extracting", "Pull complete", "Already exists", "Loading layer", "Retrying in 5 seconds", 7),
)
NUMBERS = st.one_of(st.integers(-(10**13), 10**13), st.none(), st.just("5"), st.booleans())
MESSAGES = st.one_of(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from([*SIZES, "unknown"]),
            "status": st.sampled_from(STATUSES),
            "progressDetail": st.one_of(
                st.fixed_dictionaries({"current": NUMBERS, "total": NUMBERS}), st.none()
            ),
        }
    ),
    st.just({}),
    st.just("not an object"),
)


@settings(max_examples=200, deadline=None)
@given(messages=st.lists(cast("st.SearchStrategy[Any]", MESSAGES), max_size=30))
def test_no_messages_of_an_engine_make_progress_fall(messages: list[Any]) -> None:
    seen: list[Event] = []
    progress = _EngineProgress("team/m:1", seen.append)
    layers = [SimpleNamespace(digest=f"sha256:{name:0<64}", size=SIZES[name]) for name in SIZES]

    progress.begin(cast("SealedImage", SimpleNamespace(layers=layers, config=b"{}")))
    for message in messages:
        progress.take(message)
    progress.end()

    steps = [event for event in seen if isinstance(event, StepEvent)]
    done = [event.done for event in steps]
    kept = [event.kept for event in steps]
    assert (done, kept) == (sorted(done), sorted(kept))
    assert {event.size for event in steps} == {sum(SIZES.values())}
    assert all(0 <= event.kept <= event.done for event in steps)
    assert done[-1] == steps[-1].size
    meter = Meter(0.0)
    for at, event in enumerate(steps):
        meter.take(event, float(at))
        for step in meter.snapshot(float(at)).steps:
            assert step.rate is None or step.rate >= 0
