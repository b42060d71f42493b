"""Renders a report for a terminal, as JSON, as JUnit XML or as one HTML file.

In a terminal failures come first, with the messages that show them. What the candidate wrote is untrusted
text: it is made legible, cut to what one reads, and never taken as markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rich.console import Console  # noqa: TID251 - the command makes it, by `coupler.cli.output`
from rich.text import Text

from coupler.__about__ import __version__
from coupler.conformance.assertion import Assertion, Level
from coupler.conformance.report import ORDER, AssertionResult, ConformanceReport, ReportFrame, Standing
from coupler.runtime.terminal_text import CONTROLS

PROTOCOL = "https://agentclientprotocol.com/protocol/v1/"

_PAGE = re.compile(r"[a-z][a-z0-9-]*(#[a-z0-9-]+)?")

FRAMES_BEFORE = 4
FRAMES_AFTER = 1
"""Messages shown before and after the last that a failure is about, unless all are wanted."""

CAUSES = 3
"""Number of the messages that a failure is about, from the first, that are always shown."""

MESSAGE_LINES = 6
CAUSE_LINES = 5
STDERR_LINES = 5
"""Most lines of a failure's message, of a message it is about, and of stderr; other frames take one."""

NARROWEST = 20
"""Columns that text is given even if the terminal has fewer."""

# What could move a cursor, reorder a line or end an XML document early. Tab and line end are no danger.
_UNSEEN = re.compile(f"[{CONTROLS}\u2028\u2029\ufffe\uffff\ud800-\udfff]")

SIGNS: dict[Standing, tuple[str, str]] = {
    "failed": ("FAIL", "bold red"),
    "warned": ("WARN", "bold yellow"),
    "noted": ("NOTE", "bold cyan"),
}

LEFT_OPEN = "the specification leaves this open"


