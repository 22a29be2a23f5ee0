"""Intervals of the logarithm of after / before, by a bootstrap of blocks of slices.

Neighbouring slices resemble each other: clients start, queues drain, and a busy host slows down all
requests for a while. So blocks of slices that follow each other are drawn: the circular block
bootstrap (Politis and Romano, 1992). Drawn alone, slices with a correlation of 0.4 have intervals
that are too narrow by a third.

There are few blocks, so the variance is an estimate with few degrees of freedom, and the quantiles
are those of Student's distribution, with the degrees of freedom of two variances together (Welch
and Satterthwaite).
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analysis.comparison.measures import Measure
from analysis.comparison.profile import BINS_PER_DECADE, LOWEST, Group

SAMPLES: Final = 4000
"""The variance of sums with a few large terms, such as bytes, needs more than 1,000."""
BLOCKS: Final = 5
"""Blocks that are drawn: a fifth of the slices each. Longer blocks would leave too few of them."""
FREEDOM: Final = 1.5 * BLOCKS - 1
"""Degrees of freedom of the variance of one capture. Overlapping blocks have one and a half times
those of separate ones (Meketon and Schmeiser, 1984)."""
SEED: Final = 20_260_101
"""The intervals of two captures are the same in each run."""

Array = NDArray[np.float64]


@cache
def draws(slices: int) -> Array:
    """How often each slice is drawn in each sample; samples x slices. The same samples
    are drawn of both captures, so that a comparison is the mirror image of the one with before and
    after swapped."""
    generator = np.random.default_rng(SEED)
    length = max(slices // BLOCKS, 1)
    blocks = generator.multinomial(BLOCKS, np.full(slices, 1 / slices), SAMPLES)
    # After the last slice, a block continues with the first one.
    drawn = np.sum([np.roll(blocks, n, axis=1) for n in range(length)], axis=0)
    scaled: Array = drawn * (slices / (length * BLOCKS))
    return scaled


def logarithms(group: Group, measure: Measure) -> Array:
    """The logarithm of a measure in each sample of the group's active slices.

    Half a unit is added to a sum, so that a measure that is 0 has a logarithm.
    """
    drawn = draws(group.active.stop - group.active.start)
    if measure.quantile is not None:
        return _quantiles(drawn, group.bins(), measure.quantile)
    top = drawn @ group.sums[measure.numerator][group.active] + 0.5
    if measure.is_rate:
        return np.log(top / group.seconds)
    return np.log(top / (drawn @ group.sums[measure.denominator][group.active] + 1))


def _quantiles(drawn: Array, bins: Array, quantile: float) -> Array:
    """The logarithm of a quantile in each sample, linear within a bin; NaN without a latency."""
    used = np.flatnonzero(bins.any(axis=0))
    begin, end = int(used[0]), int(used[-1]) + 1  # a group has far fewer bins than there are
    counts = drawn @ bins[:, begin:end]
    reached = np.cumsum(counts, axis=1)
    wanted = quantile * reached[:, -1]
    place = np.minimum((reached < wanted[:, None]).sum(axis=1), counts.shape[1] - 1)
    rows = np.arange(len(counts))
    inside = counts[rows, place]
    below = reached[rows, place] - inside
    part = np.divide(wanted - below, inside, out=np.zeros(len(counts)), where=inside > 0)
    bin_place = np.where(reached[:, -1] > 0, begin + place + part, np.nan)
    logarithm: Array = (bin_place / BINS_PER_DECADE + LOWEST) * np.log(10)
    return logarithm


def interval(center: float, samples: tuple[Array, Array], tail: float) -> tuple[float, float]:
    """The interval around `center`; `samples`: those of before and after, in logarithms.

    `tail`: the probability of each end. Only the variance of each sample counts, so the two may be
    drawn alike.
    """
    variances = np.array([np.nanvar(each) for each in samples])
    # A sample of n blocks varies by a factor of (n - 1) / n too little.
    error = float(np.sqrt(variances.sum() * BLOCKS / (BLOCKS - 1)))
    if not error:
        return center, center
    freedom = FREEDOM * float(variances.sum() ** 2 / (variances**2).sum())
    half = student_quantile(1 - tail, freedom) * error
    return center - half, center + half


def tail_of(confidence: float, comparisons: int) -> float:
    """The probability of each end of an interval, for a confidence of all comparisons together."""
    return (1 - confidence) / (2 * max(comparisons, 1))


def student_quantile(probability: float, freedom: float) -> float:
    """A quantile of Student's distribution, by the expansion in 1 / freedom of Abramowitz and
    Stegun, 26.7.5."""
    z = NormalDist().inv_cdf(probability)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / freedom**n for n, term in enumerate(terms))
