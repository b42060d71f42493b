"""The forms of a report, with all that a candidate could put into it."""

import io
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

import tables
from coupler.conformance.assertion import MUST, SHOULD, TASTE, Assertion, Level
from coupler.conformance.rendering import (
    legible,
    print_assertions,
    print_report,
    section_address,
    to_html,
    to_json,
    to_junit,
)
from coupler.conformance.report import AssertionResult, ConformanceReport, ReportFrame

NASTY = "a\x1b[31mb\x00c]]>d<script>alert(1)</script>&e\"f'g\u202eh\ud800i[bold]j\ufffek\x9bl\r"
VOID = {"meta", "input"}


def result(id: str, outcome: str, level: Level = MUST, message: str = "", **more) -> AssertionResult:
    clause = "" if level is TASTE else f"the clause of {id}"
    assertion = Assertion(id, level, f"the sentence of {id}", "prompt-turn#stop-reasons", clause, "agent")
    return AssertionResult(assertion, outcome, level, message, **more)


def frame(text: str, sender: str = "agent", at: float = 0.5, is_cause: bool = False) -> ReportFrame:
    return ReportFrame(at, sender, text, is_cause)


EVERYTHING = ConformanceReport(
    "my-agent --acp",
    "agent",
    [
        result(
            "A01",
            "failed",
            message=f"bad: {NASTY}",
            frames=(frame("hello", "client"), frame(NASTY, is_cause=True), frame("x" * 100_000)),
            stderr=f"Traceback\n{NASTY}",
            notes=("a note on a failure",),
            seconds=1.25,
        ),
        result(
            "A02", "failed", SHOULD, "could be better", frames=(frame("y"),), notes=("note of a warning",)
        ),
        result("A03", "failed", TASTE, "clients suffer"),
        result("A04", "passed", notes=(f"a note {NASTY}",)),
        result("A05", "passed"),
        result("A06", "skipped", message="the agent does not advertise x"),
        result("A07", "skipped", message="the agent does not advertise x"),
    ],
    seconds=12.34,
)
FINE = ConformanceReport(
    "my-agent", "agent", [result("A05", "passed"), result("A06", "skipped", message="no")]
)


def table(report: ConformanceReport, width: int = 80, is_verbose: bool = False, **options) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False, **options)
    print_report(report, console, is_verbose=is_verbose)
    return file.getvalue()


