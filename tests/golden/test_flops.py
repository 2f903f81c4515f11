"""FLOPs in both conventions, through `lightbert info NAME --json`, and the papers' figures."""

import json

import pytest

from lightbert import cli


def flops(name, capsys):
    assert cli.main(["info", name, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["flops_per_token"] * 128 == described["flops"]["forward_128"]
    return described["flops"], described["paper"]


def test_forward_pass_of_128_tokens(capsys):
    for name, billions, printed in (
        ("bert-base", "22.35", 22.5),
        ("mobilebert", "5.39", 5.7),
        ("mobilebert-paper", "5.59", 5.7),
        ("mobilebert-tiny", "3.07", 3.1),
        ("ib-bert-large", "75.75", None),
    ):
        counted, paper = flops(name, capsys)
        assert f"{counted['forward_128'] / 1e9:.2f}" == billions
        assert paper["flops"] == (None if printed is None else pytest.approx(printed * 1e9))


def test_one_mixer_at_512_tokens_as_in_table_9(capsys):
    for name, expected in (("bert-base", "2.617e+09"), ("convbert-base", "1.944e+09")):
        counted, _ = flops(name, capsys)
        assert f"{counted['mixer_512']:.3e}" == expected


def test_training_flops_follow_electras_rules(capsys):
    for name, total, printed in (
        ("bert-small", "1.294e+18", 1.4e18),
        ("bert-base", "6.425e+19", 6.4e19),
        ("convbert-small", "1.258e+18", 1.3e18),
        ("convbert-medium-small", "1.567e+18", 1.5e18),
        ("convbert-base", "1.894e+19", 1.9e19),
    ):
        counted, paper = flops(name, capsys)
        assert f"{counted['training_electra']:.3e}" == total
        assert paper["training_flops"] == printed


def test_training_totals_are_absent_where_the_rules_or_the_schedule_are_unknown(capsys):
    for name in ("composite-small", "mobilebert", "bert-tiny"):
        counted, _ = flops(name, capsys)
        assert counted["training_electra"] is None
