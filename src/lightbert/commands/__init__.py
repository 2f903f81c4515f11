"""The commands of `lightbert`, one module each.

`lightbert.cli` imports a command's module when the command is invoked, even for its `--help`. A module's top level
therefore imports only the standard library, typer, `lightbert.errors`, `lightbert.config`, `lightbert.recipes` and this
package; torch and rich are imported inside `run` and the methods of the report. Each module has three parts:

```python
@dataclass(frozen=True)
class Config:
    name: Annotated[str, typer.Argument(help="A preset.")]
    length: Annotated[int, typer.Option(help="Tokens per text.")] = 128


def run(config: Config) -> Report:
    from lightbert.models import build
    ...


@options(Config)
def command(config: Config, json: bool) -> None:
    \"\"\"Say what the command does; this is the text of its --help.\"\"\"
    show(run(config), json=json)
```

Tests and other programs call `run`, which neither prints nor exits and returns a `Report` (see `report.py`). Bad input
raises `InputError`; `cli.main` prints its message and returns an exit code. All other output, such as progress, goes to
stderr; long jobs use `lightbert.progress`.
"""

import importlib
from typing import Any

COMMANDS = {
    "demo": (
        "lightbert.commands.demo",
        "train a small encoder on the documentation of installed packages in minutes",
    ),
    "info": ("lightbert.commands.info", "print the parameters and FLOPs of a preset or a model"),
    "recipes": ("lightbert.commands.recipes", "list the training recipes, or print one"),
    "prepare": ("lightbert.commands.prepare", "turn text files into a tokenizer and token shards"),
    "pretrain": ("lightbert.commands.pretrain", "pre-train an encoder on prepared text"),
    "distill": ("lightbert.commands.pretrain:distill", "distil a large encoder into a small one"),
    "finetune": ("lightbert.commands.finetune", "fine-tune an encoder on GLUE, SQuAD, tagged words or your own files"),
    "evaluate": ("lightbert.commands.evaluate", "evaluate a model, or a file of predictions, on a task"),
    "predict": ("lightbert.commands.predict", "predict texts, files or standard input with a fine-tuned model"),
    "embed": ("lightbert.commands.predict:embed", "encode the texts of a file as vectors (.npy, .parquet)"),
    "search": ("lightbert.commands.search", "search texts by their meaning; near-duplicates and clusters"),
    "export": ("lightbert.commands.export", "export a model to ONNX, torch.export or ExecuTorch, verified"),
    "serve": ("lightbert.commands.serve", "serve a model over HTTP, with a page for the browser"),
    "analyse": (
        "lightbert.commands.analyse",
        "draw attention maps, heads and kernels, or the losses of a distillation",
    ),
    "bench": ("lightbert.commands.bench", "measure latency, and the server under load, on this machine"),
    "convert": ("lightbert.commands.convert", "convert a model from or to the Hugging Face layout"),
}
"""Command -> (module, or module:function, summary), in the order of `lightbert --help`."""


def function_of(verb: str) -> Any:
    """Import the module of a command and return its function for typer."""
    module, _, name = COMMANDS[verb][0].partition(":")
    return getattr(importlib.import_module(module), name or "command")
