"""Intervals by a bootstrap of blocks of slices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.comparison import bootstrap
from analysis.comparison.measures import MEASURES
from analysis.comparison.profile import (
    BINS_PER_DECADE,
    LOWEST,
    NO_LATENCIES,
    SLICES,
    SUMS,
    Group,
)


@given(st.lists(st.floats(0.01, 1e5), min_size=1, max_size=50), st.sampled_from([0.5, 0.95]))
def test_quantiles_of_bins_are_those_of_the_values(values: list[float], quantile: float) -> None:
    places = np.floor((np.log10(values) - LOWEST) * BINS_PER_DECADE).astype(int)
    bins, counts = np.unique(places, return_counts=True)
    latencies = np.array([np.zeros_like(bins), bins, counts])
    sums = {name: np.zeros(SLICES) for name in SUMS} | {"requests": np.eye(SLICES)[0]}
    measure = next(each for each in MEASURES if each.quantile == quantile)
    logarithms = bootstrap.logarithms(Group(sums, latencies, {}, 1.0), measure) / np.log(10)
    expected = np.quantile(values, quantile, method="inverted_cdf")
    assert logarithms == pytest.approx(np.log10(expected), abs=1.01 / BINS_PER_DECADE)


def rates(generator: np.random.Generator, correlation: float) -> tuple[np.ndarray, np.ndarray]:
    """Samples of the logarithm of a rate before and after, which are equal: requests of slices,
    with this correlation of slices that follow each other."""
    samples = []
    for _ in range(2):
        sums = {name: np.zeros(SLICES) for name in SUMS}
        deviation = generator.normal()
        for n in range(SLICES):
            step = generator.normal() * np.sqrt(1 - correlation**2)
            deviation = correlation * deviation + step
            sums["requests"][n] = 1000 + 100 * deviation
        samples.append(bootstrap.logarithms(Group(sums, NO_LATENCIES, {}, 1.0), MEASURES[4]))
    return samples[0], samples[1]


@pytest.mark.parametrize("correlation", [0.0, 0.4])
def test_intervals_of_slices_that_resemble_their_neighbours(correlation: float) -> None:
    """The variance of a mean of n values is that of one, times (1 + r) / (1 - r) / n, for a first
    order autoregression with the coefficient r."""
    generator = np.random.default_rng(1)
    tail = 0.01
    ratios = []
    for _ in range(60):
        low, high = bootstrap.interval(0.0, rates(generator, correlation), tail)
        ratios.append((high - low) / 2)
    error = 0.1 * np.sqrt(2 * (1 + correlation) / (1 - correlation) / SLICES)
    quantile = bootstrap.student_quantile(1 - tail, 2 * bootstrap.FREEDOM)
    assert np.mean(ratios) / quantile == pytest.approx(error, rel=0.15)


@pytest.mark.parametrize(
    ("probability", "freedom", "quantile"),
    [(0.975, 10, 2.228), (0.999, 13, 3.852), (0.9995, 8, 5.041), (0.995, 30, 2.750)],
)
def test_quantiles_of_students_distribution(
    probability: float, freedom: float, quantile: float
) -> None:
    """The values of printed tables."""
    assert bootstrap.student_quantile(probability, freedom) == pytest.approx(quantile, rel=0.005)


def test_a_sample_of_slices_without_latencies_has_no_quantile() -> None:
    """A client with responses in a fourth of its time: a sample may lack them."""
    slices = np.arange(5)
    latencies = np.array([slices, np.full(5, 100), np.full(5, 20)])
    group = Group({name: np.ones(SLICES) for name in SUMS}, latencies, {}, 1.0)
    measure = next(each for each in MEASURES if each.quantile is not None)
    sample = bootstrap.logarithms(group, measure)
    assert np.isnan(sample).any()
    assert bootstrap.interval(0.0, (sample, sample), 0.01) == pytest.approx((0.0, 0.0))
