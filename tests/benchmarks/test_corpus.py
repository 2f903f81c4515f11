"""The pre-training corpus: extraction from tiny repositories, cleaning, decontamination and mixture."""

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.corpus import __main__ as corpus
from benchmarks.corpus.cleaning import PIECE_WORDS, decide, survey
from benchmarks.corpus.evaluation_texts import EvaluationIndex
from benchmarks.corpus.extraction import newest
from benchmarks.corpus.mixture import draw, texts
from benchmarks.corpus.ngrams import NGrams, Words
from benchmarks.corpus.page import write
from benchmarks.corpus.prose import clean, normalize
from benchmarks.corpus.repositories import File
from benchmarks.corpus.text_formats import (
    dialogues,
    gutenberg,
    markdown,
    plain,
    segments,
    sentences,
    statute,
    talk,
    wiki,
)
from benchmarks.corpus.xml_formats import abstracts, cnxml, jats, jats_letters, lims, tcp, tei

RANDOM = np.random.default_rng(0)
LEXICON = [
    *["the", "of", "and", "to", "in"] * 50,
    *("w" + "".join(RANDOM.choice(list("aeioulmnrst"), 5)) for _ in range(500)),
]


def sentence(words):
    return " ".join(RANDOM.choice(LEXICON, words)) + "."


def document(paragraphs, words=40):
    return "\n".join(sentence(words) for _ in range(paragraphs))


def test_words_ignore_case_punctuation_and_the_words_before_them():
    first, second = Words.of(b"Don't  STOP, now"), Words.of("— so don t stop: now!".encode())
    assert first.starts.tolist() == [0, 4, 7, 13]
    assert first.hashes.tolist() == second.hashes[1:].tolist()
    assert len(set(Words.of(b"ab ba a b aab aba 0 o").hashes.tolist())) == 8
    assert not len(Words.of("…!".encode()).hashes)


def test_ngrams_depend_on_order_and_length():
    words = Words.of(b"a b c a b c b a").hashes
    grams = NGrams(words)
    assert grams.grow(1).tolist()[0] == grams.grow(1).tolist()[3]
    three = grams.grow(3).tolist()
    assert len(three) == 6
    assert three[0] == three[3]
    assert len(set(three)) == 5


@pytest.fixture
def index():
    long = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    return EvaluationIndex({"long": [long, "next text"], "short": ["red orange yellow green blue indigo violet white"]})


