"""Every family with every analysis: pictures are drawn where it applies, and a sentence says why where it doesn't."""

from dataclasses import replace

import pytest

from extras import needs_plots
from lightbert.analysis.section import NotApplicableError
from lightbert.analysis.study.rows import Texts
from lightbert.analysis.study.study import Settings, Study, Subject, teacher_and_student
from lightbert.commands.analyse import ANALYSES, model_analyses
from lightbert.interop import huggingface
from lightbert.interop.load import load
from lightbert.models import build, preset
from reading_pairs import MIXED, TEACHER, reader, tokenizer

pytestmark = needs_plots

ALWAYS = {"attention", "concentration", "heads"}
FAMILIES = {
    "bert-tiny": ALWAYS,
    "convbert-tiny": ALWAYS | {"dynamic-kernels", "depthwise-kernels"},
    "composite-tiny": ALWAYS | {"fixed-kernels"},
    "mobilebert-nano": ALWAYS,
    "ib-bert-nano": ALWAYS,
}


def model(name, **changes):
    built = build(replace(preset(name), vocab=20, depth=2, **changes))
    built.tokenizer = tokenizer()
    return built


def study(*models):
    names = ("",) if len(models) == 1 else ("a", "b")
    subjects = (Subject(name, each, "other_" * (name == "b")) for name, each in zip(names, models, strict=True))
    return Study(tuple(subjects), Texts(("w1 w2 w3 w2 w4 w5 w6",)))


def applicable(given):
    """The analyses that apply, all of whose pictures are drawn."""
    found, names = set(), []
    for name, analyse in model_analyses().items():
        try:
            section = analyse(given)
        except NotApplicableError:
            continue
        assert section.summary
        for picture in section.pictures:
            assert picture.caption.endswith(".")
            picture.draw().canvas.draw()
        found.add(name)
        names += [picture.name for picture in section.pictures]
    assert len(names) == len(set(names)), "pictures would overwrite each other"
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_the_analyses_that_apply_draw_their_pictures(name):
    assert applicable(study(model(name))) == FAMILIES[name]


def test_two_families_are_drawn_side_by_side():
    pair = study(model("convbert-tiny"), model("composite-tiny"))
    assert applicable(pair) == ALWAYS | {"dynamic-kernels", "depthwise-kernels", "fixed-kernels"}


def test_a_teacher_and_a_student_with_convolution_heads_are_drawn_side_by_side():
    text = Texts(("w1 w2 w3 w2 w4 w5 w6",))
    pair = teacher_and_student(reader(TEACHER, 1), reader(MIXED, 2), text, Settings())
    assert applicable(pair) == ALWAYS | {"dynamic-kernels", "depthwise-kernels"}


@pytest.mark.parametrize(
    ("name", "changes", "origin"),
    [
        ("bert-tiny", {"narrow": 128, "width": 128}, "bert"),
        ("bert-tiny", {"narrow": 64, "width": 128}, "electra"),
        ("convbert-tiny", {}, "convbert"),
        ("mobilebert-nano", {}, "mobilebert"),
    ],
)
def test_folders_of_hugging_face_are_analysed(name, changes, origin, tmp_path):
    huggingface.write(model(name, **changes), tmp_path / name)
    loaded = load(tmp_path / name)
    loaded.tokenizer = tokenizer()
    assert loaded.origin == origin
    assert applicable(study(loaded)) == FAMILIES[name]


def test_every_analysis_of_a_model_is_listed():
    assert {*model_analyses(), "transfer"} == {*ANALYSES}
