"""The elements of an HTML page, which must be closed in order."""

from html.parser import HTMLParser

_VOID = ("meta", "link", "input", "br")


class Elements(HTMLParser):
    """The elements of a page: names and attributes."""

    def __init__(self, content):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(content)
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def with_name(self, name):
        return [attributes for tag, attributes in self.elements if tag == name]
