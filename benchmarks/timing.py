"""Rates of several candidates, measured alternately: what disturbs the machine for a while disturbs all of them."""

from collections.abc import Callable, Mapping
from statistics import median

from lightbert.progress import progress

Candidates = Mapping[str, Callable[[int], float]]
"""Name -> function that measures a rate, given the number of the round."""


def medians(label: str, candidates: Candidates, rounds: int) -> dict[str, float]:
    """Measure all candidates in each round, and return the median rate of each."""
    rates: dict[str, list[float]] = {name: [] for name in candidates}
    with progress(label, total=rounds * len(candidates), unit="runs") as bar:
        for number in range(rounds):
            for name, measure in candidates.items():
                rates[name].append(measure(number))
                bar.advance()
    return {name: median(measured) for name, measured in rates.items()}
