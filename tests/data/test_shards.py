"""Reading and writing token shards."""

import json
import pickle
import time

import numpy as np
import pytest

from lightbert import files
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.files import sha256

TRAIN = [[[[5, 6, 7], [8]], [[9, 10]]], [[[11]], [[12, 13], [14, 15, 16], [17]]]]
HELD_OUT = [[[20, 21]]]


def as_lists(shards):
    return [[sentence.tolist() for sentence in shards.document(i).sentences] for i in range(shards.n_documents)]


def test_documents_are_read_in_order_across_shards_and_the_held_out_split_is_separate(folder_of):
    shards = Shards.open(folder_of(TRAIN, HELD_OUT))
    assert as_lists(shards) == [document for shard in TRAIN for document in shard]
    assert (shards.n_documents, shards.n_sentences, shards.n_tokens) == (4, 7, 13)
    assert as_lists(Shards.open(shards.folder, "held-out")) == HELD_OUT
    # Offsets count from the start of the document.
    document = shards.document(3)
    assert document.offsets.tolist() == [0, 2, 5, 6]
    assert document.tokens.tolist() == [12, 13, 14, 15, 16, 17]
    assert document.tokens.dtype == np.uint16
    for index in (-1, 4):
        with pytest.raises(IndexError):
            shards.document(index)


def test_pickling_stores_the_path_and_not_the_tokens(folder_of):
    shards = Shards(folder_of(TRAIN, HELD_OUT), "held-out")
    copy = pickle.loads(pickle.dumps(shards))
    assert len(pickle.dumps(shards)) < 1000
    assert as_lists(copy) == HELD_OUT


def test_a_folder_that_is_not_whole_is_an_input_error(folder_of, tmp_path):
    with pytest.raises(InputError, match=r"has no manifest\.json"):
        Shards(tmp_path)
    folder = folder_of(TRAIN)
    with pytest.raises(InputError, match="no held-out documents"):
        Shards(folder, "held-out")
    manifest = (folder / "manifest.json").read_text()
    for content, problem in (
        ("[" * 100_000, r"manifest\.json' is damaged"),
        (json.dumps({**json.loads(manifest), "format": 2}), "must have format 1, got 2"),
    ):
        (folder / "manifest.json").write_text(content)
        with pytest.raises(InputError, match=problem):
            Shards(folder)
    (folder / "manifest.json").write_text(manifest)
    (folder / "train-00000-00001.sentences.bin").unlink()
    with pytest.raises(InputError, match=r"train-00000-00001\.sentences\.bin' is listed in the manifest but missing"):
        Shards(folder)


def files_of(folder):
    return sorted(folder.iterdir())


def test_opening_detects_every_truncated_file(folder_of):
    folder = folder_of(TRAIN, HELD_OUT)
    for path in files_of(folder):
        whole = path.read_bytes()
        for length in np.unique(np.linspace(0, len(whole) - 1, 64).astype(int)).tolist():
            path.write_bytes(whole[:length])
            with pytest.raises(InputError, match=r"damaged|must have \d+ bytes"):
                Shards(folder)
        path.write_bytes(whole)
    Shards.open(folder)


@pytest.mark.parametrize("flips", [15, pytest.param(1000, marks=pytest.mark.prove)])
def test_verification_detects_every_flipped_bit(folder_of, flips):
    folder = folder_of(TRAIN, HELD_OUT)
    generator = np.random.default_rng(0)
    for path in files_of(folder):
        whole = path.read_bytes()
        bits = generator.choice(len(whole) * 8, size=min(len(whole) * 8, flips), replace=False).tolist()
        for bit in bits:
            broken = bytearray(whole)
            broken[bit // 8] ^= 1 << bit % 8
            path.write_bytes(broken)
            with pytest.raises(InputError):
                Shards.open(folder)
        path.write_bytes(whole)
    Shards.open(folder)


def test_files_are_hashed_once_and_again_when_they_change_or_on_request(folder_of, monkeypatch):
    folder = folder_of(TRAIN, HELD_OUT)
    monkeypatch.setattr(files, "_SECONDS_UNTIL_SETTLED", 0.05)
    time.sleep(0.1)
    Shards.open(folder)
    monkeypatch.setattr(files, "sha256", lambda path: pytest.fail(f"{path} was read again"))
    Shards.open(folder)
    read = []
    monkeypatch.setattr(files, "sha256", lambda path: read.append(path) or sha256(path))
    Shards.open(folder, again=True)
    assert len(read) == len(files_of(folder)) - 1
    path = folder / "train-00000-00000.tokens.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with pytest.raises(InputError, match="is damaged: its hash does not match the manifest"):
        Shards.open(folder)
