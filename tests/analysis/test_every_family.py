"""Every family with every analysis: pictures are drawn where it applies, and a sentence says why where it doesn't."""

from dataclasses import replace

import pytest

from extras import needs_plots
from lightbert.analysis.report import NotApplicableError
from lightbert.analysis.study import Settings, Study, Subject, Texts, teacher_and_student
from lightbert.commands.analyse import ANALYSES, model_analyses
from lightbert.interop import huggingface
from lightbert.interop.load import load
from lightbert.models import build, preset
from reading_pairs import MIXED, TEACHER, reader, tokenizer

pytestmark = needs_plots

TEXTS = Texts(("w1 w2 w3 w2 w4 w5 w6",))
ALWAYS = {"attention", "concentration", "heads"}


def model(name, **changes):
    built = build(replace(preset(name), vocab=20, depth=2, **changes))
    built.tokenizer = tokenizer()
    return built


def applicable(study):
    """The analyses that apply, all of whose pictures are drawn."""
    applied, names = set(), []
    for name, analyse in model_analyses().items():
        try:
            section = analyse(study)
        except NotApplicableError:
            continue
        assert section.summary
        for picture in section.pictures:
            assert picture.caption.endswith(".")
            picture.draw().canvas.draw()
        applied.add(name)
        names += [picture.name for picture in section.pictures]
    assert len(names) == len(set(names)), "pictures would overwrite each other"
    return applied


@pytest.mark.parametrize(
    ("name", "changes", "analyses", "origin"),
    [
        ("bert-tiny", {"narrow": 128, "width": 128}, ALWAYS, "bert"),
        ("convbert-tiny", {}, ALWAYS | {"dynamic-kernels", "depthwise-kernels"}, "convbert"),
        ("composite-tiny", {}, ALWAYS | {"fixed-kernels"}, None),
        ("mobilebert-nano", {}, ALWAYS, "mobilebert"),
        ("ib-bert-nano", {}, ALWAYS, None),
    ],
)
def test_the_analyses_that_apply_draw_their_pictures_also_for_folders_of_hugging_face(
    name, changes, analyses, origin, tmp_path
):
    analysed = model(name, **changes)
    if origin:
        huggingface.write(analysed, tmp_path / name)
        analysed = load(tmp_path / name)
        assert analysed.origin == origin
        analysed.tokenizer = tokenizer()
    assert applicable(Study((Subject("", analysed),), TEXTS)) == analyses


def test_two_families_are_drawn_side_by_side():
    subjects = (Subject("a", model("convbert-tiny")), Subject("b", model("composite-tiny"), "other_"))
    assert applicable(Study(subjects, TEXTS)) == ALWAYS | {"dynamic-kernels", "depthwise-kernels", "fixed-kernels"}


def test_a_teacher_and_a_student_with_convolution_heads_are_drawn_side_by_side():
    pair = teacher_and_student(reader(TEACHER, 1), reader(MIXED, 2), TEXTS, Settings())
    assert applicable(pair) == ALWAYS | {"dynamic-kernels", "depthwise-kernels"}


def test_every_analysis_of_a_model_is_listed():
    assert {*model_analyses(), "transfer"} == {*ANALYSES}
