"""The manual as `make docs` builds it: read from the disk, without a server and without a network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(r"<(?:script|img|iframe)\b[^>]*\bsrc=\"?([^\" >]+)|<link\b[^>]*\bhref=\"?([^\" >]+)")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FOLLOWED = re.compile(r"<a\b[^>]*\bhref=\"?([^\" >#]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("manual") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return directory


def test_every_page_is_built_and_gets_nothing_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    fetched = {one or other for page in pages for one, other in FETCHED.findall(page.read_text())}

    assert len(pages) > len([*(ROOT / "docs").rglob("*.md")])
    assert any(each.endswith(".css") for each in fetched) and any(each.endswith(".js") for each in fetched)
    assert [each for each in fetched if re.match(r"(?:https?:)?//", each)] == []


def test_links_lead_to_files_so_that_no_server_is_needed(site: Path) -> None:
    links = {
        (page, target)
        for page in site.rglob("*.html")
        if page.name != "404.html"
        for target in FOLLOWED.findall(page.read_text())
        if ":" not in target
    }

    assert len(links) > 500
    assert [(page.name, target) for page, target in links if not (page.parent / target).is_file()] == []


def test_every_page_has_a_search_that_needs_no_server(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    without = []
    for page in pages:
        scripts = re.findall(r"<script\b[^>]*\bsrc=\"?([^\" >]+)", page.read_text())
        workers = [
            number for number, each in enumerate(scripts) if each.endswith("javascripts/iframe-worker.js")
        ]
        bundles = [number for number, each in enumerate(scripts) if "/bundle." in each]
        if len(workers) != 1 or len(bundles) != 1 or workers > bundles:
            without.append(page.name)
    index = (site / "search" / "search_index.js").read_text().removeprefix("var __index = ")
    found = {entry["location"].partition("#")[0] for entry in json.loads(index)["docs"]}

    assert without == []
    assert found == {str(page.relative_to(site)) for page in pages}


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("page", ["index.html", "decisions/trust.html"])
def test_a_browser_finds_pages_in_files(site: Path, tmp_path: Path, page: str) -> None:
    assert CHROMIUM is not None
    shown = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"),
            *("--virtual-time-budget=20000", "--dump-dom", f"{(site / page).as_uri()}?q=checkpoint"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout

    found = re.findall(r'<a href="([^"]+)" class="md-search-result__link"', shown)
    assert (site / "langchain.html").as_uri() in found
