"""`lightbert demo --zoo`: sizes of all presets, and the padding test."""

import json

import pytest
import torch
from rich.console import Console

import lightbert
from lightbert import cli
from lightbert.commands import info


@pytest.fixture
def small_families(monkeypatch):
    monkeypatch.setattr(info, "FAMILIES", ("bert-tiny", "convbert-tiny", "composite-tiny", "mobilebert-nano"))


@pytest.mark.usefixtures("small_families")
def test_the_tour_counts_every_preset_and_padding_changes_nothing(capsys):
    assert cli.main(["demo", "--zoo", "--json"]) == 0
    printed = capsys.readouterr()
    tour = json.loads(printed.out)
    assert [each["preset"] for each in tour["presets"]] == lightbert.presets()
    assert tour["metrics"]["largest_padding_difference"] <= 1e-5
    assert [each["preset"] for each in tour["padding"]] == list(info.FAMILIES)
    released = {each["preset"]: each["released"] for each in tour["padding"]}
    assert released["bert-tiny"] is released["composite-tiny"] is None
    assert min(released["convbert-tiny"], released["mobilebert-nano"]) > 1e-3
    assert "counting" in printed.err


def test_the_printed_tour_has_counts_and_differences():
    differences = [info.Padding("convbert-small", 1.4e-6, 1.3e-6, 0.23)]
    tour = info.tour_report([info.describe("convbert-small")], differences)
    console = Console(width=160)
    with console.capture() as captured:
        console.print(tour)
    page = captured.get()
    for expected in ("13,143,768", "1.3e18 FLOPs to train", "1.4e-06", "2.3e-01"):
        assert expected in page


def test_the_families_have_one_full_size_model_per_paper():
    families = {type(lightbert.build(name, device="meta").config).__name__ for name in info.FAMILIES}
    assert families == {"Bert", "ConvBert", "Composite", "MobileBert"}


def test_the_tour_does_not_change_the_random_state():
    before = torch.get_rng_state()
    info.compare_padding("bert-tiny")
    assert torch.equal(torch.get_rng_state(), before)
