"""Turns files of XML formats into documents: lists of paragraphs."""

import functools
import html
import re
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from benchmarks.corpus.prose import Document

_NAMED_ENTITY = re.compile(rb"&(?!(?:amp|lt|gt|quot|apos);)(\w+);")
_NO_GAPS: Mapping[str, str] = {}


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _parse(content: bytes) -> Element:
    try:
        return ElementTree.fromstring(content)
    except ElementTree.ParseError:  # entities of a DTD
        content = _NAMED_ENTITY.sub(lambda match: html.unescape(match[0].decode()).encode(), content)
        return ElementTree.fromstring(content)


@functools.cache
def _local(tag: str) -> str:
    return tag.rpartition("}")[2].lower()


def _text(node: Element, skip: frozenset[str], gaps: Mapping[str, str] = _NO_GAPS) -> str:
    """Return the text of a node without the elements in `skip`; `gaps` gives the text of empty elements."""
    parts = [node.text or ""]
    for child in node:
        name = _local(child.tag)
        if name in gaps:
            parts.append(gaps[name])
        elif name not in skip:
            parts.append(_text(child, skip, gaps))
        parts.append(child.tail or "")
    return "".join(parts)


def _blocks(
    node: Element, skip: frozenset[str], block: frozenset[str], gaps: Mapping[str, str] = _NO_GAPS
) -> Iterator[str]:
    """Yield the text of every outermost block below a node."""
    for child in node:
        name = _local(child.tag)
        if name in block:
            yield _text(child, skip, gaps)
        elif name not in skip:
            yield from _blocks(child, skip, block, gaps)


_CITATION = re.compile(
    r"[(\[][^()\[\]]*\b(?:1[89]|20)\d\d[a-z]?\b[^()\[\]]*[)\]]"
    r"|\((?:[^()]{0,40}\b(?:Figures?|Figs?\.?|Tables?|Videos?|Supplementary|Appendix)\b[^()]*)\)"
)
_REFERENCE = re.compile(r"\b(?:19|20)\d\d;\s?\d+|doi\.org/10|\bdoi: ?10")
_JATS_SKIP = _names(
    "table-wrap disp-formula disp-formula-group inline-formula tex-math fig fig-group media supplementary-material "
    "ref-list table label fn-group ack app-group boxed-text object-id permissions preformat code sec-meta"
)
_JATS_BLOCK = _names("p title")


def _without_citations(paragraph: str) -> str:
    paragraph = " ".join(paragraph.split())
    return _CITATION.sub("", paragraph) if "(" in paragraph or "[" in paragraph else paragraph


def jats(content: bytes) -> Iterator[Document]:
    """A journal article: its title, abstracts and body."""
    root = _parse(content)
    body = root.find("./body")
    if body is not None:
        title = root.find(".//front//article-title")
        paragraphs = [] if title is None else [_text(title, _JATS_SKIP)]
        for abstract in root.findall("./front//abstract"):
            if abstract.get("abstract-type") not in ("toc", "graphical"):
                paragraphs += _blocks(abstract, _JATS_SKIP, _JATS_BLOCK)
        yield [_without_citations(paragraph) for paragraph in (*paragraphs, *_blocks(body, _JATS_SKIP, _JATS_BLOCK))]


def jats_letters(content: bytes) -> Iterator[Document]:
    """The review letters of a journal article."""
    for body in _parse(content).findall("./sub-article/body"):
        letter = map(_without_citations, _blocks(body, _JATS_SKIP, _JATS_BLOCK))
        yield [paragraph for paragraph in letter if not _REFERENCE.search(paragraph)]


