"""A tokenizer that is trained in another process: the same bytes, and one sentence for each way in which it fails."""

import signal
from pathlib import Path

import pytest

from lightbert.data.corpus import training_process, vocabulary
from lightbert.data.corpus.training_process import train, write_texts
from lightbert.errors import InputError
from lightbert.processes import ProcessFailedError

TEXTS = ["some words, more words\r\nand a line", "naïve “words”\u2028\x85 again", "the rest"] * 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    assert write_texts(tmp_path / "texts", TEXTS) == len(TEXTS)
    return tmp_path / "texts"


def trained(file: Path) -> str:
    return train(file, "wordpiece", 100, lowercase=True, report=lambda done: None).to_str()


@pytest.mark.parametrize("model", ["wordpiece", "unigram"])
@pytest.mark.parametrize("lowercase", [True, False])
def test_the_tokenizer_is_that_of_training_in_the_same_process(
    file: Path, model: vocabulary.Model, lowercase: bool
) -> None:
    seen: list[int] = []
    found = train(file, model, 100, lowercase=lowercase, report=seen.append)
    assert found.to_str(pretty=True) == vocabulary.train(TEXTS, model, 100, lowercase=lowercase).to_str(pretty=True)
    assert seen[-1] == vocabulary.PASSES[model] * len(TEXTS)


def test_bad_input_is_the_same_sentence(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts", [" "])
    with pytest.raises(InputError, match=r"^training a tokenizer requires text, but the sources have none"):
        trained(tmp_path / "texts")


class Calls:
    """Stands in for `call`: raises the given errors, then returns a tokenizer."""

    def __init__(self, *errors: ProcessFailedError) -> None:
        self.errors, self.environments = list(errors), []

    def __call__(self, *_: object, environment: dict[str, str], **__: object) -> str:
        self.environments.append(environment)
        if self.errors:
            raise self.errors.pop(0)
        return vocabulary.train(TEXTS, "wordpiece", 100).to_str()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch):
    def replace(*errors: ProcessFailedError) -> Calls:
        replaced = Calls(*errors)
        monkeypatch.setattr(training_process, "call", replaced)
        return replaced

    return replace


ABORTED = ProcessFailedError(-signal.SIGABRT, "memory allocation of 2147483648 bytes failed")
NO_THREADS = ProcessFailedError(1, "PanicException: ThreadPoolBuildError { kind: IOError }")
KILLED = ProcessFailedError(-signal.SIGKILL, "")


@pytest.mark.parametrize("failure", [ABORTED, NO_THREADS])
def test_a_second_process_uses_one_thread(file: Path, calls, failure: ProcessFailedError) -> None:
    made = calls(failure)
    assert trained(file) == vocabulary.train(TEXTS, "wordpiece", 100).to_str()
    assert made.environments == [{}, {"TOKENIZERS_PARALLELISM": "false"}]


@pytest.mark.parametrize(
    ("failure", "how"),
    [
        (ABORTED, "was ended by SIGABRT: the memory of this machine is not sufficient, 2 GiB were requested ("),
        (NO_THREADS, "failed: the memory of this machine is not sufficient ("),
        (KILLED, "was ended by SIGKILL: the memory of this machine is not sufficient ("),
    ],
)
def test_a_process_without_memory_is_one_sentence(file: Path, calls, failure: ProcessFailedError, how: str) -> None:
    calls(failure, failure)
    with pytest.raises(InputError) as caught:
        trained(file)
    assert str(caught.value).startswith(f"the training of the tokenizer {how}")
    assert str(caught.value).endswith("); use a machine with more memory, or give a tokenizer with --tokenizer")


def test_a_bug_is_not_reported_as_lack_of_memory(file: Path, calls) -> None:
    calls(ProcessFailedError(1, "KeyError: 'a bug'"))
    with pytest.raises(RuntimeError, match="a bug"):
        trained(file)
