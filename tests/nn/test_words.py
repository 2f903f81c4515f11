"""Words in a network: known pairs, padding and packing, and their place in a model folder."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import lightbert
from lightbert.errors import InputError
from lightbert.models import add_head
from lightbert.nn.heads import Classification
from lightbert.nn.inference import Inference
from lightbert.nn.pooling import PackedTexts
from lightbert.nn.words import SLOTS, Words


def filled(vocab: int = 50, keys: tuple[int, ...] = (5 * 50 + 6, 6 * 50 + 7, 8 * 50 + 9)) -> Words:
    words = Words(vocab, len(keys), 3)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        words.pieces.copy_(torch.rand(words.pieces.shape, generator=generator))
        words.pairs.copy_(torch.rand(words.pairs.shape, generator=generator))
        words.pairs[0] = 0
    words.set_pairs(torch.tensor(keys))
    return words


def test_scores_are_the_sum_over_pieces_and_known_pairs_divided_by_their_length():
    words = filled()
    total = words.pieces[5] + words.pieces[6] + words.pieces[8] + words.pairs[1]
    torch.testing.assert_close(words(torch.tensor([[5, 6, 8]]))[0], total[:3] / total[3].sqrt())


def test_of_pairs_in_one_slot_the_first_is_known_and_an_unknown_pair_isnt_taken_for_it():
    key = 5 * 300_000 + 6
    words = Words(300_000, 2, 1)
    rows = words.set_pairs(torch.tensor([key, key + SLOTS]))
    assert rows.tolist() == [1, 0]
    with torch.no_grad():
        words.pieces[:, 1] = words.pairs[1:] = 1.0
    first, other = divmod(key + SLOTS, 300_000)
    assert words(torch.tensor([[5, 6]])).item() > 0
    assert words(torch.tensor([[first, other]])).item() == 0


def test_a_text_has_the_same_scores_alone_padded_and_packed():
    words, texts = filled(), [[5, 6, 7], [8, 9], [6, 7, 8, 9, 5]]
    alone = torch.cat([words(torch.tensor([text])) for text in texts])
    padded = torch.zeros(3, 6, dtype=torch.int64)
    for row, text in enumerate(texts):
        padded[row, : len(text)] = torch.tensor(text)
    torch.testing.assert_close(words(padded, padded > 0), alone)
    packed = torch.tensor([[*texts[0], *texts[1], 0], [*texts[2], 0]])
    numbers = torch.tensor([[1, 1, 1, 2, 2, 0], [3, 3, 3, 3, 3, 0]])
    places = PackedTexts(torch.tensor([0, 3, 6]), torch.tensor([3, 2, 5]))
    torch.testing.assert_close(words(packed, numbers, places), alone)


def test_a_head_adds_words_to_its_logits_or_reads_them_alone():
    words, ids = filled(), torch.tensor([[5, 6, 8]])
    states = torch.rand(1, 3, 4)
    settings = {"vocab": 50, "pairs": 3}
    both, plain = Classification(4, 3, words=settings, dropout=0.0), Classification(4, 3, dropout=0.0)
    both.load_state_dict(plain.state_dict() | {f"words.{name}": value for name, value in words.state_dict().items()})
    torch.testing.assert_close(both(states, ids=ids), plain(states) + words(ids))
    alone = Classification(4, 3, words=settings, states=False)
    assert alone.words is not None
    alone.words.load_state_dict(words.state_dict())
    torch.testing.assert_close(alone(None, ids=ids), words(ids) + alone.output.bias)
    with pytest.raises(InputError, match="states=false requires words"):
        Classification(4, 3, states=False)


def test_words_are_saved_with_the_model_and_their_slots_are_checked(tmp_path: Path):
    model = lightbert.build("convbert-tiny", seed=0)
    vocab = model.table.shape[0]
    head = add_head(model, "classify", {"labels": 3, "words": {"vocab": vocab, "pairs": 3}}, seed=0)
    head.words.load_state_dict(filled(vocab, (5 * vocab + 6, 6 * vocab + 7, 8 * vocab + 9)).state_dict())
    lightbert.save(model.eval(), tmp_path / "model")
    ids = torch.tensor([[5, 6, 7]])
    loaded = lightbert.load(tmp_path / "model")
    assert torch.equal(Inference(loaded, "classify")(ids).logits, Inference(model, "classify")(ids).logits)
    file = tmp_path / "model" / "model.safetensors"
    tensors = load_file(file)
    tensors["heads.classify.words.slots"][7] = 4
    save_file(tensors, file)
    with pytest.raises(InputError, match="slots"):
        lightbert.load(tmp_path / "model")