_TEI_SKIP = _names(
    "teiheader temphead note figure figdesc table pb fw milestone gap titlepage bibl idg listbibl index front"
)
_TEI_BLOCK = _names("p head l lg ab item speech sp opener closer salute signed")
_PAGE_HEAD = re.compile(r"^\W*(?:\d+\W*)?(?:[A-Z][A-Z'’.,-]*\W+){1,7}(?:\d+\W+)?(?=[A-Za-z\"“'])|^\W*\d{1,4}\W+")
_FOOTNOTE = re.compile(r"\s*\d{1,3}[A-Z\"“]")
_SENTENCE_END = re.compile(r"(?<=[.!?][\"”']) (?=[A-Z\"“'])|(?<=[.!?]) (?=[A-Z\"“'])")


def _joined_pages(pages: list[str], size: int = 130) -> Iterator[str]:
    """Join scanned pages without page headings and hyphens of line ends, and cut them at sentences."""
    text = " ".join(_PAGE_HEAD.sub("", " ".join(page.split())) for page in pages)
    text = re.sub(r"(?<=[a-z])- (?=[a-z])", "", text)
    paragraph: list[str] = []
    words = 0
    for sentence in _SENTENCE_END.split(text):
        paragraph.append(sentence)
        words += sentence.count(" ") + 1
        if words >= size:
            yield " ".join(paragraph)
            paragraph, words = [], 0
    yield " ".join(paragraph)


def _outermost(node: Element, name: str) -> Iterator[Element]:
    for child in node:
        if _local(child.tag) == name:
            yield child
        else:
            yield from _outermost(child, name)


def tei(content: bytes) -> Iterator[Document]:
    """Encoded editions by paragraph; a scan in one long paragraph by page."""
    for text in _outermost(_parse(content), "text"):
        pages = sum(_local(node.tag) == "pb" for node in text.iter())
        blocks = list(_blocks(text, _TEI_SKIP, _TEI_BLOCK))
        if pages > 20 and len(blocks) < pages:
            yield list(_joined_pages(_text(text, _TEI_SKIP - {"pb"}, {"pb": "\f"}).split("\f")[3:]))
        else:
            yield [re.sub(r"(?<=[a-z])-\s+(?=[a-z])", "", block) for block in blocks if not _FOOTNOTE.match(block)]


def tcp(content: bytes) -> Iterator[Document]:
    """The Text Creation Partnership's books, without paragraphs in which over 2 % of the words are illegible."""
    for text in _parse(content).iter("TEXT"):
        paragraphs = []
        for block in _blocks(text, _TEI_SKIP - {"front"}, _TEI_BLOCK, {"gap": "•"}):
            block = re.sub(r"[¦∣|]\s*", "", block).replace("ſ", "s")
            if block.count("•") <= 0.02 * (block.count(" ") + 1):
                paragraphs.append(block.replace("•", ""))
        yield paragraphs


_LAW_SKIP = _names(
    "marginalnote label historicalnote identification definedtermfr tablegroup formulagroup imagegroup "
    "recentamendments relatedprovisions notinforce repealed schedule longtitle"
)


def lims(content: bytes) -> Iterator[Document]:
    """Canada's consolidated acts and regulations."""
    root = _parse(content)
    title = root.find(".//LongTitle")
    paragraphs = [] if title is None else [_text(title, _LAW_SKIP)]
    yield [*paragraphs, *_blocks(root, _LAW_SKIP, _names("text titletext"))]


_CNXML_SKIP = _names("metadata equation table figure media math exercise solution note link footnote commentary")


def cnxml(content: bytes) -> Iterator[Document]:
    """OpenStax modules."""
    yield list(_blocks(_parse(content), _CNXML_SKIP, _names("para title item")))


def abstracts(content: bytes) -> Iterator[Document]:
    """The ACL Anthology: the title and the abstract of each paper that has one."""
    for paper in _parse(content).iter("paper"):
        title, abstract = (paper.find(name) for name in ("title", "abstract"))
        if title is not None and abstract is not None:
            yield [_text(title, _ABSTRACT_SKIP), _text(abstract, _ABSTRACT_SKIP)]


_ABSTRACT_SKIP = _names("tex-math url")