def surveyed(tmp_path, index, *contents):
    paths = [tmp_path / f"{number}.txt" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_text(content, "utf-8")
    return paths, [survey(path, index) for path in paths]


def kept(paths, surveys, decisions):
    contents = [path.read_bytes() for path in paths]
    return [
        [
            content[start:end].decode()
            for start, end, keep in zip(record.paragraph_starts, record.paragraph_ends, decision.keep, strict=True)
            if keep
        ]
        for content, record, decision in zip(contents, surveys, decisions, strict=True)
    ]


def test_evaluation_texts_are_removed_by_13_words_or_as_a_whole(tmp_path, index):
    other = document(1)
    share = (
        f"{other}\n{sentence(9)[:-1]}, Two three-four FIVE six seven eight nine ten eleven twelve thirteen fourteen."
    )
    twelve = f"{document(1)}\n{sentence(9)} Two three four five six seven eight nine ten eleven twelve thirteen."
    short = f"{document(1)}\n{sentence(5)} Red, orange, yellow, green, blue, indigo, violet, white {sentence(9)}"
    paths, surveys = surveyed(tmp_path, index, "\n\n".join([share, twelve, short]) + "\n\n")
    decisions = decide(surveys, index.names)
    assert kept(paths, surveys, decisions) == [[other, *twelve.split("\n"), short.split("\n")[0]]]
    assert decisions[0].sets == {"long": 1, "short": 1}
    assert decisions[0].contaminated == 22 + 22


def test_a_piece_with_many_evaluation_texts_is_removed_whole(tmp_path, index):
    text = "one two three four five six seven eight nine ten eleven twelve thirteen"
    content = "\n".join([document(2), *(f"{sentence(8)} {text} {sentence(8)}" for _ in range(4))])
    _, surveys = surveyed(tmp_path, index, content)
    assert not decide(surveys, index.names)[0].keep.any()


def test_near_duplicates_and_repeated_paragraphs_keep_the_first_copy(tmp_path, index):
    original = document(20)
    lines = original.split("\n")
    edited = "\n".join(line.replace(" the ", " a ", 1) for line in lines[:12]) + "\n" + document(6)
    repeated = f"{document(5)}\n{lines[3]}"
    fresh = document(12)
    paths, surveys = surveyed(tmp_path, index, f"{original}\n\n{fresh}\n\n", f"{edited}\n\n{repeated}\n\n")
    decisions = decide(surveys, index.names)
    first, second = kept(paths, surveys, decisions)
    assert first == [*lines, *fresh.split("\n")]
    assert second == repeated.split("\n")[:-1]
    assert decisions[1].repeated == 40
    assert decisions[1].near_duplicate == len(edited.split())


def test_long_documents_are_divided_and_chunks_of_a_file_do_not_matter(tmp_path, index, monkeypatch):
    content = "\n\n".join([document(200), document(3), document(90)]) + "\n\n"
    _, [whole] = surveyed(tmp_path, index, content)
    assert len(whole.piece_starts) == -(-200 * 40 // PIECE_WORDS) + 1 + 2
    monkeypatch.setattr("benchmarks.corpus.cleaning._CHUNK", 1000)
    _, [parts] = surveyed(tmp_path, index, content)
    for name in whole._fields:
        if not name.startswith("sketch"):  # shingles don't cross the end of a chunk
            assert np.array_equal(getattr(whole, name), getattr(parts, name)), name


def test_a_mixture_is_limited_by_group_and_grows_with_the_limit(tmp_path, index):
    contents = ["\n\n".join(document(2) for _ in range(30)) for _ in range(3)]
    paths, surveys = surveyed(tmp_path, index, *contents)
    keeps = [decision.keep for decision in decide(surveys, index.names)]
    groups = ["modern", "modern", "old"]
    small = draw(surveys, keeps, groups, {"modern": 1000, "old": 400}, seed=1)
    large = draw(surveys, keeps, groups, {"modern": 10**6, "old": 800}, seed=1)
    assert small.words[small.files == 2].sum() == 400
    assert 1000 <= small.words[small.files < 2].sum() < 1000 + 80
    assert large.words[large.files < 2].sum() == 60 * 80
    assert set(zip(small.files, small.pieces, strict=True)) < set(zip(large.files, large.pieces, strict=True))
    written = list(texts(paths, surveys, keeps, large))
    assert set(written) <= {text.encode() for content in contents for text in content.split("\n\n")}
    assert len(written) == len(set(written))


ACL = """<collection><volume><paper><title>A <b>title</b></title><abstract>An abstract .</abstract></paper>
<paper><title>None</title></paper></volume></collection>"""
DIALOGUES = '[{"turns": [{"utterance": "Hi there"}]}, {"turns": [{"utterance": "a"}, {"utterance": "b"}]}]'
JATS = """<article xmlns:x="y"><front><article-meta><article-title>A title</article-title>
<abstract><p>An abstract (<xref>Smith, 1999</xref>).</p></abstract></article-meta></front>
<body><sec><title>Results</title><p>Cells grow <inline-formula>x</inline-formula>fast (<xref>Figure 1</xref>).</p>
<fig><p>A caption</p></fig></sec></body>
<sub-article><body><p>A letter.</p><p>See doi.org/10.1</p></body></sub-article></article>"""
BOOK = "Licence\n*** START OF THE BOOK ***\n\nCHAPTER I\n\n" + "A long\nline " * 30 + "\n\nTwo --\nthree [12] four"
PAGE = "---\ntitle: x\n---\n# Heading\n\nA *text*, [a link](to), `code`.\n\n```\ncode\n```\n\n| a | b |\n- An item\n"
TEI = """<TEI xmlns='t'><teiHeader><p>Head</p></teiHeader>
<text><body><p>First<note>note</note> par-\nagraph</p></body></text></TEI>"""
WIKI = "<doc id='1'>\nName\n\nA ''line'' of [[some|text]]\nReferences\nx y z w\n</doc>"
TCP = "<E><TEXT><P>A ſmall<GAP/> word</P><P>" + "w " * 60 + "bo<GAP/>k</P></TEXT></E>"
LIMS = "<S><LongTitle>An Act</LongTitle><Body><Text>It is so.</Text><Label>1</Label></Body></S>"
CNXML = "<d><title>T</title><content><para>A <link>l</link>word&mdash;</para></content></d>"


def test_formats_give_paragraphs():
    for read, content, expected in (
        (jats, JATS, [["A title", "An abstract .", "Results", "Cells grow fast ."]]),
        (jats_letters, JATS, [["A letter."]]),
        (tei, TEI, [["First paragraph"]]),
        (tcp, TCP, [["w " * 60 + "bok"]]),
        (lims, LIMS, [["An Act", "It is so."]]),
        (cnxml, CNXML, [["T", "A word—"]]),
        (gutenberg, BOOK, [["CHAPTER I", ("A long line " * 30).strip(), "Two  —  three   four"]]),
        (plain, "Box\n+====+\n\nOne ex-\nample\n\ntwo", [["One example", "two"]]),
        (markdown, PAGE, [["Heading", "A text, a link, code.", "An item"]]),
        (statute, "# S 1\n\nThe law.\n\n## Amendments\n\nOld.", [["S 1", "The law."]]),
        (talk, "**Ann:** And so we begin here [00:01]", [["And so we begin here "]]),
        (wiki, WIKI, [["Name", "A line of text"]]),
        (abstracts, ACL, [["A title", "An abstract ."]]),
        (dialogues, DIALOGUES, [["Hi there"], ["a", "b"]]),
        (sentences, "one\n" * 101, [["one"] * 100, ["one"]]),
        (segments, '{"1:1.1": "A", "1:1.2": "b <b>c</b>", "1:2.1": "d"}', [["A b c", "d"]]),
    ):  # fmt: skip
        paragraphs = [[" ".join(line.split()) for line in lines if line.strip()] for lines in read(content.encode())]
        assert paragraphs == [[" ".join(line.split()) for line in lines] for lines in expected], read.__name__


def test_clean_keeps_english_prose():
    prose = normalize("It was the best of the times that we had in this town, and with it " * 4)
    foreign = "Es war einmal ein König, der hatte eine Tochter, die war so schön, dass alle staunten " * 4
    scan = "tbe ofthc aud witb tlie iu tbat wbich frora liis heen thc onr wbo"
    assert list(clean([["A heading", prose, "* 1 2 3 4 = 5", "End"], [foreign]])) == [["A heading", prose]]
    assert list(clean([[prose, scan, prose]], frozenset(prose.lower().split()))) == [[prose, prose]]
    assert normalize("a\u00ad  b , (c )") == "a b, (c)"


def test_only_the_newest_version_of_an_article_is_read():
    paths = [
        "elife-00001-v1.xml",
        "elife-00001-v10.xml",
        "elife-00001-v9.xml",
        "elife-preprint-00001-v11.xml",
        "elife-preprint-2-v1.xml",
    ]
    assert [file.path for file in newest(File(path, "") for path in paths)] == [paths[1], paths[4]]


def git(folder, *arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_the_command_makes_a_prepared_folder_and_a_page(tmp_path, monkeypatch):
    data, mirrors = tmp_path / "data", tmp_path / "mirrors"
    repository = mirrors / "owner+name" / "repo"
    repository.mkdir(parents=True)
    git(repository, "init", "-q")
    articles = [document(6) for _ in range(12)]
    for number, article in enumerate(articles):
        (repository / f"{number}.md").write_text(article.replace("\n", "\n\n"), "utf-8")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "x")
    data.mkdir()
    (data / "local.txt").write_text("\n\n".join([articles[0], document(30)]), "utf-8")
    (data / "dev.tsv").write_text(f"text\n{articles[1].splitlines()[2]}\t1\n", "utf-8")
    words = sorted({word.strip(".") for word in " ".join(LEXICON).split()})
    (data / "bert-base-uncased-vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *words]), "utf-8"
    )
    sources, evaluation = tmp_path / "sources.toml", tmp_path / "evaluation.toml"
    sources.write_text(
        'sources = [{ name = "local", group = "a", format = "documents", paths = "local.txt", licence = "x" },'
        '{ name = "pages", group = "b", format = "markdown", repository = "owner/name", commit = "HEAD", '
        'paths = "md$", licence = "CC0" },'
        '{ name = "absent", group = "b", format = "markdown", repository = "no/where", commit = "HEAD", paths = "", '
        'licence = "CC0" }]\n[mixtures.small]\na = 1\nb = 1\n',
        "utf-8",
    )
    evaluation.write_text('sets = [{ name = "Dev", files = "*.tsv" }, { name = "No", files = "*.none" }]', "utf-8")
    command = f"corpus --mirrors {mirrors} --data {data} --out {tmp_path / 'out'} --mixture small --workers 1"
    monkeypatch.setattr(sys, "argv", [*command.split(), "--sources", str(sources), "--evaluation", str(evaluation)])
    corpus.main()
    manifest = json.loads((tmp_path / "out" / "small.json").read_text("utf-8"))
    local, pages = manifest["sources"]
    assert (local["keep"], local["used"]) == (36 * 40, 36 * 40)
    assert pages["near_duplicate"] == 6 * 40  # the article that local.txt has, too
    assert (pages["contaminated"], pages["sets"]) == (40, {"Dev": 1})
    assert pages["used"] == (12 * 6 - 6 - 1) * 40
    assert manifest["evaluation sets that were absent"] == ["No"]
    text = (tmp_path / "out" / "small.text" / "00.txt").read_text("utf-8")
    assert articles[1].splitlines()[2] not in text
    assert (tmp_path / "out" / "small" / "manifest.json").exists()
    page = write(manifest)
    assert "| Dev | 1 | pages 1 |" in page
    assert "tree/HEAD" in page
