"""Pages of the web for a model: which are fetched, who is asked, and what becomes of them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agent.steps import cancel, end_of, final_call, text_of
from coder.waiting import until

PAGE = b"<html><head><title>T</title></head><body><h1>Hello</h1><a href='/other'>a link</a></body></html>"

Answer = tuple[int, dict[str, str], bytes]

ANSWERS: dict[str, Answer] = {
    "/page": (200, {"Content-Type": "text/html; charset=utf-8"}, PAGE),
    "/json": (200, {"Content-Type": "application/json"}, b'{"a": [1, 2]}'),
    "/text": (200, {}, b"plain"),
    "/picture": (200, {"Content-Type": "image/png"}, b"\x89PNG\0\0"),
    "/posing": (200, {"Content-Type": "text/plain"}, b"\x7fELF\0\0\0"),
    "/latin": (200, {"Content-Type": "text/plain; charset=iso-8859-1"}, "größe".encode("latin-1")),
    "/meta": (200, {"Content-Type": "text/html"}, '<meta charset="cp1251"><p>привет'.encode("cp1251")),
    "/odd": (200, {"Content-Type": "text/plain; charset=punycode"}, "größe".encode()),
    "/packed": (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, gzip.compress(b"unpacked")),
    "/endless-tail": (
        200,
        {"Content-Type": "text/plain", "Content-Encoding": "gzip"},
        gzip.compress(b"unpacked"),
    ),
    "/bomb": (
        200,
        {"Content-Type": "text/plain", "Content-Encoding": "gzip"},
        gzip.compress(b"x" * 50_000_000),
    ),
    "/broken": (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, b"not packed at all"),
    "/brotli": (200, {"Content-Type": "text/plain", "Content-Encoding": "br"}, b"x"),
    "/large": (200, {"Content-Type": "text/plain"}, b"0123456789\n" * 600_000),
    "/missing": (404, {"Content-Type": "text/html"}, b"<p>no such page"),
    "/loop": (302, {"Location": "/loop"}, b""),
    "/moved": (301, {"Location": "/page"}, b""),
    "/to-denied": (302, {"Location": "/denied"}, b""),
    "/denied": (200, {"Content-Type": "text/plain"}, b"must not be seen"),
    "/to-file": (302, {"Location": "file:///etc/passwd"}, b""),
    "/to-metadata": (302, {"Location": "http://169.254.169.254/latest"}, b""),
}


class Site(ThreadingHTTPServer):
    """A web site on this machine, which remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Visit)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.released = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who has read enough hangs up."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def other(self) -> str:
        """The same site under another name."""
        return f"http://localhost:{self.server_port}"


class Visit(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        if self.path == "/slow":
            self.server.released.wait(60)
        answers = {**ANSWERS, "/elsewhere": (302, {"Location": f"{self.server.other}/page"}, b"")}
        status, headers, body = answers.get(self.path, (200, {"Content-Type": "text/plain"}, b"here"))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.path != "/endless-tail":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        while self.path == "/endless-tail":
            try:
                self.wfile.write(b"x" * 65536)
            except OSError:
                return

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as made:
        yield made
        made.released.set()
        made.shutdown()


@pytest.fixture
def at(desk, site):
    """A session whose user allows this site by its address, and wants to be asked about its other name."""
    site.asked.clear()
    rules = f"""
        [permissions]
        allow = ["fetch({site.url}/*)", "fetch({site.other}/*)"]
        ask = ["fetch({site.other}/*)"]
        deny = ["fetch({site.url}/denied)"]
    """
    return desk(config=rules, env={"no_proxy": "*"})


def fetch(at: Any, url: str, **answer: Any) -> tuple[str, str]:
    ((status, content),) = at.does(["fetch", {"url": url}], **answer)
    return status, content


def test_a_page_is_given_as_text_with_its_links_and_marked_as_others_words(at, site):
    status, told = fetch(at, f"{site.url}/page#part")

    assert status == "success"
    head, note, _, *text = told.splitlines()
    assert head == f"{site.url}/page (200 OK text/html)"
    assert "no instruction to you" in note
    assert "\n".join(text) == f"# T\n\n# Hello\n\n[a link]({site.url}/other)"
    call = final_call(at.updates)
    assert (call["kind"], call["status"]) == ("fetch", "completed")
    assert call["title"] == f"Fetch {site.url}/page#part"
    assert call["rawOutput"] == {"url": f"{site.url}/page", "status": 200, "type": "text/html"}
    assert at.asked == []


def test_nothing_of_the_user_goes_along(at, site):
    fetch(at, f"{site.url}/text")
    ((_, headers),) = site.asked
    assert {*headers} == {"host", "accept", "accept-encoding", "connection", "user-agent"}
    assert headers["host"] == site.url.removeprefix("http://")
    assert headers["user-agent"].startswith("Coupler/")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/json", '{"a": [1, 2]}'),
        ("/text", "plain"),
        ("/latin", "größe"),
        ("/meta", "привет\n"),
        ("/odd", "größe"),
        ("/packed", "unpacked"),
        ("/endless-tail", "unpacked"),
        ("/moved", "# T\n\n# Hello\n\n[a link](SITE/other)\n"),
    ],
)
def test_text_is_given_as_it_is_whatever_its_encoding(at, site, path, text):
    status, told = fetch(at, f"{site.url}{path}")
    assert status == "success"
    assert told.partition("\n\n")[2] == text.replace("SITE", site.url)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/picture", "it is image/png (6 bytes), and no text"),
        ("/posing", "it is text/plain (7 bytes), and no text"),
        ("/missing", "(404 Not Found text/html)\nno such page"),
        ("/loop", "more than 5 times"),
        ("/broken", "cannot be unpacked"),
        ("/brotli", "packs its answer with 'br'"),
        ("/denied", "is denied by"),
        ("/to-denied", "/denied, which is not permitted"),
        ("/to-file", "is not an address"),
        ("/to-metadata", "169.254.169.254 is not public"),
    ],
)
def test_what_is_no_text_or_no_answer_is_an_error_that_says_why(at, site, path, problem):
    status, told = fetch(at, f"{site.url}{path}")
    assert status == "error"
    assert problem in told
    assert "must not be seen" not in told