class Page(HTMLParser):
    """Fails on tags that do not match; keeps the tags and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


# For people at a terminal


def test_the_table_begins_with_what_fails_and_ends_with_the_verdict():
    lines = table(EVERYTHING).splitlines()

    titles = [line for line in lines if re.fullmatch(r"\w+ \(\d\)", line)]
    assert titles == ["Failed (1)", "Warnings (1)", "Notes (4)", "Skipped (2)", "Passed (2)"]
    assert lines[-2:] == [
        "my-agent --acp (12.3 s)",
        "✘ ACP v1 agent: does not conform (2 passed, 1 failed, 1 warned, 1 noted, 2 skipped)",
    ]


def test_a_failure_shows_its_level_sentence_message_section_and_frames():
    lines = table(EVERYTHING).splitlines()
    begin = lines.index("FAIL A01  must   the sentence of A01")

    assert lines[begin + 1] == "                 bad:"
    assert lines[begin + 2].startswith("                 a\\x1b[31mb\\x00c]]>d<script>")
    assert "     https://agentclientprotocol.com/protocol/v1/prompt-turn#stop-reasons" in lines
    assert "      0.500 → hello" in lines
    assert any(line.startswith("  ▶   0.500 ← a\\x1b[31mb\\x00c]]>d<script>") for line in lines)
    assert "    stderr: Traceback" in lines
    assert "WARN A02  should the sentence of A02" in lines
    assert "  A03  the sentence of A03: clients suffer" in lines


def test_a_finding_shows_what_the_specification_says_and_taste_that_it_says_nothing():
    lines = [line.strip() for line in table(EVERYTHING, is_verbose=True).splitlines()]

    assert lines.count("“the clause of A01”") == 1
    assert lines.count("“the clause of A02”") == 1
    taste = lines.index("NOTE A03  taste  the sentence of A03")
    assert lines[taste + 1 : taste + 3] == ["clients suffer", "the specification leaves this open"]


def test_what_nothing_works_without_comes_first():
    ids = ("A52", "A01", "A11", "A08", "A21")
    report = ConformanceReport("agent", "agent", [result(id, "failed", message="bad") for id in ids])

    lines = table(report).splitlines()
    shown = [line.split()[1] for line in lines if line.startswith("FAIL")]
    assert shown == ["A08", "A01", "A21", "A52", "A11"]


def test_what_was_skipped_for_the_same_reason_is_one_line_and_what_passed_is_a_list_of_ids():
    lines = table(EVERYTHING).splitlines()
    assert "  A06 A07: the agent does not advertise x" in lines
    assert "  A04 A05" in lines


@tables.table("width", [1, 20, 40, 80, 120, 200])
@tables.table("is_verbose", [False, True])
def test_every_width_can_be_printed(width, is_verbose):
    printed = table(EVERYTHING, width, is_verbose)

    wrapped = [line for line in printed.splitlines() if "https://" not in line and "✘" not in line]
    assert max(map(len, wrapped)) <= max(width, 40)
    assert not any(line.endswith(" ") for line in printed.splitlines())


def test_a_long_frame_is_cut_unless_all_is_wanted():
    assert table(EVERYTHING).count("x") < 200
    assert table(EVERYTHING, is_verbose=True).count("x") >= 100_000


def test_of_many_frames_those_around_the_cause_are_shown_unless_all_are_wanted():
    frames = tuple(frame(f"frame {number}", is_cause=number == 30) for number in range(40))
    report = ConformanceReport("x", "agent", [result("A01", "failed", message="m", frames=frames)])

    shown = re.findall(r"frame (\d+)", table(report))
    assert shown == ["26", "27", "28", "29", "30", "31"]
    assert table(report).count("more, -v shows all") == 2
    assert len(re.findall(r"frame \d+", table(report, is_verbose=True))) == 40


def test_a_candidate_cannot_write_to_the_terminal():
    printed = table(EVERYTHING, is_verbose=True, force_terminal=True, color_system="truecolor")

    without_colours = re.sub(r"\x1b\[[\d;]*m", "", printed)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800]", without_colours)
    assert "[bold]" in without_colours
    assert "\x1b[31mb\\x00" not in printed


def test_nothing_is_coloured_when_piped():
    assert "\x1b" not in table(EVERYTHING)


def test_a_stream_without_unicode_gets_plain_arrows():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    print_report(EVERYTHING, Console(file=stream, width=80, highlight=False))
    stream.flush()

    printed = stream.buffer.getvalue().decode()
    assert "-> hello" in printed
    assert "failed: ACP v1 agent: does not conform" in printed


def test_a_fine_report_is_short():
    assert table(FINE) == (
        "\nSkipped (1)\n  A06: no\n\nPassed (1)\n  A05\n\nmy-agent (0.0 s)\n"
        "✔ ACP v1 agent: conforms (1 passed, 1 skipped)\n"
    )


def test_verbose_shows_the_sentences_of_what_passed():
    assert "  A05  must   the sentence of A05 (0.00 s)" in table(FINE, is_verbose=True).splitlines()


def test_the_catalogue_is_listed():
    file = io.StringIO()
    assertions = [each.assertion for each in EVERYTHING.results[:3]]
    print_assertions(assertions, Console(file=file, width=80))
    assert file.getvalue().splitlines() == [
        "A01  must   the sentence of A01 (prompt-turn#stop-reasons)",
        "A02  should the sentence of A02 (prompt-turn#stop-reasons)",
        "A03  taste  the sentence of A03 (prompt-turn#stop-reasons)",
    ]


# For programs


def test_json_has_its_documented_form():
    text = to_json(EVERYTHING)
    document = json.loads(text)

    assert text.isascii()
    assert [*document] == [
        "format",
        "version",
        "coupler",
        "side",
        "subject",
        "passes",
        "verdict",
        "seconds",
        "counts",
        "results",
    ]
    assert (document["format"], document["version"]) == ("coupler.report", 2)
    assert document["passes"] is False
    assert document["counts"] == {"passed": 2, "failed": 1, "warned": 1, "noted": 1, "skipped": 2}
    outcomes = [each["outcome"] for each in document["results"]]
    assert outcomes == ["failed", "warned", "noted", "passed", "passed", "skipped", "skipped"]
    assert [each["level"] for each in document["results"][:3]] == ["must", "should", "taste"]
    assert [each["clause"] for each in document["results"][:3]] == [
        "the clause of A01",
        "the clause of A02",
        "",
    ]


def test_json_shows_the_frames_of_failures_as_they_are():
    failed, *_, passed = json.loads(to_json(EVERYTHING))["results"]

    assert failed["frames"][1] == {"at": 0.5, "from": "agent", "text": NASTY, "cause": True}
    assert failed["stderr"] == f"Traceback\n{NASTY}"
    assert "frames" not in passed


# For continuous integration


def test_junit_counts_only_mandatory_failures():
    suites = ET.fromstring(to_junit(EVERYTHING).encode())
    (suite,) = suites

    for element in (suites, suite):
        assert {name: element.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
            "tests": "7",
            "failures": "1",
            "errors": "0",
            "skipped": "2",
        }
    cases = suite.findall("testcase")
    assert [case.get("classname") for case in cases[:3]] == [
        "acp.agent.must",
        "acp.agent.should",
        "acp.agent.taste",
    ]
    kinds = [[child.tag for child in case] for case in cases]
    assert kinds == [
        ["failure", "system-out"],
        ["system-out"],
        ["system-out"],
        ["system-out"],
        [],
        ["skipped"],
        ["skipped"],
    ]


def test_junit_explains_a_failure_whatever_it_holds():
    (suite,) = ET.fromstring(to_junit(EVERYTHING).encode())
    failure = suite.find("testcase/failure")

    assert failure.get("message") == f"bad: {legible(NASTY)}"
    assert f">    0.500 <- {legible(NASTY)}" in failure.text.splitlines()
    assert "     0.500 -> hello"[2:] in failure.text
    assert suite.findall("testcase")[1].find("system-out").text.startswith("warning: could be better\n")


# For a browser


@pytest.mark.parametrize("report", [EVERYTHING, FINE], ids=["everything", "fine"])
def test_the_page_is_well_formed_and_loads_and_runs_nothing(report):
    page = Page(to_html(report))

    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    for _, attributes in page.tags:
        assert not attributes.keys() & {"src", "srcset", "style"}
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "https://agentclientprotocol.com/").startswith(
            "https://agentclientprotocol.com/"
        )
    assert "url(" not in to_html(report)
    assert "@import" not in to_html(report)


def test_the_page_shows_frames_as_text():
    text = to_html(EVERYTHING)

    assert Page(text).text.count(legible(NASTY)) >= 4
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    text.encode()


def test_the_page_can_be_filtered_by_outcome():
    page = Page(to_html(EVERYTHING))

    shown = [attributes["class"] for tag, attributes in page.tags if tag == "article"]
    assert shown == ["failed noted", "warned noted", "noted", "passed noted", "passed", "skipped", "skipped"]
    labels = re.findall(r"\b([a-z]{1,9}) \((\d)\)", page.text)
    assert labels == [
        ("all", "7"),
        ("failed", "1"),
        ("warned", "1"),
        ("noted", "4"),
        ("passed", "2"),
        ("skipped", "2"),
    ]
    for name, _ in labels[1:]:
        assert f"#show-{name}:checked ~ article:not(.{name})" in page.text


def test_the_verdict_is_a_badge_on_top():
    assert '<span class="badge failed">ACP v1 agent: does not conform' in to_html(EVERYTHING)
    assert '<span class="badge passed">ACP v1 agent: conforms' in to_html(FINE)


# In all of them


@tables.table(
    ("section", "address"),
    [
        ("initialization", "https://agentclientprotocol.com/protocol/v1/initialization"),
        ("schema: ContentBlock", None),
        ("JSON-RPC 2.0", None),
        ("javascript:alert(1)", None),
    ],
)
def test_only_pages_of_the_protocol_are_linked(section, address):
    assert section_address(section) == address


def test_an_empty_report_can_be_shown():
    empty = ConformanceReport("x", "client")
    assert "ACP v1 client" in table(empty)
    assert json.loads(to_json(empty))["results"] == []
    ET.fromstring(to_junit(empty))
    Page(to_html(empty))
