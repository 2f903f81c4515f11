"""The model of step time: its points are those of lab/LOG.md, its errors are small, its page is up to date."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from benchmarks.pages import run_main
from benchmarks.scaling import (
    LARGE,
    Shape,
    Workload,
    _models,
    demand,
    fit,
    main,
    page,
    passes,
    points,
    read_points,
    shapes,
    unfused_bytes,
)
from lightbert.models import build
from lightbert.nn import fused
from lightbert.nn.feedforward import GroupedLinear

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model():
    return fit([point for point in points() if point.fitted])


def entries():
    log = (ROOT / "lab" / "LOG.md").read_text(encoding="utf-8")
    parts = re.split(r"^## \d{4}-\d\d-\d\d: ", log, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part for part in parts}


def test_every_figure_is_in_the_entry_of_the_log_that_it_names():
    log, tables = entries(), read_points()
    found = [*tables["points"], tables["ceilings"], tables["launches"], tables["launched"]]
    assert len(found) == 17
    for source in found:
        of = tables | source
        entry = log[of["entry"]]
        assert of["commit"] in entry
        figures = [
            source[name]
            for name in ("milliseconds", "kernels", "plain", "captured", "rate", "bandwidth")
            if name in source
        ]
        assert figures
        for figure in figures:
            assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d])", entry), figure


def test_at_least_three_whole_steps_check_the_model():
    steps = [point for point in points() if not point.fitted and point.workload.generator]
    assert len({point.workload for point in steps}) >= 3
    assert not {point.workload for point in steps} & {point.workload for point in points() if point.fitted}


def test_steps_and_encoders_that_it_was_not_fitted_to_take_what_the_model_predicts(model):
    for point in points():
        assert model.milliseconds(point.workload) == pytest.approx(point.milliseconds, rel=0.05)


def test_the_parameters_are_possible_on_the_device(model):
    ceilings = read_points()["ceilings"]
    assert model.rate == 1e12 * float(ceilings["rate"]) < 989e12
    assert 100e12 < model.attention_rate < model.rate
    assert 2e12 < model.bandwidth < 1e12 * float(ceilings["bandwidth"])
    assert 0.5e-6 < model.fixed < 5e-6
    assert 1e-6 < model.launching < 20e-6


def test_no_other_parameters_fit_better(model):
    def error(candidate):
        return sum((candidate.milliseconds(p.workload) / p.milliseconds - 1) ** 2 for p in points() if p.fitted)

    for name in ("attention_rate", "bandwidth", "fixed"):
        for factor in (0.99, 1.01):
            assert error(replace(model, **{name: factor * getattr(model, name)})) > error(model)


def test_more_work_takes_longer_and_the_parts_of_a_step_are_its_time(model):
    less = {"model": "convbert-small", "batch": 256, "length": 128}
    for larger in ({"batch": 512}, {"length": 256}, {"model": "convbert-base"}, {"generator": 0.5}):
        assert model.milliseconds(Workload(**{**less, **larger})) > model.milliseconds(Workload(**less)), larger
    step, encoder = (Workload("convbert-small", 256, 128, share) for share in (0.25, 0.0))
    assert model.milliseconds(encoder) < model.milliseconds(step)
    work = Workload("convbert-small", 64, 512)
    assert sum(model.parts(work)) == pytest.approx(model.milliseconds(work))
    eight = Workload("convbert-base", 1024, 128)
    assert 1 < model.milliseconds(eight) / model.milliseconds(eight, 8) < 8


def test_demand_is_in_proportion_to_the_tokens_except_for_the_optimizer():
    small, large = (demand(Workload("convbert-small", batch, 128)) for batch in (128, 256))
    assert large.flops == 2 * small.flops
    assert small.bytes < large.bytes < 2 * small.bytes


def test_kernels_are_those_of_the_most_similar_step_in_proportion_to_the_tensors():
    measured = {point.workload: point.kernels for point in points()}
    for work, kernels in measured.items():
        assert demand(work).kernels == kernels
    small = Workload("convbert-small", 128, 128)
    assert demand(replace(small, batch=150)).kernels == measured[small]
    # The embeddings of BERT-base are as wide as its blocks, without a linear layer between them.
    bert, missing = Workload("bert-small", 1024, 128), 2
    tensors = sum(len(list(model.parameters())) for model in _models(bert))
    assert demand(replace(bert, model="bert-base")).kernels == measured[bert] * (tensors - missing) / tensors


def test_a_norm_reads_and_writes_eight_times_its_width():
    assert passes(nn.Sequential(nn.LayerNorm(16), nn.LayerNorm(4))) == 8 * 20


def test_a_bottleneck_moves_no_inner_activations_and_has_its_first_scales_in_the_weights():
    block = build("mobilebert", device="meta").blocks[0]
    biases = 6 * 128 + 512  # enter, shared, query, key, value, output; leave
    assert passes(block) == 4 * 5 * 128 + 6 * (128 + 512) + 12 * 128 + biases


def test_flops_of_attention_are_those_that_grow_with_the_square_of_the_length():
    # Two products of length × length × channels, forward and twice backward, in 12 blocks of both models.
    for length in (128, 512):
        need = demand(Workload("bert-small", 8, length))
        assert need.attention_flops == 3 * 8 * 12 * 4 * length**2 * (256 + 64)


def test_the_three_products_of_a_layer_read_and_write_both_sides():
    [dense] = shapes(nn.Sequential(nn.Linear(16, 4), nn.GELU()))
    assert dense.products(10) == (3 * 2 * 10 * 64, 3 * 2 * 10 * 20)
    [grouped] = shapes(GroupedLinear(16, 4, groups=2))
    assert grouped.products(10) == (3 * 2 * 10 * 32, 3 * 2 * 10 * 20)


def test_the_streams_of_attention_are_one_product():
    feed_forward = [Shape(128, 512), Shape(512, 128)]
    assert list(shapes(build("bert-tiny", device="meta").blocks[0])) == [
        Shape(128, 3 * 128),
        Shape(128, 128),
        *feed_forward,
    ]
    # Two of four heads attend: queries, keys and two kinds of values, the logits of 9 taps, and the pointwise layer.
    mixed = list(shapes(build("convbert-tiny", device="meta").blocks[0]))
    assert mixed[0] == Shape(128, 4 * 64)
    assert set(mixed[1:3]) == {Shape(64, 2 * 9), Shape(128, 64)}
    assert mixed[3:] == [Shape(128, 128), *feed_forward]


def test_products_and_attention_are_all_flops_of_a_step_without_convolutions():
    need = demand(Workload("bert-small", 8, 128))
    assert need.attention_flops + sum(each.flops for each in need.products) == need.flops


def test_wide_layers_take_the_time_of_their_flops_and_narrow_ones_that_of_their_bytes(model):
    narrow, wide = (shape.products(1) for shape in (Shape(64, 64), Shape(768, 3072)))
    assert narrow.bytes / model.bandwidth > narrow.flops / model.rate
    assert wide.bytes / model.bandwidth < wide.flops / model.rate


def test_large_activations_are_written_twice():
    encoder = build("bert-small", device="meta")
    tokens = LARGE // 1024
    assert unfused_bytes(encoder, tokens - 1) == 0
    assert unfused_bytes(encoder, tokens) == 12 * 2 * LARGE
    assert fused._LARGE == LARGE


def test_the_page_is_that_of_the_points():
    written = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    made = page("python -m benchmarks.scaling --out docs/scaling.md")
    without_commit = re.compile(r"at commit \S+;")
    message = "run: python -m benchmarks.scaling --out docs/scaling.md"
    assert without_commit.sub("", written) == without_commit.sub("", made), message


def test_the_page_must_be_a_file_in_an_existing_folder(tmp_path, monkeypatch):
    missing = tmp_path / "missing" / "page.md"
    monkeypatch.setattr("sys.argv", ["scaling", "--out", str(missing)])
    with pytest.raises(SystemExit, match=r"lightbert: --out must be a file in an existing folder, got .*; create"):
        run_main(main)
    assert not missing.parent.exists()
