"""Where `coupler check` writes: the table to a terminal, the other forms of the report to their files.

If one of them goes to stdout it is there alone, and the table goes to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from coupler.cli.check.options import PROGRAM, CheckOptions
from coupler.cli.exit_codes import DONE, FAILED, WRONG_USAGE
from coupler.cli.refusal import refuse

if TYPE_CHECKING:
    from rich.console import Console

    from coupler.conformance.report import Report, Result
    from coupler.recording.traces import Trace

STDOUT = "-"

SPINNER_COLUMNS = 3


class Output:
    """Made before an examination begins, so that a file that cannot be written is no surprise at its end."""

    def __init__(self, options: CheckOptions) -> None:
        self._verbose = options.verbose
        forms = {"json": options.json, "junit": options.junit, "html": options.html}
        self._files = {form: file for form, file in forms.items() if file is not None}
        to_stdout = [f"--{form}" for form, file in self._files.items() if file == STDOUT]
        if len(to_stdout) > 1:
            refuse(f"{' and '.join(to_stdout)} cannot both go to stdout: give all but one a file", PROGRAM)
        for file in self._files.values():
            if file != STDOUT and not Path(file).parent.is_dir():
                refuse(f"{file} cannot be written: {Path(file).parent} is no directory", PROGRAM)
            if file != STDOUT and Path(file).is_dir():
                refuse(f"{file} cannot be written: Is a directory", PROGRAM)
        self.console = _console(sys.stderr if to_stdout else sys.stdout)

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[Result], None]]:
        """A line that shows how far it is; only people at a terminal see it."""
        from rich.text import Text

        if not self.console.file.isatty():
            yield lambda result: None
            return
        done = 0
        with self.console.status("starting") as status:

            def show(result: Result) -> None:
                nonlocal done
                done += 1
                line = f"{done}/{total}  {result.assertion.id}  {result.assertion.sentence}"
                text = Text(line)
                text.truncate(self.console.width - SPINNER_COLUMNS, overflow="ellipsis")
                status.update(text)

            yield show

    def write(self, report: Report) -> None:
        """Print the table, then write the other forms: a full disk costs only those."""
        from coupler.conformance.rendering import print_report, to_html, to_json, to_junit

        make = {"json": to_json, "junit": to_junit, "html": to_html}
        print_report(report, self.console, is_verbose=self._verbose)
        self._advise(report)
        for form, file in self._files.items():
            _write(file, make[form](report))

    def _advise(self, report: Report) -> None:
        failed = next((result for result in report.results if result.is_mandatory_failure), None)
        if failed is not None and not self._verbose:
            advice = f"Add --only {failed.assertion.id} -v to look at one failure with all its frames."
            self.console.print(advice, style="dim", soft_wrap=True)


def _console(stream: IO[str]) -> Console:
    from rich.console import Console

    _forgive(stream)
    return Console(file=stream, highlight=False)


def _write(file: str, text: str) -> None:
    if file == STDOUT:
        _forgive(sys.stdout)
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        refuse(f"{file} cannot be written: {error.strerror}", PROGRAM)


def _forgive(stream: IO[str]) -> None:
    """A character that the stream cannot show is escaped, instead of ending the program."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")


def exit_code(report: Report) -> int:
    """0 if the subject passes, 1 if it does not, and 2 if too little could be judged to say so."""
    if report.passes:
        return DONE
    return FAILED if report.fails else WRONG_USAGE


def save_traces(traces: Sequence[Trace], directory: Path | None, env: Mapping[str, str] | None) -> None:
    """Write all that was said, if somebody wants it, without what was secret in the subject's variables."""
    if directory is None:
        return
    from coupler.redaction.sources import secrets_in_environment

    secrets = secrets_in_environment(env or {})
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for number, trace in enumerate(traces, 1):
            trace.save(directory / f"{number:03}-{trace.label}.ndjson", secrets)
    except OSError as error:
        refuse(f"the traces cannot be written to {directory}: {error.strerror}", PROGRAM)
