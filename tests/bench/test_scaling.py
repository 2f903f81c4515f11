"""The model of step time: its points are those of lab/LOG.md, its errors are small, its page is up to date."""

import re
from pathlib import Path

import pytest
from torch import nn

from lightbert.bench.scaling import page
from lightbert.bench.step_time import Workload, demand, fit, points, read_points
from lightbert.bench.traffic import convolution_passes, encoder_bytes, passes
from lightbert.models import build

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
    assert len(found) == 11
    for source in found:
        entry = log[source["entry"]]
        assert source["commit"] in entry
        figures = [
            source.get(name) for name in ("figure", "kernel_count", "references", "kernels", "plain", "captured")
        ]
        for figure in figures:
            assert not isinstance(figure, str) or figure in entry, figure


def test_at_least_three_steps_check_the_model(model):
    checks = [point for point in points() if not point.fitted]
    assert len({(point.workload, point.commit) for point in checks}) >= 3
    for point in checks:
        assert model.milliseconds(point.workload) == pytest.approx(point.milliseconds, rel=0.1)


def test_the_parameters_are_possible_on_the_device(model):
    assert 100e12 < model.rate < 989e12
    assert 1e12 < model.bandwidth < 4.8e12
    assert 1 < model.reference_factor < 10
    assert 0.5e-6 < model.fixed < 5e-6


@pytest.mark.parametrize("larger", [{"batch": 512}, {"length": 256}, {"model": "convbert-base"}, {"kernels": False}])
def test_more_work_takes_longer(model, larger):
    less = {"model": "convbert-small", "batch": 256, "length": 128}
    assert model.milliseconds(Workload(**{**less, **larger})) > model.milliseconds(Workload(**less))


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


def test_only_convolutions_count_as_convolutions():
    assert convolution_passes(build("bert-tiny", device="meta")) == 0
    encoder = build("convbert-tiny", device="meta")
    assert 0 < 2 * 100 * convolution_passes(encoder) < encoder_bytes(encoder, 100)


def test_the_page_is_that_of_the_points():
    written = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    made = page("python -m lightbert.bench.scaling --out docs/scaling.md")
    without_commit = re.compile(r"at commit \S+;")
    message = "run: python -m lightbert.bench.scaling --out docs/scaling.md"
    assert without_commit.sub("", written) == without_commit.sub("", made), message
