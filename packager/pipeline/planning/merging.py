"""What a plan says of an adapter that is folded into the model's weights."""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.optimize.merge.files import merge_seconds
from packager.optimize.steps.report import duration


def check_merged(facts: Facts) -> Iterator[Finding]:
    """Yield what merging means, and why it cannot be done where weights are not written."""
    adapter, request = facts.merged, facts.request
    if adapter is None:
        return
    if request.weights == "mounted" and not facts.writes_tree:
        message = f"--merge-adapter {adapter.name} writes weights, and mounted ones are not written"
        hint = "leave --weights out, or write a directory: --output dir:PLACE"
        yield Finding("error", "adapter-merge-mounted", message, hint)
    seconds = duration(merge_seconds(facts.model, adapter))
    message = (
        f"the adapter {adapter.name!r} (rank {adapter.max_rank}, {len(adapter.modules)} modules) "
        f"is folded into the weights while they are read: about {seconds} of processor time; "
        "the image serves it alone, not the base"
    )
    yield Finding("note", "adapter-merged", message)
    if facts.draft is not None:
        message = (
            f"the draft proposes what the base would say, and the adapter {adapter.name!r} changes "
            "that: fewer of its tokens are accepted"
        )
        hint = "measure it: `packager draft measure`"
        yield Finding("note", "adapter-merge-draft", message, hint)
