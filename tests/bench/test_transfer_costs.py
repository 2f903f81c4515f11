"""The benchmark of stages runs the stages it reports; times are not tested."""

import json
import sys
from collections import Counter

import pytest

from lightbert.bench import stage_cost
from lightbert.bench.stage_cost import Costs, Sizes, measure

TINY = Sizes(depth=2, vocab=40, batch=2, length=8, device="cpu")


def test_each_stage_runs_up_to_its_layer(monkeypatch):
    depths, seconds = [], stage_cost._seconds

    def watched(objective, *arguments):
        ran = Counter()
        hooks = [
            block.register_forward_hook(lambda *_, who=who: ran.update([who]))
            for who in ("teacher", "student")
            for block in getattr(objective, who).blocks
        ]
        result = seconds(objective, *arguments)
        for hook in hooks:
            hook.remove()
        depths.append((ran["teacher"], ran["student"]))
        return result

    monkeypatch.setattr(stage_cost, "_seconds", watched)
    measure(TINY, rounds=1, steps=1)
    # Two steps each: a warm-up step and a timed step.
    assert depths == [(2, 2), (4, 4), (4, 4), (4, 4)]


def test_the_printed_costs_have_ratios():
    lines = str(Costs(24, first=10.0, last=150.0, joint=200.0, auxiliary=220.0)).splitlines()
    assert [line.split()[-2:] for line in lines[1:]] == [
        ["10.00", "0.05"],
        ["150.00", "0.75"],
        ["200.00", "1.00"],
        ["220.00", "1.10"],
    ]


def test_the_json_has_metrics_and_sizes(monkeypatch, capsys):
    line = ["stage_cost", "--depth", "2", "--vocab", "40", "--batch", "2", "--length", "8", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", [*line, "--rounds", "1", "--steps", "1", "--json"])
    stage_cost.main()
    printed = json.loads(capsys.readouterr().out)
    assert {"first", "last", "joint", "auxiliary", "first_of_full"} <= printed["metrics"].keys()
    assert printed["sizes"]["depth"] == 2


def test_an_unknown_preset_is_one_sentence(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["stage_cost", "--teacher", "ib-bert-nan"])
    with pytest.raises(SystemExit, match="did you mean 'ib-bert-nano'"):
        stage_cost.main()
