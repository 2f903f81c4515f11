"""Trains a tokenizer in a process of its own, because the library aborts or hangs when there is too little memory."""

import json
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from lightbert.data.corpus import vocabulary
from lightbert.errors import InputError, describe_memory, is_out_of_memory
from lightbert.processes import ProcessFailedError, Report, call

_SECONDS_BETWEEN_REPORTS = 0.1
_ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false"}


def write_texts(path: Path, texts: Iterable[str]) -> int:
    """Write the texts for `train` to a file and return their number."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps(text, ensure_ascii=False) + "\n")
            count += 1
    return count


def train(path: Path, model: vocabulary.Model, vocab_size: int, *, lowercase: bool, report: Report) -> Tokenizer:
    """Train a tokenizer on the texts of a file in another process; see `vocabulary.train`.

    report: called with the number of texts read so far, in `vocabulary.PASSES` passes.
    """
    arguments = [str(path), model, vocab_size, lowercase]
    try:
        try:
            content = call(f"{__name__}:train_here", arguments, report=report, environment={})
        except ProcessFailedError as error:
            if error.code == -signal.SIGKILL or not _is_memory(error):
                raise
            # Perhaps it is enough for one thread.
            content = call(f"{__name__}:train_here", arguments, report=report, environment=_ONE_THREAD)
    except ProcessFailedError as error:
        raise _explain(error) from error
    return Tokenizer.from_str(content)


def train_here(report: Report, path: str, model: vocabulary.Model, vocab_size: int, lowercase: bool) -> str:
    """Train a tokenizer in this process and return its tokenizer.json."""
    with Path(path).open(encoding="utf-8") as file:
        texts = [json.loads(line) for line in file]
    done, reported = 0, time.monotonic()

    def watch(texts: Sequence[str]) -> Iterator[str]:
        nonlocal done, reported
        for text in texts:
            yield text
            done += 1
            if time.monotonic() - reported >= _SECONDS_BETWEEN_REPORTS:
                reported = time.monotonic()
                report(done)
        report(done)

    return vocabulary.train(texts, model, vocab_size, lowercase=lowercase, watch=watch).to_str()


def _is_memory(error: ProcessFailedError) -> bool:
    """Return whether the process failed for lack of memory: a library that aborts doesn't always say why."""
    return error.code < 0 or is_out_of_memory(RuntimeError(error.printed))


def _explain(error: ProcessFailedError) -> Exception:
    if not _is_memory(error):
        return RuntimeError(f"the training of the tokenizer failed:\n{error.printed}")
    how = f"was ended by {signal.Signals(-error.code).name}" if error.code < 0 else "failed"
    return InputError(
        f"the training of the tokenizer {how}: {describe_memory(error.printed)}; use a machine with more memory, or "
        "give a tokenizer with --tokenizer"
    )
