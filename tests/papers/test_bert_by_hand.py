"""The shared functions of `papers`, compared with numbers worked out by hand."""

import math

import torch
from torch import tensor

from lightbert.papers.bert import attend, content_scores, embed, mlm_logits, positions, rtd_logits, split, under


def test_under_keeps_the_weights_below_a_whole_name() -> None:
    weights = {
        "blocks.1.norm.bias": tensor(1.0),
        "blocks.10.norm.bias": tensor(2.0),
        "embeddings.norm.bias": tensor(3.0),
    }
    assert under(weights, "blocks.1") == {"norm.bias": tensor(1.0)}


def test_heads_are_contiguous_channels() -> None:
    x = tensor([[[1.0, 2.0, 3.0, 4.0]]])
    assert split(x, 2).tolist() == [[[[1.0, 2.0]], [[3.0, 4.0]]]]


def test_content_scores_are_scaled_by_the_root_of_the_head_width() -> None:
    query = tensor([1.0, 2.0, 0.0, 0.0]).reshape(1, 1, 1, 4)
    key = tensor([[3.0, 1.0, 9.0, 9.0], [0.0, 4.0, 0.0, 0.0]]).reshape(1, 1, 2, 4)
    assert content_scores(query, key).tolist() == [[[[2.5, 4.0]]]]


def test_attention_never_reads_a_padded_key() -> None:
    scores = tensor([0.0, math.log(3.0), 50.0]).expand(1, 1, 3, 3)
    value = tensor([[4.0], [8.0], [1000.0]]).reshape(1, 1, 3, 1)
    keep = tensor([[True, True, False]])
    torch.testing.assert_close(attend(scores, value, keep[:, None, None]), torch.full((1, 3, 1), 7.0))


def test_a_row_of_padding_stays_finite() -> None:
    out = attend(torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 1), torch.zeros(1, 1, 1, 2, dtype=torch.bool))
    assert out.isfinite().all()


def test_positions_count_real_tokens_only() -> None:
    assert positions(tensor([[True, True, True], [False, True, True]])).tolist() == [[0, 1, 2], [0, 0, 1]]


def test_embeddings_add_word_segment_and_position_then_normalize_then_project() -> None:
    weights = {
        "embeddings.word.weight": tensor([[0.0, 0.0], [1.0, 4.0]]),
        "embeddings.segment.weight": tensor([[0.0, 0.0], [2.0, 0.0]]),
        "embeddings.position.weight": tensor([[0.0, 2.0], [0.0, 10.0]]),
        "embeddings.norm.weight": tensor([2.0, 5.0]),
        "embeddings.norm.bias": tensor([1.0, 0.0]),
        "embeddings.project.weight": tensor([[1.0, 1.0]]),
        "embeddings.project.bias": tensor([0.5]),
    }
    # The first token sums to (3, 6), which normalizes to (-1, 1), and is scaled and shifted to (-1, 5).
    # The second token is (0, 10), with the same (-1, 5).
    ids, segments = tensor([[1, 0]]), tensor([[1, 0]])
    out = embed(weights, ids, segments, torch.ones_like(ids, dtype=torch.bool), eps=0.0)
    torch.testing.assert_close(out, tensor([[[4.5], [4.5]]]))


def test_mlm_logits_use_the_word_table_and_the_extra_columns() -> None:
    weights = {
        "embeddings.word.weight": tensor([[1.0], [2.0], [3.0]]),
        "heads.mlm.transform.weight": tensor([[1.0], [-1.0]]),
        "heads.mlm.transform.bias": tensor([0.0, 0.0]),
        "heads.mlm.norm.weight": tensor([1.0, 1.0]),
        "heads.mlm.norm.bias": tensor([0.0, 0.0]),
        "heads.mlm.bias": tensor([0.0, 0.5, 0.0]),
        "heads.mlm.extra": tensor([[10.0], [20.0], [40.0]]),
    }
    # relu(6, -6) = (6, 0), which normalizes to (1, -1).
    logits = mlm_logits(weights, tensor([[[6.0]]]), activation="relu", eps=0.0)
    torch.testing.assert_close(logits, tensor([[[1.0 - 10.0, 2.5 - 20.0, 3.0 - 40.0]]]))


def test_rtd_gives_one_logit_for_each_token() -> None:
    weights = {
        "heads.rtd.dense.weight": tensor([[2.0]]),
        "heads.rtd.dense.bias": tensor([-1.0]),
        "heads.rtd.output.weight": tensor([[3.0]]),
        "heads.rtd.output.bias": tensor([0.25]),
    }
    logits = rtd_logits(weights, tensor([[[1.0], [-1.0]]]), activation="relu")
    assert logits.tolist() == [[3.25, 0.25]]
