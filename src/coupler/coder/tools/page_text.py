"""Program that turns a page of HTML into text that reads well; of the standard library only.

It is given the page's address, reads the page from stdin and writes Markdown to stdout: headings, lists,
links, code and tables. What is not said to readers (scripts, styles, menus of the site) is left out.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from urllib.parse import urljoin

SKIPPED = frozenset(
    {"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "canvas", "video", "audio"}
    | {"nav", "footer", "button", "select", "textarea", "dialog", "head"}
)
VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
BLOCKS = frozenset(
    {"p", "div", "section", "article", "main", "header", "aside", "figure", "figcaption", "address", "form"}
    | {"dl", "dt", "dd", "fieldset", "details", "summary", "table", "thead", "tbody", "tfoot", "caption"}
    | {"ul", "ol", "blockquote", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "body", "html"}
)
OPENS = {
    **{f"h{level}": f"\n\n{'#' * level} " for level in range(1, 7)},
    "br": "\n",
    "hr": "\n\n---\n\n",
    "pre": "\n\n```\n",
    "blockquote": "\n\n> ",
    "tr": "\n|",
}
EMPHASIS = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`", "kbd": "`", "samp": "`"}
DEEPEST_LIST = 12
LONGEST_LINK = 500


def main() -> None:
    """Convert the page on stdin, from the address that is given."""
    page = sys.stdin.buffer.read().decode("utf-8", "replace")
    sys.stdout.buffer.write(readable(page, sys.argv[1]).encode("utf-8", "replace"))


def readable(page: str, address: str) -> str:
    """The page at an address as Markdown."""
    reader = _Reader(address)
    reader.feed(page)
    reader.close()
    text = reader.text()
    title = reader.title()
    return text if not title or title in text[: 2 * len(title) + 20] else f"# {title}\n\n{text}"


class _Reader(HTMLParser):
    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self._address = address
        self._pieces: list[str] = []
        self._title: list[str] = []
        self._in_title = False
        self._skipped: list[str] = []
        self._lists: list[int | None] = []
        self._links: list[tuple[str, int]] = []
        self._in_pre = 0

    def text(self) -> str:
        """Return what was read, without empty lines in a row."""
        text = "".join(self._pieces)
        text = re.sub(r"[ \t]+\n", "\n", text)
        return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"

    def title(self) -> str:
        """Return the title of the page."""
        return " ".join("".join(self._title).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = True
        elif tag == "body":
            self._skipped.clear()
        elif tag in SKIPPED:
            self._skipped.append(tag)
        elif not self._skipped:
            self._begin(tag, {name: value or "" for name, value in attrs})

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID and tag not in SKIPPED:
            self.handle_endtag(tag)
        elif self._skipped and self._skipped[-1] == tag:
            self._skipped.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._skipped:
            # Whatever was left open inside of it ends with it.
            while self._skipped.pop() != tag:
                pass
        elif not self._skipped:
            self._end(tag)

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif not self._skipped:
            self._say(data)

    def _say(self, data: str) -> None:
        if self._in_pre:
            self._pieces.append(data)
            return
        words = " ".join(data.split())
        if not words:
            if data and self._pieces and not self._pieces[-1].endswith((" ", "\n")):
                self._pieces.append(" ")
            return
        begins = " " if data[0].isspace() and self._pieces and not self._ends_space() else ""
        self._pieces.append(f"{begins}{words}{' ' if data[-1].isspace() else ''}")

    def _begin(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in OPENS:
            self._pieces.append(OPENS[tag])
            self._in_pre += tag == "pre"
        elif tag == "img":
            self._say(f"[image: {attributes['alt']}]" if attributes.get("alt", "").strip() else "")
        elif tag == "a":
            self._links.append((attributes.get("href", "").strip(), len(self._pieces)))
        elif tag in ("ul", "ol"):
            self._lists.append(0 if tag == "ol" else None)
            self._pieces.append("" if len(self._lists) > 1 else "\n\n")
        elif tag == "li":
            self._begin_item()
        elif tag in ("td", "th"):
            self._pieces.append(" ")
        elif tag in BLOCKS:
            self._pieces.append("\n\n" if not self._lists else "\n")
        elif tag in EMPHASIS and not self._in_pre:
            self._pieces.append(EMPHASIS[tag])

    def _begin_item(self) -> None:
        depth = min(len(self._lists), DEEPEST_LIST)
        mark = "-"
        if self._lists and (count := self._lists[-1]) is not None:
            self._lists[-1] = count + 1
            mark = f"{count + 1}."
        self._pieces.append(f"\n{'  ' * max(depth - 1, 0)}{mark} ")

    def _end(self, tag: str) -> None:
        if tag == "a" and self._links:
            self._end_link(*self._links.pop())
        elif tag == "pre" and self._in_pre:
            self._in_pre -= 1
            self._pieces.append("\n```\n\n")
        elif tag in ("ul", "ol") and self._lists:
            self._lists.pop()
            self._pieces.append("" if self._lists else "\n\n")
        elif tag in ("td", "th"):
            self._pieces.append(" |")
        elif tag in BLOCKS:
            self._pieces.append("\n\n" if not self._lists else "\n")
        elif tag in EMPHASIS and not self._in_pre:
            self._pieces.append(EMPHASIS[tag])

    def _end_link(self, target: str, start: int) -> None:
        said = "".join(self._pieces[start:])
        is_worth_it = target and not target.startswith(("#", "javascript:", "data:")) and said.strip()
        if is_worth_it and len(target) <= LONGEST_LINK and "\n" not in said.strip():
            before = said[: len(said) - len(said.lstrip())]
            link = f"{before}[{said.strip()}]({self._absolute(target)})"
            self._pieces[start:] = [link, " " if said.endswith(" ") else ""]

    def _absolute(self, target: str) -> str:
        try:
            return urljoin(self._address, target)
        except ValueError:
            return target

    def _ends_space(self) -> bool:
        return self._pieces[-1].endswith((" ", "\n"))


if __name__ == "__main__":
    main()
