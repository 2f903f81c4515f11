"""`lightbert info`: presets, model folders, the table, and errors for unknown names."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

import lightbert
from lightbert import cli
from lightbert.commands.info import Config, run
from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.models import preset


def text(report):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(report)
    return captured.get()


def test_a_preset_has_counts_config_and_the_papers_figures():
    described = run(Config("convbert-small")).to_json()
    assert described["preset"] == "convbert-small"
    assert described["family"] == "convbert"
    assert described["config"]["kernel"] == 9
    assert described["paper"]["millions"] == 14
    assert described["paper"]["pretraining"] == {
        "objective": "rtd",
        "batch": 128,
        "steps": 1_000_000,
        "length": 128,
        "generator": "1/4",
    }
    assert json.loads(json.dumps(described)) == described


def test_changes_of_the_config_have_parameters_and_flops_of_their_own():
    plain, changed = (
        run(Config("mobilebert", changes)).to_json()
        for changes in ((), ("change.convolution=span", "change.relative=fixed"))
    )
    assert (changed["family"], changed["preset"]) == ("mobilebert", None)
    assert changed["config"] == plain["config"] | {"convolution": "span", "fixed": True}
    # Half of the heads, the separable key, the kernel layer, other values, and 17 weights for each head.
    width, inner = 512, 64
    fewer = 2 * (128 * inner + inner) + width * inner + inner
    convolution = 9 * 128 + 128 * inner + inner + inner * 18 + 18 + width * inner + inner
    assert changed["parameters"] - plain["parameters"] == 24 * (convolution + 2 * 17 - fewer)
    assert changed["flops"]["mixer_512"] < plain["flops"]["mixer_512"]
    for changes, message in (
        (("change.mixer=composite",), "unknown key 'mixer'; did you mean 'relative', 'convolution' or 'local'?"),
        (("steps=3",), "must be change.KEY=VALUE, got 'steps'"),
    ):
        with pytest.raises(InputError, match=message.replace("?", r"\?")):
            run(Config("bert-small", changes))


def test_without_a_name_every_preset_is_listed(capsys):
    assert cli.main(["info", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["presets"]
    assert [each["preset"] for each in listed] == lightbert.presets()
    table = text(run(Config()))
    assert all(name in table for name in lightbert.presets())


def test_the_printed_report_has_the_exact_count_and_the_papers_figures():
    page = text(run(Config("mobilebert")))
    assert "24,581,888" in page
    assert "25.3M, 5.7 GFLOPs (MobileBERT Tables 1 and 4)" in page
    assert "1.3e18 FLOPs to train" in text(run(Config("convbert-small")))


def test_a_model_folder_is_counted_with_its_heads(tmp_path):
    model = lightbert.build("mobilebert-nano", heads={"mlm": {}, "classify": {"labels": 3}})
    lightbert.save(model, tmp_path / "model")
    described = run(Config(str(tmp_path / "model"))).to_json()
    body = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("heads."))
    assert described["preset"] is None
    assert described["parameters"] == body
    assert described["mlm_parameters"] == body + sum(p.numel() for p in model.heads["mlm"].parameters())
    assert described["head_parameters"]["classify"] == 3 * 128 + 3
    assert described["flops_per_token"] == run(Config("mobilebert-nano")).flops_per_token
    assert "classify head" in text(run(Config(str(tmp_path / "model"))))


def test_a_hugging_face_folder_is_counted(tmp_path):
    huggingface.write(lightbert.build(replace(preset("convbert-tiny"), padding="released")), tmp_path / "model")
    described = run(Config(str(tmp_path / "model"))).to_json()
    assert described["family"] == "convbert"
    assert described["parameters"] == run(Config("convbert-tiny")).parameters


def test_the_error_for_an_unknown_name_suggests_the_most_similar_one(capsys):
    assert cli.main(["info", "convbert-smal"]) == 1
    assert capsys.readouterr().err == "lightbert: unknown preset 'convbert-smal'; did you mean 'convbert-small'?\n"


def test_a_missing_path_is_named():
    for name in ["runs/nothing", "./nothing"]:
        with pytest.raises(InputError, match=r"model .*nothing' not found"):
            run(Config(name))


def test_a_folder_without_config_raises_an_error(tmp_path):
    with pytest.raises(InputError, match=r"config\.json not found"):
        run(Config(str(tmp_path)))


def test_help_defines_the_flops(capsys):
    assert cli.main(["info", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "128 tokens, divided by 128" in words