FORMAT = "coupler.report"
FORMAT_VERSION = 2

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Content security policy: a browser loads and runs nothing, even if something got through the escaping."""


def print_report(report: ConformanceReport, console: Console, *, is_verbose: bool = False) -> None:
    """Print the whole report, the verdict last, where the eye is when the command ends."""
    _print_failures(console, "Failed", report.with_standing("failed"), is_verbose)
    _print_failures(console, "Warnings", report.with_standing("warned"), is_verbose)
    _print_notes(console, report, is_verbose)
    _print_skipped(console, report.with_standing("skipped"))
    _print_passed(console, report.with_standing("passed"), is_verbose)
    _print_verdict(console, report)


def print_assertions(assertions: Iterable[Assertion], console: Console) -> None:
    """Print a catalogue: id, level, sentence and section."""
    for assertion in assertions:
        sentence = Text.assemble(assertion.sentence, (f" ({assertion.section})", "dim"))
        _print_row(console, _head(assertion.id, assertion.level), sentence)


def _print_failures(
    console: Console, title: str, results: Sequence[AssertionResult], is_verbose: bool
) -> None:
    if results:
        _print_title(console, title, len(results))
    for number, result in enumerate(results):
        if number:
            console.print()
        _print_failure(console, result, is_verbose)


def _print_failure(console: Console, result: AssertionResult, is_verbose: bool) -> None:
    sign, style = SIGNS[result.standing]
    head = Text.assemble((f"{sign} ", style), _head(result.assertion.id, result.level))
    _print_row(console, head, Text(result.assertion.sentence, "bold"))
    message = legible(result.message)
    if not is_verbose:
        message = _cut(message, _room(console, head) * MESSAGE_LINES)
    _print_row(console, _blank(head), Text(message, style.removeprefix("bold ")))
    _print_source(console, head, result.assertion)
    _print_frames(console, result.frames, is_verbose)
    _print_stderr(console, result.stderr, is_verbose)


def _print_source(console: Console, head: Text, assertion: Assertion) -> None:
    """Print what the specification says, and where.

    The section's address is on one line, however long: terminals open one only if it is whole.
    """
    _print_row(console, _blank(head), Text(_clause(assertion), "dim"))
    address = section_address(assertion.section) or assertion.section
    console.print(Text(f"     {address}", "dim"), soft_wrap=True)


def _clause(assertion: Assertion) -> str:
    return f"“{assertion.clause}”" if assertion.clause else LEFT_OPEN


def _print_frames(console: Console, frames: Sequence[ReportFrame], is_verbose: bool) -> None:
    expected = 0
    for index in range(len(frames)) if is_verbose else _chosen(frames):
        _print_gap(console, index - expected)
        _print_frame(console, frames[index], is_verbose)
        expected = index + 1
    _print_gap(console, len(frames) - expected)


def _chosen(frames: Sequence[ReportFrame]) -> list[int]:
    """Choose the messages that a failure is about, and some around the last of them."""
    causes = [index for index, frame in enumerate(frames) if frame.is_cause]
    last = causes[-1] if causes else len(frames) - 1
    around = range(max(last - FRAMES_BEFORE, 0), min(last + FRAMES_AFTER + 1, len(frames)))
    return sorted({*causes[:CAUSES], *around})


def _print_frame(console: Console, frame: ReportFrame, is_verbose: bool) -> None:
    to_agent, to_client, mark = ("→", "←", "▶") if _speaks_unicode(console) else ("->", "<-", ">")
    head = Text.assemble(
        (f"  {mark if frame.is_cause else ' '}", "bold red"),
        (f"{frame.at:8.3f} ", "dim"),
        (f"{to_agent if frame.sender == 'client' else to_client} ", "cyan"),
    )
    text = one_line(frame.text)
    if not is_verbose:
        text = _cut(text, _room(console, head) * (CAUSE_LINES if frame.is_cause else 1))
    _print_row(console, head, Text(text, "" if frame.is_cause else "dim"))


def _print_gap(console: Console, count: int) -> None:
    if count:
        console.print(Text(f"{'':14}({count} more, -v shows all)", "dim"), soft_wrap=True)


def _print_stderr(console: Console, stderr: str, is_verbose: bool) -> None:
    head = Text("    stderr: ", "dim")
    lines = legible(stderr).rstrip().splitlines()
    for line in lines if is_verbose else lines[-STDERR_LINES:]:
        _print_row(console, head, Text(line if is_verbose else _cut(line, _room(console, head)), "dim"))


def _print_notes(console: Console, report: ConformanceReport, is_verbose: bool) -> None:
    """Print what is only taste, in a few lines each; its frames are shown only if all are wanted."""
    noted = report.with_standing("noted")
    notes = [(result.assertion, note) for result in report.results for note in result.notes]
    if noted or notes:
        _print_title(console, "Notes", len(noted) + len(notes))
    for result in noted:
        if is_verbose:
            _print_failure(console, result, is_verbose)
        else:
            text = f"{result.assertion.sentence}: {one_line(result.message)}"
            head = Text(f"  {result.assertion.id:4} ", "bold")
            _print_row(console, head, Text(_cut(text, _room(console, head) * MESSAGE_LINES)))
    for assertion, note in notes:
        _print_row(console, Text(f"  {assertion.id:4} ", "bold"), Text(one_line(note)))


def _print_skipped(console: Console, results: Sequence[AssertionResult]) -> None:
    """Group skipped assertions by reason: a capability that is missing skips many."""
    if results:
        _print_title(console, "Skipped", len(results))
    reasons: dict[str, list[str]] = {}
    for result in results:
        reasons.setdefault(one_line(result.message), []).append(result.assertion.id)
    for reason, ids in reasons.items():
        _print_row(console, Text("  "), Text(f"{' '.join(ids)}: {reason}", "dim"))


def _print_passed(console: Console, results: Sequence[AssertionResult], is_verbose: bool) -> None:
    if not results:
        return
    _print_title(console, "Passed", len(results))
    if not is_verbose:
        _print_row(console, Text("  "), Text(" ".join(result.assertion.id for result in results), "green"))
        return
    for result in results:
        sentence = Text.assemble(result.assertion.sentence, (f" ({result.seconds:.2f} s)", "dim"))
        _print_row(console, Text.assemble("  ", _head(result.assertion.id, result.level)), sentence)


def _print_verdict(console: Console, report: ConformanceReport) -> None:
    sign, style = ("✔", "bold white on green") if report.passes else ("✘", "bold white on red")
    if not _speaks_unicode(console):
        sign = "ok:" if report.passes else "failed:"
    verdict = f"{sign} {report.verdict()}"
    console.print()
    _print_row(console, Text(), Text(f"{one_line(report.subject)} ({report.seconds:.1f} s)", "dim"))
    badge = Text(verdict) if console.color_system is None else Text(f" {verdict} ", style)
    console.print(badge, soft_wrap=True)


def _print_title(console: Console, title: str, count: int) -> None:
    console.print()
    console.print(Text(f"{title} ({count})", "bold underline"), soft_wrap=True)


def _head(id: str, level: Level) -> Text:
    return Text.assemble((f"{id:4} ", "bold"), f"{level.value:6} ")


def _blank(head: Text) -> Text:
    return Text(" " * head.cell_len)


def _print_row(console: Console, head: Text, body: Text) -> None:
    """Print the body beside the head, on as many lines as it needs."""
    lines = body.wrap(console, _room(console, head), overflow="fold")
    for number, line in enumerate(lines):
        row = Text.assemble(_blank(head) if number else head, line)
        row.rstrip()
        console.print(row, soft_wrap=True)


def _room(console: Console, head: Text) -> int:
    return max(console.width - head.cell_len, NARROWEST)


def _cut(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    ending = f"… +{len(text) - room}"
    return text[: room - len(ending)] + ending


def _speaks_unicode(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")


def to_json(report: ConformanceReport) -> str:
    """Return the whole report as JSON in ASCII, which survives every pipe and log.

    docs/check.md describes it. Fields may be added; none changes its meaning.
    """
    document = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "coupler": __version__,
        "side": report.side,
        "subject": report.subject,
        "passes": report.passes,
        "verdict": report.verdict(),
        "seconds": round(report.seconds, 3),
        "counts": report.count(),
        "results": [_result(result) for result in report.results],
    }
    return json.dumps(document, indent=2) + "\n"


def _result(result: AssertionResult) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": result.assertion.id,
        "level": result.level.value,
        "sentence": result.assertion.sentence,
        "section": result.assertion.section,
        "clause": result.assertion.clause,
        "outcome": result.standing,
        "message": result.message,
        "notes": [*result.notes],
        "seconds": round(result.seconds, 3),
    }
    if result.outcome == "failed":
        described["frames"] = [
            {"at": round(frame.at, 6), "from": frame.sender, "text": frame.text, "cause": frame.is_cause}
            for frame in result.frames
        ]
        described["stderr"] = result.stderr
    return described


def to_junit(report: ConformanceReport) -> str:
    """Return the report as JUnit XML for CI services: one suite with one case an assertion.

    Only a mandatory failure is a `failure`. Warnings and notes go to `system-out`: a service that counts
    failures then agrees with the exit code.
    """
    counts = report.count()
    totals = {
        "tests": str(len(report.results)),
        "failures": str(counts["failed"]),
        "errors": "0",
        "skipped": str(counts["skipped"]),
        "time": f"{report.seconds:.3f}",
    }
    name = f"coupler check: {report.side}"
    suites = Element("testsuites", {"name": name, **totals})
    suite = SubElement(suites, "testsuite", {"name": name, **totals})
    properties = SubElement(suite, "properties")
    for key, value in (("subject", report.subject), ("verdict", report.verdict())):
        SubElement(properties, "property", {"name": key, "value": one_line(value)})
    for result in report.results:
        _add_case(suite, report, result)
    indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(suites, encoding="unicode") + "\n"


def _add_case(suite: Element, report: ConformanceReport, result: AssertionResult) -> None:
    test = SubElement(
        suite,
        "testcase",
        {
            "classname": f"acp.{report.side}.{result.level.value}",
            "name": one_line(f"{result.assertion.id} {result.assertion.sentence}"),
            "time": f"{result.seconds:.3f}",
        },
    )
    match result.standing:
        case "failed":
            attributes = {"message": one_line(result.message), "type": result.level.value}
            SubElement(test, "failure", attributes).text = legible(_explanation(result))
        case "skipped":
            SubElement(test, "skipped", {"message": one_line(result.message)})
        case "warned" | "noted":
            word = "warning" if result.standing == "warned" else "note"
            SubElement(test, "system-out").text = legible(f"{word}: {_explanation(result)}{_notes(result)}")
            return
        case "passed":
            pass
    if result.notes:
        SubElement(test, "system-out").text = legible(_notes(result))


def _explanation(result: AssertionResult) -> str:
    lines = [result.message, f"section: {result.assertion.section}: {_clause(result.assertion)}"]
    for frame in result.frames:
        mark, arrow = ">" if frame.is_cause else " ", "->" if frame.sender == "client" else "<-"
        lines.append(f"{mark} {frame.at:8.3f} {arrow} {one_line(frame.text)}")
    if result.stderr:
        lines += ["stderr:", result.stderr.rstrip()]
    return "\n".join(lines) + "\n"


def _notes(result: AssertionResult) -> str:
    return "".join(f"note: {note}\n" for note in result.notes)


STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --faint: #59636e; --paper: #fff; --panel: #f6f8fa;
  --line: #d1d9e0; --failed: #b3261e; --warned: #8a5a00; --passed: #1a7f37; --skipped: #6e7781;
  --mark: #fff4d6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --faint: #9198a1; --paper: #0d1117;
  --panel: #161b22; --line: #30363d; --failed: #ff7b72; --warned: #e3b341; --passed: #56d364;
  --skipped: #8b949e; --mark: #3b2e0a; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 62rem; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.25rem; margin: 0 0 .75rem; }
code, pre, .frames { font: .8125rem/1.45 ui-monospace, Menlo, Consolas, monospace; }
a { color: inherit; }
.badge { display: inline-block; padding: .35rem .75rem; border-radius: .4rem; font-weight: 600;
  color: var(--paper); background: var(--passed); }
.badge.failed { background: var(--failed); }
.subject { overflow-wrap: anywhere; }
.faint, footer { color: var(--faint); font-size: .875rem; }
input[name=show] { margin: 0 .35rem 0 0; }
input[name=show] + label { margin-right: 1rem; cursor: pointer; }
#show-failed:checked ~ article:not(.failed), #show-warned:checked ~ article:not(.warned),
#show-passed:checked ~ article:not(.passed), #show-skipped:checked ~ article:not(.skipped),
#show-noted:checked ~ article:not(.noted) { display: none; }
article { border: 1px solid var(--line); border-left: .3rem solid var(--skipped); border-radius: .4rem;
  margin: .6rem 0; padding: .55rem .9rem; break-inside: avoid; }
article.noted { border-left-color: var(--faint); }
article.failed { border-left-color: var(--failed); } article.warned { border-left-color: var(--warned); }
article.passed { border-left-color: var(--passed); }
article h2 { font-size: 1rem; margin: 0; font-weight: 600; }
article.skipped h2, article.passed h2 { font-weight: 400; }
article p { margin: .25rem 0; overflow-wrap: anywhere; white-space: pre-wrap; }
.id { font-family: ui-monospace, Menlo, Consolas, monospace; margin-right: .35rem; }
.outcome { font-size: .75rem; font-weight: 700; text-transform: uppercase; letter-spacing: .03em;
  margin-right: .35rem; }
.failed .outcome, .failed .message { color: var(--failed); }
.warned .outcome, .warned .message { color: var(--warned); }
.passed .outcome { color: var(--passed); } .skipped .outcome { color: var(--skipped); }
details { margin: .4rem 0 .2rem; } summary { cursor: pointer; color: var(--faint); font-size: .875rem; }
.frames { width: 100%; border-collapse: collapse; background: var(--panel); margin-top: .3rem; }
.frames td { padding: .15rem .5rem; vertical-align: top; white-space: nowrap; }
.frames td:last-child { white-space: pre-wrap; overflow-wrap: anywhere; width: 100%; }
.frames tr.cause td { background: var(--mark); font-weight: 600; }
pre { background: var(--panel); padding: .5rem; margin: .3rem 0; white-space: pre-wrap;
  overflow-wrap: anywhere; }
footer { margin-top: 2rem; }
@media print { body { max-width: none; padding: 0; font-size: 11pt; } input[name=show],
  input[name=show] + label { display: none; } }
"""


