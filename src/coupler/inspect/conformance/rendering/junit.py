"""A report as JUnit XML, which CI services show.

Only a mandatory failure is a `failure`. Warnings and notes go to `system-out`: a service that counts failures
then agrees with the exit code.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from coupler.inspect.conformance.rendering.wording import LEVEL_WORDS, legible, one_line, standing
from coupler.inspect.conformance.report import Report, Result


def to_junit(report: Report) -> str:
    """One suite with one case an assertion."""
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


def _add_case(suite: Element, report: Report, result: Result) -> None:
    test = SubElement(
        suite,
        "testcase",
        {
            "classname": f"acp.{report.side}.{LEVEL_WORDS[result.level]}",
            "name": one_line(f"{result.assertion.id} {result.assertion.sentence}"),
            "time": f"{result.seconds:.3f}",
        },
    )
    match standing(result):
        case "failed":
            attributes = {"message": one_line(result.message), "type": LEVEL_WORDS[result.level]}
            SubElement(test, "failure", attributes).text = legible(_explanation(result))
        case "skipped":
            SubElement(test, "skipped", {"message": one_line(result.message)})
        case "warned":
            SubElement(test, "system-out").text = legible(f"warning: {_explanation(result)}{_notes(result)}")
            return
        case "passed":
            pass
    if result.notes:
        SubElement(test, "system-out").text = legible(_notes(result))


def _explanation(result: Result) -> str:
    lines = [result.message, f"section: {result.assertion.section}"]
    for frame in result.frames:
        mark, arrow = ">" if frame.is_cause else " ", "->" if frame.sender == "client" else "<-"
        lines.append(f"{mark} {frame.at:8.3f} {arrow} {one_line(frame.text)}")
    if result.stderr:
        lines += ["stderr:", result.stderr.rstrip()]
    return "\n".join(lines) + "\n"


def _notes(result: Result) -> str:
    return "".join(f"note: {note}\n" for note in result.notes)
