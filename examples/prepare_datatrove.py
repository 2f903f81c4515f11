"""Prepare a corpus with datatrove: filter and de-duplicate it and write lightbert shards, locally or on Slurm.

    python examples/prepare_datatrove.py corpus/ prepared/ vocab.txt --tasks 16
    python examples/prepare_datatrove.py corpus/ prepared/ vocab.txt --tasks 512 --slurm PARTITION

Each task reads a part of the files, so there should be at least as many files as tasks. Running the script again skips
finished tasks. For Ray, replace the executors below by `RayPipelineExecutor`.
"""

import argparse
from pathlib import Path
from typing import Any

from datatrove.executor import LocalPipelineExecutor, SlurmPipelineExecutor
from datatrove.pipeline.filters import LambdaFilter

from lightbert.data.datatrove_step import FinishShards, ReadText, WriteShards


def main() -> None:
    """Run the two pipelines: one with all tasks, then one that finishes the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="a folder or a glob of .txt, .jsonl, .parquet, plain or compressed")
    parser.add_argument("out", help="the prepared folder, on a file system that all tasks share")
    parser.add_argument("tokenizer", help="a tokenizer.json, a vocab.txt or a folder with one")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--slurm", metavar="PARTITION")
    arguments = parser.parse_args()

    writer = WriteShards(arguments.out, arguments.tokenizer, sentences="split", held_out=0.005)
    pipeline = [
        ReadText(arguments.corpus),
        # Add datatrove's filters and de-duplication steps here.
        LambdaFilter(has_a_few_words),
        writer,
    ]
    logs = Path(f"{arguments.out}.logs")
    if arguments.slurm is None:
        encode: Any = LocalPipelineExecutor(pipeline, tasks=arguments.tasks, logging_dir=str(logs / "encode"))
        finish: Any = LocalPipelineExecutor([FinishShards(writer)], logging_dir=str(logs / "finish"), depends=encode)
    else:
        slurm = {"partition": arguments.slurm, "time": "04:00:00"}
        encode = SlurmPipelineExecutor(
            pipeline, tasks=arguments.tasks, logging_dir=str(logs / "encode"), job_name="encode", **slurm
        )
        finish = SlurmPipelineExecutor(
            [FinishShards(writer)],
            tasks=1,
            logging_dir=str(logs / "finish"),
            job_name="finish",
            depends=encode,
            **slurm,
        )
    finish.run()


def has_a_few_words(document: Any) -> bool:
    """Return whether a document has at least five words."""
    return len(document.text.split()) >= 5


if __name__ == "__main__":
    main()