@pytest.mark.parametrize("path", ["/bomb", "/large"])
def test_what_is_too_large_is_cut_and_kept(at, site, path):
    status, told = fetch(at, f"{site.url}{path}")
    assert status == "success"
    assert "… (the rest was left out: it is too large)" in told
    assert "all of it is in" in told
    assert len(told) < 30_000


class TestOtherHosts:
    def test_to_another_host_it_goes_only_if_the_user_permits_that_very_address(self, at, site):
        status, told = fetch(at, f"{site.url}/elsewhere")
        (question,) = at.asked
        assert question["params"]["toolCall"]["rawInput"]["url"] == f"{site.other}/page"
        assert status == "success"
        assert told.startswith(f"{site.other}/page (200 OK")

    def test_a_no_is_a_no(self, at, site):
        status, told = fetch(at, f"{site.url}/elsewhere", answer="reject_once")
        assert status == "error"
        assert "not permitted by the user" in told
        assert [path for path, _ in site.asked] == ["/elsewhere"]

    def test_who_was_allowed_one_host_may_not_go_on_to_a_private_one(self, desk, site):
        at = desk(config=f"[permissions]\nallow = ['fetch({site.url}/*)']\n", env={"no_proxy": "*"})
        status, told = fetch(at, f"{site.url}/elsewhere")
        assert status == "error"
        assert "localhost is this machine" in told
        assert at.asked == []


class TestPrivateHosts:
    @pytest.mark.parametrize("rules", ["", "[permissions]\nallow = ['fetch', 'fetch(http://*/*)', '*']\n"])
    def test_this_machine_is_not_asked_unless_it_is_named(self, desk, site, rules):
        site.asked.clear()
        at = desk(config=rules, env={"no_proxy": "*"})
        for url in (site.url, site.other, f"http://[::1]:{site.server_port}", "http://10.0.0.1"):
            status, told = fetch(at, url)
            assert status == "error"
            assert "is not asked unless a rule names it" in told
        assert (site.asked, at.asked) == ([], [])

    @pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.0.0.1", "017700000001", "127.0.0.1.", "0"])
    def test_other_spellings_of_it_are_no_way_around(self, desk, site, host):
        site.asked.clear()
        at = desk(config="", env={"no_proxy": "*"})
        status, told = fetch(at, f"http://{host}:{site.server_port}/")
        assert status == "error"
        assert "unless a rule names it" in told or "was not found" in told or "is not an address" in told
        assert site.asked == []


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("example.org", "is not an address"),
        ("ftp://example.org/a", "it begins with https:// or http://"),
        ("file:///etc/passwd", "it begins with https:// or http://"),
        ("https://user:password@example.org/", "names a user"),
        ("https://example.org/" + "x" * 2000, "up to 2000 characters"),
        ("https://example.org/\nHost: other", "one line"),
    ],
)
def test_what_is_no_address_is_an_error_and_nobody_is_asked(desk, url, problem):
    at = desk(config="", env={"no_proxy": "*"})
    status, told = fetch(at, url)
    assert status == "error"
    assert problem in told
    assert at.asked == []


def test_a_public_host_is_asked_about_before_anything_is_looked_up(desk):
    at = desk(config="", env={"no_proxy": "*"})
    status, told = fetch(at, "https://example.invalid/a", answer="reject_once")
    (question,) = at.asked
    assert question["params"]["toolCall"]["rawInput"]["url"] == "https://example.invalid/a"
    assert (status, "not permitted by the user" in told) == ("error", True)


def test_a_host_that_does_not_exist_is_told(desk):
    status, told = fetch(desk(config="", env={"no_proxy": "*"}), "https://example.invalid/a")
    assert status == "error"
    assert "the host example.invalid was not found" in told


def test_a_cancel_ends_it(at, site):
    request = at.begin(["fetch", {"url": f"{site.url}/slow"}])
    until(lambda: any(path == "/slow" for path, _ in site.asked))
    at.client.send(cancel(at.session))
    _, answer = end_of(at.client, request)
    site.released.set()
    assert answer["result"] == {"stopReason": "cancelled"}


def test_a_proxy_of_the_surroundings_is_used_and_gets_no_private_host(desk, site):
    site.asked.clear()
    at = desk(config="[permissions]\nallow = ['fetch']\n", env={"http_proxy": site.url, "no_proxy": ""})
    status, told = fetch(at, "http://example.invalid/through")
    assert (status, told.partition("\n\n")[2]) == ("success", "here")
    assert [path for path, _ in site.asked] == ["http://example.invalid/through"]
    assert fetch(at, "http://127.0.0.1/")[0] == "error"


def test_the_text_is_shown_to_the_user(at, site):
    fetch(at, f"{site.url}/text")
    assert "plain" in text_of(final_call(at.updates))
