"""Opening a study: loads its models, and describes them and its texts in words."""

from pathlib import Path

from lightbert.analysis.study.rows import Texts
from lightbert.analysis.study.study import Settings, Study, Subject, teacher_and_student
from lightbert.interop.load import load

_LONGEST_FACT = 400


def open_study(model: str, texts: Texts, settings: Settings, *, teacher: str = "", compare: str = "") -> Study:
    """A study of a model by name; with a teacher, whose maps are compared, or with another model side by side."""
    if teacher:
        return teacher_and_student(load(teacher), load(model), texts, settings)
    if not compare:
        return Study((Subject("", load(model)),), texts, settings)
    names = (short_name(model), short_name(compare))
    first, second = names if names[0] != names[1] else (model, f"{compare} (2)" if model == compare else compare)
    return Study((Subject(first, load(model)), Subject(second, load(compare), "other_")), texts, settings)


def describe(study: Study) -> dict[str, str]:
    """The models and the texts to draw, in words."""
    facts = {}
    for subject in study.subjects:
        model = subject.model
        parameters = sum(each.numel() for each in model.parameters())
        family = type(model.config).__name__
        facts[subject.name or "model"] = (
            f"{family}, {subject.depth} layers, width {model.width}, {parameters:,} parameters"
        )
    for number, text in enumerate(study.texts.drawn, start=1):
        name = f"text {number}" if len(study.texts.drawn) > 1 else "text"
        facts[name] = text if len(text) <= _LONGEST_FACT else f"{text[:_LONGEST_FACT]}…"
    return facts


def short_name(model: str) -> str:
    """The name of a folder; its parent's too if it is called "final"."""
    parts = Path(model).parts
    if not parts:
        return model
    return "/".join(parts[-2:]) if parts[-1] == "final" else parts[-1]