def to_html(report: ConformanceReport) -> str:
    """Return the report as one HTML file.

    It loads nothing, runs no script, and can be mailed or kept as a CI artefact. All that comes from the
    candidate goes through `_text`: it is shown, never interpreted.
    """
    return "\n".join(_page(report)) + "\n"


def _page(report: ConformanceReport) -> Iterator[str]:
    verdict, badge = _text(report.verdict()), "passed" if report.passes else "failed"
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield f"<title>{verdict}</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    yield f'<h1><span class="badge {badge}">{verdict}</span></h1>'
    yield f'<p class="subject"><code>{_text(report.subject)}</code></p>'
    yield "<main>"
    yield from _filters(report)
    for name in ORDER:
        for result in report.with_standing(name):
            yield from _article(result)
    yield "</main>"
    yield f"<footer>coupler {__version__}, {report.seconds:.1f} s. "
    yield "Only what an implementation <em>must</em> do decides the verdict.</footer>\n</body>\n</html>"


def _filters(report: ConformanceReport) -> Iterator[str]:
    """Yield radio buttons that filter the articles by style alone."""
    noted = sum(bool(result.notes) or result.standing == "noted" for result in report.results)
    counts = {**report.count(), "noted": noted}
    numbers = {"all": len(report.results), **{str(name): counts[name] for name in ORDER}}
    for name, number in numbers.items():
        checked = " checked" if name == "all" else ""
        yield f'<input type="radio" name="show" id="show-{name}"{checked}>'
        yield f'<label for="show-{name}">{name} ({number})</label>'


