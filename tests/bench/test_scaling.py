"""The model of step time: its points are those of lab/LOG.md, its errors are small, its page is up to date."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from lightbert.bench.scaling import page
from lightbert.bench.step_time import Workload, demand, fit, points, read_points
from lightbert.bench.step_traffic import LARGE, product_passes, unfused_bytes
from lightbert.bench.traffic import attention_bytes, encoder_bytes, passes
from lightbert.models import build
from lightbert.nn import projections

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model():
    return fit([point for point in points() if point.fitted])


def entries() -> dict[str, str]:
    log = (ROOT / "lab" / "LOG.md").read_text(encoding="utf-8")
    parts = re.split(r"^## \d{4}-\d\d-\d\d: ", log, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part for part in parts}


def sources() -> list[dict]:
    tables = read_points()
    return [*tables["points"], *(table for name, table in tables.items() if name != "points")]


def test_every_figure_is_in_the_entry_of_the_log_that_it_names():
    log = entries()
    found = sources()
    assert len(found) == 18
    for source in found:
        entry = log[source["entry"]]
        assert source["commit"] in entry
        figures = [source[name] for name in ("figure", "kernel_count", "plain", "captured") if name in source]
        assert figures
        for figure in figures:
            assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d])", entry), figure


def test_at_least_three_whole_steps_check_the_model():
    steps = [point for point in points() if not point.fitted and point.workload.generator]
    assert len({point.workload for point in steps}) >= 3
    assert not {point.workload for point in steps} & {point.workload for point in points() if point.fitted}


def test_steps_and_encoders_that_it_was_not_fitted_to_take_what_the_model_predicts(model):
    for point in points():
        # Grouped products are slower than the model knows.
        grouped = point.workload.model == "convbert-medium-small"
        assert model.milliseconds(point.workload) == pytest.approx(point.milliseconds, rel=0.15 if grouped else 0.07)


def test_the_parameters_are_possible_on_the_device(model):
    assert 100e12 < model.attention_rate < model.rate < 989e12
    assert 3e12 < model.bandwidth < 4.8e12
    assert 0.5e-6 < model.fixed < 5e-6
    assert 1e-6 < model.launching < 20e-6


@pytest.mark.parametrize("larger", [{"batch": 512}, {"length": 256}, {"model": "convbert-base"}, {"generator": 0.5}])
def test_more_work_takes_longer(model, larger):
    less = {"model": "convbert-small", "batch": 256, "length": 128}
    assert model.milliseconds(Workload(**{**less, **larger})) > model.milliseconds(Workload(**less))


def test_an_encoder_alone_takes_less_than_a_step(model):
    step, encoder = (Workload("convbert-small", 256, 128, share) for share in (0.25, 0.0))
    assert model.milliseconds(encoder) < model.milliseconds(step)


def test_the_parts_of_a_step_are_its_time(model):
    work = Workload("convbert-small", 64, 512)
    assert sum(model.parts(work)) == pytest.approx(model.milliseconds(work))


def test_eight_gpus_are_less_than_eight_times_as_fast(model):
    work = Workload("convbert-base", 1024, 128)
    assert 1 < model.milliseconds(work) / model.milliseconds(work, 8) < 8


def test_demand_is_in_proportion_to_the_tokens_except_for_the_optimizer():
    small, large = (demand(Workload("convbert-small", batch, 128)) for batch in (128, 256))
    assert large.flops == 2 * small.flops
    assert small.bytes < large.bytes < 2 * small.bytes
    assert large.kernels == small.kernels


def test_a_norm_reads_and_writes_eight_times_its_width():
    assert passes(nn.Sequential(nn.LayerNorm(16), nn.LayerNorm(4))) == 8 * 20


def test_only_attention_counts_as_attention():
    encoder = build("convbert-tiny", device="meta")
    assert 0 < attention_bytes(encoder, 100) < encoder_bytes(encoder, 100)
    # Two of four heads: 64 channels in each of 4 blocks, 12 passes.
    assert attention_bytes(encoder, 100) == 2 * 100 * 4 * 12 * 64


def test_flops_of_attention_are_those_that_grow_with_the_square_of_the_length():
    # Two products of length × length × channels, forward and twice backward, in 12 blocks of both models.
    for length in (128, 512):
        need = demand(Workload("bert-small", 8, length))
        assert need.attention_flops == 3 * 8 * 12 * 4 * length**2 * (256 + 64)


def test_a_product_reads_and_writes_both_sides_in_each_of_three_products():
    assert product_passes(nn.Sequential(nn.Linear(16, 4), nn.GELU())) == 3 * 20
    assert product_passes(projections.GroupedLinear(16, 4, groups=2)) == 3 * 20


def test_queries_keys_and_values_are_one_product():
    # Width 128, inner width 512: one product for three streams, then output, up and down in each of 4 blocks.
    block = (128 + 3 * 128) + (128 + 128) + 2 * (128 + 512)
    assert product_passes(build("bert-tiny", device="meta")) == 3 * (4 * block + (64 + 128))


def test_large_activations_are_written_twice():
    encoder = build("bert-small", device="meta")
    tokens = LARGE // 1024
    assert unfused_bytes(encoder, tokens - 1) == 0
    assert unfused_bytes(encoder, tokens) == 12 * 2 * LARGE
    assert projections._LARGE == LARGE


def test_activation_and_norm_of_a_grouped_feed_forward_are_in_float32():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert projections.linear(4, 4, groups=2)(torch.ones(1, 4)).dtype is torch.float32
        assert projections.linear(4, 4)(torch.ones(1, 4)).dtype is torch.bfloat16
    encoder = build("convbert-medium-small", device="meta")
    assert unfused_bytes(encoder, 100) == 12 * 2 * 100 * (5 * 1536 + 8 * 384)


def test_the_page_is_that_of_the_points():
    written = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    made = page("python -m lightbert.bench.scaling --out docs/scaling.md")
    without_commit = re.compile(r"at commit \S+;")
    message = "run: python -m lightbert.bench.scaling --out docs/scaling.md"
    assert without_commit.sub("", written) == without_commit.sub("", made), message
