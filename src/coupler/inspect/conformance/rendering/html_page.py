"""A report as one HTML file: it loads nothing, runs no script, and can be mailed or kept as a CI artefact.

All that comes from the candidate goes through `_text`: a frame is shown, never interpreted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from coupler.__about__ import __version__
from coupler.inspect.conformance.rendering.wording import (
    LEVEL_WORDS,
    Standing,
    legible,
    section_address,
    standing,
)
from coupler.inspect.conformance.report import Frame, Report, Result

ORDER: tuple[Standing, ...] = ("failed", "warned", "passed", "skipped")

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Even if something got through the escaping, a browser would load and run nothing."""

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


def to_html(report: Report) -> str:
    """The whole page."""
    return "\n".join(_page(report)) + "\n"


def _page(report: Report) -> Iterator[str]:
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
        for result in report.results:
            if standing(result) == name:
                yield from _article(result)
    yield "</main>"
    yield f"<footer>coupler {__version__}, {report.seconds:.1f} s. "
    yield "Only what an implementation <em>must</em> do decides the verdict.</footer>\n</body>\n</html>"


def _filters(report: Report) -> Iterator[str]:
    """Radio buttons, next to the articles that they hide by style alone."""
    counts, noted = report.count(), sum(bool(result.notes) for result in report.results)
    numbers = {"all": len(report.results), **{str(name): counts[name] for name in ORDER}, "noted": noted}
    for name, number in numbers.items():
        checked = " checked" if name == "all" else ""
        yield f'<input type="radio" name="show" id="show-{name}"{checked}>'
        yield f'<label for="show-{name}">{name} ({number})</label>'


def _article(result: Result) -> Iterator[str]:
    name, assertion = standing(result), result.assertion
    noted = " noted" if result.notes else ""
    yield f'<article class="{name}{noted}" id="{_text(assertion.id)}">'
    yield f'<h2><span class="outcome">{name}</span><span class="id">{_text(assertion.id)}</span>'
    yield f"{_text(assertion.sentence)}</h2>"
    if result.message:
        yield f'<p class="message">{_text(result.message)}</p>'
    for note in result.notes:
        yield f"<p>Note: {_text(note)}</p>"
    where = f"{LEVEL_WORDS[result.level]} · {_section(assertion.section)}"
    yield f'<p class="faint">{where} · {result.seconds:.2f} s</p>'
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


def _table(frames: Sequence[Frame]) -> Iterator[str]:
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
