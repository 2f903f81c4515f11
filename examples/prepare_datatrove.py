"""Prepare a corpus with datatrove: filter it, de-duplicate it, write lightbert shards, on this machine or on Slurm.

    python examples/prepare_datatrove.py corpus/ prepared/ vocab.txt --tasks 16
    python examples/prepare_datatrove.py corpus/ prepared/ vocab.txt --tasks 512 --slurm PARTITION

Each task reads its share of the files, so there should be at least as many files as tasks. Running it again skips the
tasks that are finished. For Ray, put `RayPipelineExecutor` in the place of the executors below.
"""

import argparse
from pathlib import Path
from typing import Any

from datatrove.executor import LocalPipelineExecutor, SlurmPipelineExecutor
from datatrove.pipeline.filters import LambdaFilter

from lightbert.data.corpus.datatrove_step import FinishShards, ReadText, WriteShards


def main() -> None:
    """Run the two pipelines: all tasks, then the one that makes the folder whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="a folder or a glob of .txt, .jsonl, .parquet, plain or compressed")
    parser.add_argument("out", help="the prepared folder, on a disk that all tasks see")
    parser.add_argument("tokenizer", help="a tokenizer.json, a vocab.txt or a folder with one")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--slurm", metavar="PARTITION")
    arguments = parser.parse_args()

    writer = WriteShards(arguments.out, arguments.tokenizer, sentences="split", held_out=0.005)
    pipeline = [
        ReadText(arguments.corpus),
        # Any of datatrove's filters and de-duplication steps go here.
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
    """Tell whether a document is more than a heading."""
    return len(document.text.split()) >= 5


if __name__ == "__main__":
    main()
