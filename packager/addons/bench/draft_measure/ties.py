"""Ties: where the plain server's own choice depends on rounding.

With a draft several tokens are computed at once, else one at a time.  Kernels add in another order
for either, so that both servers are right if two tokens are equally likely.  The text after such a
place is not comparable.

The plain server is queried again for the probabilities of the one token after the prompt and the
common beginning of both answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from packager.addons.bench.draft_measure.servers import OpenServer
from packager.core.probes import ProbeResponse
from packager.core.speculation import Verdict

Chances = Mapping[int, float]  # log-probabilities of the best tokens, by token


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """Why two answers diverge, and by how many nats."""

    verdict: Verdict
    gap: float | None = None


Weigh = Callable[
    [ProbeResponse, ProbeResponse], Weighed
]  # the answer with the draft, and the plain one


def weigh_with(plain: OpenServer, noise: float) -> Weigh:
    """Return the request to the plain server for the token where two answers differ."""

    def weigh(ours: ProbeResponse, theirs: ProbeResponse) -> Weighed:
        place = parting(ours.token_ids, theirs.token_ids)
        if not (ours.token_ids and theirs.token_ids and theirs.prompt_token_ids):
            return Weighed(verdict="unknown")
        before = (*theirs.prompt_token_ids, *theirs.token_ids[:place])
        chances = plain.server.next_token_chances(before, plain.model)
        return judge(chances, _token(ours, place), _token(theirs, place), noise)

    return weigh


def judge(chances: Chances, ours: int | None, theirs: int | None, noise: float) -> Weighed:
    """Compare the probabilities of two tokens with the best one's; None is the end of an answer.

    No server reports the token that ends an answer.  The best remaining one counts as it.
    """
    best = sorted(chances, key=lambda token: -chances[token])
    if len(best) < 2 or (ours is None and theirs is None):
        return Weighed(verdict="unknown")
    known = [token for token in (ours, theirs) if token is not None]
    left = [token for token in best if token not in known]
    chosen = known if len(known) > 1 else [*known, left[0]]
    if any(token not in chances for token in chosen):
        return Weighed(verdict="difference")
    gap = chances[best[0]] - min(chances[token] for token in chosen)
    return Weighed(verdict="tie" if gap <= noise else "difference", gap=round(gap, 4))


def parting(ours: Sequence[object], theirs: Sequence[object]) -> int:
    """Return the first place where two sequences differ, or where the shorter one ends."""
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return place
    return min(len(ours), len(theirs))


def _token(answer: ProbeResponse, place: int) -> int | None:
    return answer.token_ids[place] if place < len(answer.token_ids) else None
