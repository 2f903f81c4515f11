"""A batch that can't fit into memory is an error before it is assembled."""

from pathlib import Path

import pytest
from tiny_runs import recipe_of, train

from lightbert.errors import InputError
from lightbert.train import corpus_run


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("keys", "remedy"),
    [
        ({"batch": 10**8}, "lower batch= or length=, raise accumulate=, or choose a smaller model="),
        # Parts of a batch need less memory for states, but the ids of the whole batch are assembled.
        ({"batch": 10**8, "accumulate": 10**6}, "lower batch= or length="),
    ],
    ids=["states", "ids"],
)
def test_a_batch_that_exceeds_all_memory_is_an_error_at_once(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, int], remedy: str
) -> None:
    monkeypatch.setattr(corpus_run, "machine_memory", lambda: 2**33 if "accumulate" in keys else 2**34)
    with pytest.raises(InputError, match="memory of this machine is not sufficient: a step requires at least") as it:
        train(recipe_of(corpus, tmp_path, objective="mlm", **keys))
    assert str(it.value).endswith(f"GiB in total; {remedy}")


def test_a_machine_that_does_not_tell_its_memory_trains(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_run, "machine_memory", lambda: None)
    assert train(recipe_of(corpus, tmp_path, objective="mlm", steps=1)).finished
