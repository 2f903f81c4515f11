"""Small prepared folders written directly from ids, for tests that need no text."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from lightbert.data.shards import FORMAT, Block, FileRecord, Manifest, ShardWriter, write_manifest

Documents = Sequence[Sequence[Sequence[int]]]
VOCAB = 64


def block(documents: Documents) -> Block:
    sentences = [sentence for document in documents for sentence in document]
    return Block(
        tokens=np.array([token for sentence in sentences for token in sentence], np.uint16),
        sentences=np.array([len(sentence) for sentence in sentences], np.uint32),
        documents=np.array([len(document) for document in documents], np.uint32),
    )


def write_folder(folder: Path, shards: Sequence[Documents], held_out: Documents = ()) -> Path:
    """Write a prepared folder of shards, each a list of documents, each a list of sentences, each a list of ids."""
    folder.mkdir(parents=True)
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {name: index for index, name in enumerate([*specials, *(f"w{i}" for i in range(5, VOCAB))])}
    Tokenizer(WordPiece(vocabulary, unk_token="[UNK]")).save(str(folder / "tokenizer.json"))
    records = []
    for split, group in (("train", shards), ("held-out", [held_out] if held_out else [])):
        for number, documents in enumerate(group):
            writer = ShardWriter(folder, f"{split}-00000-{number:05d}", split, "uint16")
            writer.append(block(documents))
            records.append(writer.close())
    tokenizer = {"tokenizer.json": FileRecord.of(folder / "tokenizer.json")}
    write_manifest(folder, Manifest(FORMAT, "uint16", VOCAB, {}, tokenizer, tuple(records)))
    return folder


@pytest.fixture
def folder_of(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes the given shards under `tmp_path/prepared`."""
    return lambda shards, held_out=(): write_folder(tmp_path / "prepared", shards, held_out)