def _article(result: AssertionResult) -> Iterator[str]:
    name, assertion = result.standing, result.assertion
    noted = " noted" if result.notes and name != "noted" else ""
    yield f'<article class="{name}{noted}" id="{_text(assertion.id)}">'
    yield f'<h2><span class="outcome">{name}</span><span class="id">{_text(assertion.id)}</span>'
    yield f"{_text(assertion.sentence)}</h2>"
    if result.message:
        yield f'<p class="message">{_text(result.message)}</p>'
    for note in result.notes:
        yield f"<p>Note: {_text(note)}</p>"
    where = f"{result.level.value} · {_section(assertion.section)}"
    yield f'<p class="faint">{where} · {result.seconds:.2f} s</p>'
    yield f'<p class="faint">{_text(_clause(assertion))}</p>'
    if result.frames:
        yield from _table([frame for frame in result.frames if frame.is_cause])
        yield f"<details><summary>all {len(result.frames)} frames</summary>"
        yield from _table(result.frames)
        yield "</details>"
    if result.stderr.strip():
        yield f"<details><summary>stderr</summary><pre>{_text(result.stderr)}</pre></details>"
    yield "</article>"


def _section(section: str) -> str:
    address = section_address(section)
    return f'<a href="{_text(address)}">{_text(section)}</a>' if address else _text(section)


def _table(frames: Sequence[ReportFrame]) -> Iterator[str]:
    if not frames:
        return
    yield '<table class="frames">'
    for frame in frames:
        mark = ' class="cause"' if frame.is_cause else ""
        title, arrow = ("client to agent", "→") if frame.sender == "client" else ("agent to client", "←")
        yield f'<tr{mark}><td>{frame.at:.3f}</td><td title="{title}">{arrow}</td>'
        yield f"<td>{_text(frame.text)}</td></tr>"
    yield "</table>"


def _text(text: str) -> str:
    return escape(legible(text))


def legible(text: str) -> str:
    """Escape all characters that are not meant to be seen."""
    return _UNSEEN.sub(_escape, text)


def one_line(text: str) -> str:
    """Make the text legible, with line ends and tabs escaped."""
    return legible(text).replace("\n", "\\n").replace("\t", "\\t")


def section_address(section: str) -> str | None:
    """Return the URL of a section of the protocol; None if it is no page, as for `schema: ContentBlock`."""
    return f"{PROTOCOL}{section}" if _PAGE.fullmatch(section) else None


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
