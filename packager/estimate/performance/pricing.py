"""Dollars per million tokens, by each formula that is in use, always labelled.

An instance costs money by the hour, so a price of tokens is the hour's price
over the tokens of an hour.  The formulas differ in how they count tokens:

F1  concurrency / p50 time between tokens.  It leaves the prompt's time out,
    and with a draft it shows no gain when the time is taken between *chunks*:
    a chunk then holds several tokens.  Give it the time per output token.
F2  output tokens of a request / its latency x concurrency.
F3  output tokens of all requests / duration of the run.  The default here.

F1 is from "Achieve up to ~2x higher throughput while reducing costs by ~50%
for generative AI inference on Amazon SageMaker with the new inference
optimization toolkit", part 1; F2 from its update; F3 from the evaluation page
of the SageMaker documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Formula = Literal["F1", "F2", "F3"]

LABELS: dict[Formula, str] = {
    "F1": "concurrency / time between tokens",
    "F2": "tokens of a request / its latency x concurrency",
    "F3": "output tokens / duration",
}

BLENDED_INPUT_PER_OUTPUT = 3.0  # what both announcements assume
TOKENS = 1e6
HOUR_S = 3600
MONTH_H = 730  # a year's 8,760 hours by twelve


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrices:
    """US dollars per million tokens of one run.

    `input` and `output` each charge the whole instance to one stream of tokens,
    as SageMaker's evaluation does: they must never be added.
    """

    formula: Formula
    output_tokens_s: float
    input_tokens_s: float
    input: float  # 0.0 when the prompts are not known
    output: float
    total: float  # of prompt and answer tokens together, in the mix that was measured
    blended: float  # three prompt tokens to one of the answer, the prompt for free
    discount: float = 0.0


def tokens_s_by_gap(concurrency: int, token_gap_s: float) -> float:
    """F1: output tokens per second. `token_gap_s` is the p50 time per output token."""
    return concurrency / token_gap_s


def tokens_s_by_latency(
    concurrency: int, output_tokens_per_request: float, latency_s: float
) -> float:
    """F2: output tokens per second, from what one client sees."""
    return output_tokens_per_request / latency_s * concurrency


def price_per_million(usd_hour: float, tokens_s: float, *, discount: float = 0.0) -> float:
    """Charge the instance to one stream of tokens. `discount` 0.26 takes 26 % off."""
    return (1 - discount) * usd_hour / (tokens_s * HOUR_S / TOKENS)


def mixed_price(
    usd_hour: float, output_tokens_s: float, input_per_output: float, *, discount: float = 0.0
) -> float:
    """Spread the output price over a mix of tokens, with prompt tokens for free.

    With the mix that was measured, this is the price of all tokens together.
    """
    output = price_per_million(usd_hour, output_tokens_s, discount=discount)
    return output / (1 + input_per_output)


def blended_price(usd_hour: float, output_tokens_s: float, *, discount: float = 0.0) -> float:
    """Spread the output price over three prompt tokens and one of the answer."""
    return mixed_price(usd_hour, output_tokens_s, BLENDED_INPUT_PER_OUTPUT, discount=discount)


def make_prices(
    usd_hour: float,
    *,
    formula: Formula,
    output_tokens_s: float,
    input_per_output: float = 0.0,
    discount: float = 0.0,
) -> TokenPrices:
    """Compute every price of one throughput.

    `input_per_output` is the measured mix: 622 prompt tokens to 250 are 2.488.
    """
    input_tokens_s = output_tokens_s * input_per_output
    output = price_per_million(usd_hour, output_tokens_s, discount=discount)
    return TokenPrices(
        formula=formula,
        output_tokens_s=output_tokens_s,
        input_tokens_s=input_tokens_s,
        input=output / input_per_output if input_per_output else 0.0,
        output=output,
        total=mixed_price(usd_hour, output_tokens_s, input_per_output, discount=discount),
        blended=blended_price(usd_hour, output_tokens_s, discount=discount),
        discount=discount,
    )


def price_per_month(usd_hour: float, *, discount: float = 0.0) -> float:
    """Return what a machine costs that is always on. `discount` 0.26 takes 26 % off."""
    return (1 - discount) * usd_hour * MONTH_H
