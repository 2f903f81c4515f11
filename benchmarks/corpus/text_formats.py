"""Turns files of plain text, Markdown and JSON into documents: lists of paragraphs."""

import html
import json
import re
from collections.abc import Iterator

from benchmarks.corpus.prose import Document


def decode(content: bytes) -> str:
    """Decode UTF-8, or Windows-1252 where it is not valid, and normalize line ends."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", "replace")
    return text.replace("\r\n", "\n")


def documents(content: bytes) -> Iterator[Document]:
    """Text in the layout of the corpus: documents between blank lines, a paragraph on each line."""
    for document in re.split(r"\n\n+", decode(content)):
        yield document.split("\n")


_BOOK_START = re.compile(r"\*\*\* ?START OF.*?\*\*\*|\*END\*?THE SMALL PRINT.*\n")
_BOOK_END = re.compile(
    r"\*\*\* ?END OF|\n[ \t]*End of (?:the )?Project Gutenberg"
    r"|\n[ \t]*(?:FOOTNOTES?|Footnotes?|NOTES|ENDNOTES)[:.]?\s*(?:\n|\d)|\n[ \t]*INDEX\n\n"
)
_BOOK_NOTES = re.compile(r"\[(?:Illustration|Footnote|Transcriber|Sidenote)[^\]]*\]|\[Pg \d+\]|\[\d+\]|\{\d+\}")
_BOOK_LICENCE = re.compile(
    r"Gutenberg|Distributed Proofread|[Pp]roduced by|\.txt|www\.|E-text|All rights reserved|Copyright,? "
)


def gutenberg(content: bytes) -> Iterator[Document]:
    """Books of Project Gutenberg without licence, contents, index, notes and illustrations."""
    text = decode(content)
    start = _BOOK_START.search(text)
    third = len(text) // 3
    end = _BOOK_END.search(text, third)
    text = _BOOK_NOTES.sub(" ", text[start.end() if start else 0 : end.start() if end else None])
    paragraphs = []
    for part in re.split(r"\n\s*\n", text):
        rows = [row.strip() for row in part.split("\n") if row.strip()]
        if not rows or _BOOK_LICENCE.search(part):
            continue
        numbered = sum(row[-1].isdigit() for row in rows)
        if re.search(r"\.{4}|\. \. \. \.|\s{4}\d+$", part) or numbered > len(rows) / 2:
            continue  # contents and indexes
        paragraph = " ".join(rows).replace("_", "").replace("--", " — ")
        if len(paragraph.split()) > 2 or re.match(r"(?i)chapter|[IVXL]+\.?$", paragraph):
            paragraphs.append(paragraph)
    first = next((number for number, line in enumerate(paragraphs) if len(line.split()) > 40), len(paragraphs))
    yield paragraphs[max(0, first - 1) :]


def plain(content: bytes) -> Iterator[Document]:
    """A text whose paragraphs are separated by blank lines, after a heading that ends with a line of ===+."""
    text = re.sub(r"\[\d+:\d+:\d+\]|-\n(?=[a-z])", "", decode(content).rsplit("====+", 1)[-1])
    yield re.split(r"\n\s*\n", text)


_FENCE = re.compile(r"^(`{3,}|~{3,}|:::).*?^\1[`~:]*\s*$", re.M | re.S)
_LIST_ITEM = r"(?:[-*+]|\d+[.)]|#+)\s+"
_PART = re.compile(r"\n\s*\n|\n(?=\s*(?:>|" + _LIST_ITEM + "))")
_NOT_PROSE = re.compile(
    r"[{}<>=;]{2,}|^(?:Applies to|Important|Note|Tip|Warning|See also|Next steps)\W*$|^import |\w+\(\)$"
)


def _without_markup(text: str) -> str:
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    text = re.sub(r"(?m)^#.*\{.*?\}\s*$", " ", re.sub(r"(?s)<!--.*?-->", " ", _FENCE.sub("\n", text)))
    text = re.sub(r"(?s)<(table|pre|script|style)\b.*?</\1>", " ", text)
    text = re.sub(r"!\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])|:::image.*?:::", " ", text)
    text = re.sub(r"\{\{[^}]*?\(\"([^\"]*)\"[^}]*\}\}", r"\1", text)
    text = re.sub(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    text = re.sub(r"</?[A-Za-z][^>\n]*>|\{\{.*?\}\}|\{%.*?%\}|\[!\w+[^\]]*\]|\[\^[^\]]*\]:?", " ", text)
    return re.sub(r"\*\*|__|(?<!\w)[*_](?=\w)|(?<=\w|[.,])[*_](?!\w)|`|\\(?=\W)", "", html.unescape(text))


def _markdown_paragraphs(text: str) -> Document:
    paragraphs = []
    for part in _PART.split(_without_markup(text)):
        rows = [re.sub(r"^(?:>\s*)+|^" + _LIST_ITEM, "", row.strip()) for row in part.split("\n")]
        rows = [row for row in rows if row and "|" not in row and not re.match(r"[\w.-]+:\s*\S+$|https?:", row)]
        if rows:
            paragraphs.append(" ".join(rows))
    return [paragraph for paragraph in paragraphs if not _NOT_PROSE.search(paragraph)]


def markdown(content: bytes) -> Iterator[Document]:
    """Markdown without code, tables, images, macros and link targets."""
    yield _markdown_paragraphs(decode(content))


_HISTORY = re.compile(
    r"\n#+ (?:Amendments|Editorial Notes|Statutory Notes|References in Text|Prior Provisions|Codification).*", re.S
)


def statute(content: bytes) -> Iterator[Document]:
    """A section of the US Code in Markdown, without the history of its amendments."""
    paragraphs: Document = []
    for paragraph in _markdown_paragraphs(_HISTORY.sub("", decode(content))):
        note = re.match(r"\(?(?:Added|Amended|Pub\. L\.|June|July|Aug)\b.{0,40}Stat\.|.*Repealed\.? Pub", paragraph)
        if not note and paragraph not in paragraphs[:1]:
            paragraphs.append(re.sub(r"\s(\d{1,2}) \1? ?So in original\.[^.]*\.", " ", paragraph))
    yield paragraphs


_SPEAKER = re.compile(r"^\**[A-Z][\w.’' -]{1,40}:\**:?\s*(?:\(?\d+:[\d:]+\)?)?\s*")
_TIME = re.compile(r"\\?\[[\d:. ~]+\\?\]|\(?\d+:\d\d(?::\d\d)?\)?")


def talk(content: bytes) -> Iterator[Document]:
    """Transcripts in Markdown: a turn on each line, without names of speakers and times."""
    turns = [_SPEAKER.sub("", _TIME.sub("", line)) for line in _markdown_paragraphs(decode(content))]
    links = re.compile(r"(?i)(?:slides|video|media|podcast|https?)\b")
    yield [turn for turn in turns if len(turn.split()) > 3 and not links.match(turn)]


_WIKI_END = re.compile(
    r"=*\s*(?:References|External links|See also|Further reading|Notes|Bibliography|Sources)\s*=*\.?$", re.I
)


def wiki(content: bytes) -> Iterator[Document]:
    """Wikipedia articles as WikiExtractor writes them; a file without <doc> is one article."""
    text = decode(content)
    for article in re.findall(r"<doc [^>]*>(.*?)</doc>", text, re.S) or [text]:
        paragraphs: Document = []
        for line in re.sub(r"\{\{[^{}]*\}\}|\[\d+\]|<[^>]+>", " ", html.unescape(article)).split("\n"):
            line = re.sub(r"\[\[(?:[^\]|]*\|)?([^\]]*)\]\]|'''?", r"\1", line.strip()).strip("= ")
            if _WIKI_END.match(line):
                break
            if len(line.split()) > 3 or (line and not paragraphs):
                paragraphs.append(line)
        yield paragraphs


def segments(content: bytes) -> Iterator[Document]:
    """JSON of numbered segments (SuttaCentral): the segments of a paragraph have its number."""
    paragraphs: dict[str, list[str]] = {}
    for number, text in json.loads(decode(content)).items():
        if isinstance(text, str):
            paragraphs.setdefault(number.rsplit(".", 1)[0], []).append(re.sub(r"</?\w+>", "", text).strip())
    yield [" ".join(paragraph) for paragraph in paragraphs.values()]


def dialogues(content: bytes) -> Iterator[Document]:
    """JSON lists of dialogues, such as Schema-Guided Dialogue: a turn on each line."""
    for dialogue in json.loads(decode(content)):
        turns = dialogue["turns"]
        yield [" ".join(turn["utterance"].split()) for turn in turns]


def sentences(content: bytes) -> Iterator[Document]:
    """Sentences that don't belong together, one on each line: a document each hundred lines."""
    lines = decode(content).split("\n")
    for start in range(0, len(lines), 100):
        yield lines[start : start + 100]
