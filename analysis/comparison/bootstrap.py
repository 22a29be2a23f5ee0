"""Intervals of the logarithm of after / before, by a bootstrap of slices."""

from __future__ import annotations

from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analysis.comparison.measures import Measure
from analysis.comparison.profile import BINS_PER_DECADE, LOWEST, SLICES, Group

SAMPLES: Final = 4000
"""The variance of sums with a few large terms, such as bytes, needs more than 1,000."""
SEED: Final = 20_260_101
"""The intervals of two captures are the same in each run."""

Array = NDArray[np.float64]


def draws() -> Array:
    """How often each slice is drawn in each sample. The same samples are drawn of both captures, so
    that a comparison is the mirror image of the one with before and after swapped."""
    generator = np.random.default_rng(SEED)
    return generator.multinomial(SLICES, np.full(SLICES, 1 / SLICES), SAMPLES).astype(float)


def logarithms(group: Group, measure: Measure, drawn: Array, seconds: float) -> Array:
    """The logarithm of a measure in each sample; ``drawn`` has a row for each sample.

    Half a unit is added to a sum, so that a measure that is 0 has a logarithm.
    """
    if measure.quantile is not None:
        return _quantiles(drawn, group.bins(), measure.quantile)
    top = drawn @ group.sums[measure.numerator] + 0.5
    if measure.is_rate:
        return np.log(top / seconds)
    return np.log(top / (drawn @ group.sums[measure.denominator] + 1))


def _quantiles(drawn: Array, bins: Array, quantile: float) -> Array:
    """The logarithm of a quantile in each sample, linear within a bin."""
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
    # A sample without a latency has the lowest one.
    bin_place = np.where(reached[:, -1] > 0, begin + place + part, 0)
    logarithm: Array = (bin_place / BINS_PER_DECADE + LOWEST) * np.log(10)
    return logarithm


def interval(center: float, samples: tuple[Array, Array], z: float) -> tuple[float, float]:
    """The interval around `center`; `samples`: those of before and after, in logarithms.

    Only the variance of each counts, so the two may be drawn alike.
    """
    before, after = samples
    # A sample of n slices varies by a factor of (n - 1) / n too little.
    error = float(np.sqrt((before.var() + after.var()) * SLICES / (SLICES - 1)))
    return center - z * error, center + z * error


def z_of(confidence: float, comparisons: int) -> float:
    """The number of standard errors for a confidence of all comparisons together."""
    return NormalDist().inv_cdf(1 - (1 - confidence) / (2 * max(comparisons, 1)))
