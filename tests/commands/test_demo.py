"""`lightbert demo`: everything is counted, padding changes nothing, and the next steps exist."""

import json

import pytest
import torch
from rich.console import Console

import lightbert
from lightbert import cli
from lightbert.commands import COMMANDS, demo


@pytest.fixture
def small_families(monkeypatch):
    monkeypatch.setattr(demo, "FAMILIES", ("bert-tiny", "convbert-tiny", "composite-tiny", "mobilebert-nano"))


@pytest.mark.usefixtures("small_families")
def test_the_tour_counts_every_preset_and_shows_that_padding_changes_nothing(capsys):
    assert cli.main(["demo", "--json"]) == 0
    printed = capsys.readouterr()
    tour = json.loads(printed.out)
    assert [each["preset"] for each in tour["presets"]] == lightbert.presets()
    assert tour["metrics"]["largest_padding_difference"] <= 1e-5
    assert [each["preset"] for each in tour["padding"]] == list(demo.FAMILIES)
    released = {each["preset"]: each["released"] for each in tour["padding"]}
    assert released["bert-tiny"] is released["composite-tiny"] is None
    assert min(released["convbert-tiny"], released["mobilebert-nano"]) > 1e-3
    assert "counting" in printed.err


def test_a_person_reads_counts_differences_and_what_to_run_next():
    tour = demo.Tour(
        demo.Presets((demo.describe("convbert-small"),)), (demo.Padding("convbert-small", 1.4e-6, 1.3e-6, 0.23),)
    )
    console = Console(width=160)
    with console.capture() as captured:
        console.print(tour)
    page = captured.get()
    for expected in ("13,143,768", "1.3e18 FLOPs to train", "1.4e-06", "2.3e-01", "lightbert info convbert-small"):
        assert expected in page


def test_the_families_are_one_of_each_paper_at_real_size():
    families = {type(lightbert.build(name, device="meta").config).__name__ for name in demo.FAMILIES}
    assert families == {"Bert", "ConvBert", "Composite", "MobileBert"}


def test_every_next_step_names_a_verb_that_exists():
    for line, _ in demo.NEXT:
        program, verb, *_ = line.split()
        assert program == "python" or verb in COMMANDS


def test_the_tour_leaves_the_random_state_alone():

    before = torch.get_rng_state()
    demo.compare("bert-tiny")
    assert torch.equal(torch.get_rng_state(), before)
