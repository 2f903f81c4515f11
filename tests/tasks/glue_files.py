"""Small files in the layout of GLUE's files."""

from pathlib import Path

BOM = "\ufeff"

_PARSES = "sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"

MNLI_TEST_HEADER = f"index promptID pairID genre {_PARSES} sentence1 sentence2".split()
MNLI_TRAIN_HEADER = [*MNLI_TEST_HEADER, "label1", "gold_label"]
MNLI_DEV_HEADER = [*MNLI_TEST_HEADER, "label1", "label2", "label3", "label4", "label5", "gold_label"]
STSB_HEADER = [
    "index",
    "genre",
    "filename",
    "year",
    "old_index",
    "source1",
    "source2",
    "sentence1",
    "sentence2",
    "score",
]

_PROMPT = ["11", "11e", "letters", "( a )", "( b )", "(ROOT a)", "(ROOT b)"]
_STS = ["main-news", "wire", "2015", "0012", "none", "none"]


def table(*rows: list[str]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


FILES = {
    # No header, and no newline after the last row.
    "CoLA/train.tsv": "ab12\t1\t\tThe kettle sings.\nab12\t0\t*\tKettle the sing.",
    "CoLA/dev.tsv": "ab12\t1\t\tA door was shut.\n",
    "CoLA/test.tsv": "index\tsentence\n0\tThe lamp is lit.\n1\tLit lamp the is.\n",
    "SST-2/train.tsv": "sentence\tlabel\na lively , warm tale \t1\ndull to the last \t0\n",
    "SST-2/dev.tsv": "sentence\tlabel\nnever boring \t1\n",
    "SST-2/test.tsv": "index\tsentence\n0\ta slow film\n",
    "MRPC/train.tsv": BOM
    + table(
        ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
        ["1", "17", "18", 'He called it "a start.', "A start, he called it."],
        ["0", "19", "20", "Rain fell.", '"Snow fell," she said.'],
    ),
    "MRPC/dev.tsv": BOM
    + table(["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"], ["1", "21", "22", "It rained.", "Rain fell."]),
    "MRPC/test.tsv": BOM
    + table(["index", "#1 ID", "#2 ID", "#1 String", "#2 String"], ["0", "23", "24", "Shares rose.", "Shares fell."]),
    "STS-B/train.tsv": table(STSB_HEADER, ["0", *_STS, "A cat sleeps.", "A cat is asleep.", "4.800"]),
    "STS-B/dev.tsv": table(STSB_HEADER, ["0", *_STS, "A dog runs.", "Bread is baked.", "0.000"]),
    "STS-B/test.tsv": table(STSB_HEADER[:-1], ["0", *_STS, "A boat sails.", "A ship sails."]),
    "QQP/train.tsv": table(
        ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"],
        ["133273", "1", "2", "How is tea made?", "How do I make tea?", "1"],
        ["402555", "3", "4", "Why is snow white?", "", "0"],
    ),
    "QQP/test.tsv": table(["id", "question1", "question2"], ["0", "What is jazz?", "What is blues?"]),
    "MNLI/train.tsv": table(
        MNLI_TRAIN_HEADER, ["0", *_PROMPT, "Shops are open.", "Shops are shut.", *["contradiction"] * 2]
    ),
    "MNLI/dev_matched.tsv": table(
        MNLI_DEV_HEADER,
        ["0", *_PROMPT, "He ran home.", "He moved.", "neutral", *["entailment"] * 4, "entailment"],
    ),
    "MNLI/dev_mismatched.tsv": table(
        MNLI_DEV_HEADER,
        ["0", *_PROMPT, "She sang.", "She sang well.", "neutral", *["neutral"] * 4, "neutral"],
    ),
    "MNLI/test_matched.tsv": table(MNLI_TEST_HEADER, ["0", *_PROMPT, "It is late.", "It is early."]),
    "MNLI/test_mismatched.tsv": table(MNLI_TEST_HEADER, ["0", *_PROMPT, "It is hot.", "It is cold."]),
    "QNLI/dev.tsv": table(
        ["index", "question", "sentence", "label"],
        ["0", "Who built the mill?", "The mill was built by monks.", "entailment"],
        ["1", "Who built the mill?", "The mill stands by a river.", "not_entailment"],
    ),
    "RTE/dev.tsv": table(
        ["index", "sentence1", "sentence2", "label"],
        ["0", "Two boats sank off the coast.", "Boats sank.", "entailment"],
        ["1", "Two boats sank off the coast.", "Three boats sank.", "not_entailment"],
    ),
    "WNLI/dev.tsv": table(
        ["index", "sentence1", "sentence2", "label"],
        ["0", "The cup was full, so it spilled.", "The cup spilled.", "1"],
        ["1", "Ann thanked Eve for the help she gave.", "Ann gave help.", "0"],
    ),
    "diagnostic/diagnostic.tsv": table(["index", "sentence1", "sentence2"], ["0", "No cat sat.", "A cat sat."]),
}


def write_glue(folder: Path) -> Path:
    """Write all files to a folder and return it."""
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8"))
    return folder
