"""Exact parameter counts, through `lightbert info NAME --json`, compared with the papers' figures."""

import json
import subprocess
import sys

from lightbert import cli
from lightbert.commands.info import Config, run
from lightbert.models import PRESETS
from lightbert.models.size import PAPER_FIGURES

BODY = {
    "bert-small": 13_483_008,
    "bert-medium-small": 25_315_968,
    "bert-base": 108_891_648,
    "convbert-small": 13_143_768,
    "convbert-medium-small": 17_475_888,
    "convbert-base": 105_680_520,
    "convbert-small-bnk": 11_905_536,
    "convbert-base-bnk": 94_722_048,
    "convbert-medium-small-bnk": 21_770_112,
    "convbert-medium-small-bnk-gl": 14_692_224,
    "convbert-medium-small-bnk-gl-larger": 17_525_136,
    "mobilebert": 24_581_888,
    "mobilebert-paper": 25_359_104,
    "mobilebert-tiny": 15_485_696,
    "ib-bert-large": 294_205_184,
}

WITH_RTD = {
    "bert-small": 13_549_057,
    "bert-medium-small": 25_464_193,
    "bert-base": 109_483_009,
    "convbert-small": 13_209_817,
    "convbert-medium-small": 17_624_113,
    "convbert-base": 106_271_881,
    "convbert-small-bnk": 11_971_585,
    "convbert-base-bnk": 95_313_409,
    "convbert-medium-small-bnk": 21_918_337,
    "convbert-medium-small-bnk-gl": 14_840_449,
    "convbert-medium-small-bnk-gl-larger": 17_712_625,
}

WITH_MLM = {
    "composite-small": 13_428_196,
    "composite-small-none": 13_414_324,
    "composite-small-absolute": 13_430_708,
    "composite-small-fixed": 13_415_140,
    "composite-small-dynamic": 13_427_380,
    "composite-small-key": 13_441_252,
    "composite-small-depthwise": 13_469_620,
    "composite-small-composite-depthwise": 13_483_492,
    "composite-small-convqk": 13_524_916,
    "composite-small-convv": 13_469_620,
    "composite-small-convqkv": 13_580_212,
    "composite-small-composite-convqk": 13_538_788,
    "composite-small-composite-convv": 13_483_492,
    "composite-small-composite-convqkv": 13_594_084,
    "composite-small-convbert": 13_094_540,
    "composite-base": 108_738_244,
    "composite-base-absolute": 108_821_044,
    "composite-base-fixed": 108_725_188,
    "composite-base-dynamic": 108_735_796,
    # transformers' MLM models have the same numbers.
    "convbert-small": 13_207_442,
    "convbert-medium-small": 17_555_946,
    "convbert-base": 106_303_170,
}

FIELDS = {"parameters": BODY, "rtd_parameters": WITH_RTD, "mlm_parameters": WITH_MLM}


def test_parameters_are_exact(capsys, subtests):
    for name in BODY | WITH_MLM:
        with subtests.test(name=name):
            assert cli.main(["info", name, "--json"]) == 0
            described = json.loads(capsys.readouterr().out)
            expected = {field: counts[name] for field, counts in FIELDS.items() if name in counts}
            assert {field: described[field] for field in expected} == expected
            assert described["preset"] == name


def test_mobileberts_pretraining_models_are_exact():
    # With the next-sentence head on the raw [CLS] state: 2·512 + 2.
    assert run(Config("mobilebert")).mlm_parameters + 1026 == 36_597_564
    assert run(Config("mobilebert-tiny")).mlm_parameters + 1026 == 27_501_372
    # IB-BERT has a pooler before it.
    assert run(Config("ib-bert-large")).mlm_parameters + 512 * 512 + 512 + 1026 == 306_483_516


def test_parameter_counts_are_close_to_the_papers_figures(subtests):
    for name in PAPER_FIGURES:
        with subtests.test(name=name):
            printed = PAPER_FIGURES[name]
            count = getattr(run(Config(name)), printed.counts)
            # The composite paper has two decimals; one row is 84 parameters short of rounding up. The others are rough.
            tolerance = 0.0051 if printed.counts == "mlm_parameters" else 0.065 * printed.millions
            assert abs(count / 1e6 - printed.millions) < tolerance


def test_every_preset_with_a_table_row_is_in_the_papers_table():
    assert set(PAPER_FIGURES) <= set(PRESETS)
    ours = {name for name in PRESETS if name.endswith(("-tiny", "-nano")) and name != "mobilebert-tiny"}
    assert set(PRESETS) - set(PAPER_FIGURES) == ours | {"convbert-small-dynamic", "convbert-small-conventional"}


def test_info_prints_the_parameter_count():
    command = [sys.executable, "-m", "lightbert", "info", "convbert-small", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["parameters"] == 13_143_768
    assert done.stderr == ""
