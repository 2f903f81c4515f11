"""The verbs of the command line, one file each.

`lightbert.cli` imports a verb's module when the verb is invoked, even for its `--help`. So a module's top level imports
only the standard library, typer, `lightbert.errors`, `lightbert.config`, `lightbert.recipes` and this package; what
needs torch or rich is imported inside `run` and inside the report's methods. Each module has three things:

```python
@dataclass(frozen=True)
class Config:
    name: str
    length: int = 128


def run(config: Config) -> Report:
    from lightbert.models import build
    ...


def command(
    name: Annotated[str, typer.Argument(help="A preset.")],
    length: Annotated[int, typer.Option(help="Tokens per text.")] = 128,
    json: AsJson = False,
) -> None:
    \"\"\"Say what the verb does; this is the text of its --help.\"\"\"
    show(run(Config(name, length)), json=json)
```

A module whose command takes key=value pairs also has `epilog() -> str`, which lists the keys at the end of its --help.

`run` is what tests and other programs call: it neither prints nor exits, and returns a `Report` (see `report.py`). Bad
input raises `InputError`; `cli.main` turns it into one sentence and an exit code. Progress and everything else that is
not the report goes to stderr, through `lightbert.progress` where it takes long.
"""

COMMANDS = {
    "demo": (
        "lightbert.commands.demo",
        "train a small encoder on the documentation found here, and show what it learnt",
    ),
    "info": ("lightbert.commands.info", "print the exact parameters and FLOPs of a preset or a model folder"),
    "recipes": ("lightbert.commands.recipes", "list the recipes for training, or print one"),
    "prepare": ("lightbert.commands.prepare", "turn text files into a tokenizer and token shards"),
    "pretrain": ("lightbert.commands.pretrain", "train an encoder on prepared text, by a recipe"),
    "distill": ("lightbert.commands.distill", "train a small encoder to imitate a large one, by a recipe"),
    "finetune": ("lightbert.commands.finetune", "train an encoder for a task: GLUE, SQuAD, tags, or your own files"),
    "evaluate": ("lightbert.commands.evaluate", "judge a model, or a file of predictions, on a task"),
    "predict": ("lightbert.commands.predict", "say what a fine-tuned model makes of texts, files or standard input"),
    "analyse": ("lightbert.commands.analyse", "draw what was learned: layers during a distillation, attention maps"),
    "bench": ("lightbert.commands.bench", "measure speed beside other libraries, on the same data in the same run"),
    "convert": ("lightbert.commands.convert", "rewrite a model folder from or to the Hugging Face layout"),
}
"""Verb -> (module, summary for `lightbert --help`), in the order of the help."""
