"""Performs `run` steps: a script in a file of its own, run by a shell in a process group of its own.

The script never passes through a command line, where everybody could read it and a long one would not fit.
What the command leaves running in its group is ended with it, also if the step is cancelled or we are killed.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import functools
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from coupler.fields.json_types import JsonType, JsonTypeError, json_type_of
from coupler.redaction.sources import secret_variables, withheld_sentence
from coupler.runtime.commands import Capture, RunningCommand
from coupler.runtime.environment import Environment, SpawnError
from coupler.runtime.extras import MissingExtraError
from coupler.runtime.guard import guarded_file
from coupler.runtime.process import READ_BYTES
from coupler.workflow.engine.attempt import Attempt
from coupler.workflow.errors import StepError
from coupler.workflow.journal.run_events import Result, Wrote
from coupler.workflow.language.library import read_file_beside
from coupler.workflow.language.model import ErrorKind, Json, Run
from coupler.workflow.steps.shell_script import make_script

GRACE = 5.0
"""Seconds that a command, or what it left running, has to end by itself once it is told to."""

LAST_MOMENTS = 0.05
"""Seconds that a cancelled command has before it is told to end.

One that has done its work and is about to exit would be repeated by a resumed run if it was killed.
"""

MOST_HEAD = 12 * 1024 * 1024
MOST_TAIL = 4 * 1024 * 1024
"""Bytes of stdout, and as many of stderr, that are kept: the first and the last of them."""

NOT_RUN = 126
"""The exit code of shells for a program that is there, but could not be run."""

LONGEST_REASON = 300
"""Characters of a failed command's last words that are part of the error's message."""

STDOUT_NAME = "What the command wrote to stdout"
"""The subject of sentences about a command's output."""

_KINDS: dict[str, ErrorKind] = {
    "missing_program": "not_found",
    "missing_directory": "not_found",
    "not_executable": "not_found",
    "bad_environment": "template",
}


async def perform_command(step: Run, attempt: Attempt) -> Result:
    """Run the script to its end; raises `StepError`, which has what the command wrote, if it ran."""
    if sys.platform == "win32":
        raise StepError(
            "not_found", "A `run` step needs a POSIX shell: run this workflow in WSL, or elsewhere."
        )
    template = step.script if step.file is None else read_file_beside(step.file, attempt.workflow.file)
    script = make_script(template or "", attempt.names, attempt.expressions, step.shell)
    stdin = None if step.stdin is None else _encode(attempt.text(step.stdin))
    withheld = _withheld(attempt)
    ending = await _run(step, attempt, script.text, stdin, withheld)
    return _judge(step, ending, attempt.mask, withheld)


def _withheld(attempt: Attempt) -> list[str]:
    """Return the variables of ours that hold secrets, and that neither workflow nor step passes on."""
    passed = {*attempt.workflow.secrets, *attempt.env}
    return [name for name in secret_variables(os.environ) if name not in passed]


async def _run(
    step: Run, attempt: Attempt, script: bytes, stdin: bytes | None, withheld: Sequence[str]
) -> _Ending:
    with _script_file(step, script) as file:
        job = _start(step.shell, file, attempt, stdin, withheld)
        stdout, stderr = _Stream("stdout", attempt), _Stream("stderr", attempt)
        with contextlib.closing(job):
            try:
                await _until_over(job, stdout, stderr)
            except asyncio.CancelledError:
                if not _is_done(job):
                    attempt.work.partial = _partial(stdout, stderr)
                    raise
                # Its work was done when the cancel came, which is raised once the result is recorded.
            finally:
                stdout.finish()
                stderr.finish()
    assert job.returncode is not None
    return _Ending(job.returncode, stdout.kept, stderr.kept)


async def _until_over(job: RunningCommand, stdout: _Stream, stderr: _Stream) -> None:
    """Hear a command to its end, and end what it left running; if it is cancelled, end it as well."""
    linger = 0.0
    try:
        await job.hear(stdout.hear, stderr.hear)
        await job.wait()
    except asyncio.CancelledError:
        linger = LAST_MOMENTS
        raise
    finally:
        # Also if it is cancelled; what is left then has something to say until its end.
        await job.end(GRACE, stdout.hear, stderr.hear, linger=linger)


def _is_done(job: RunningCommand) -> bool:
    """Tell whether a command that was cancelled had come to its own end before.

    One that a signal ended was in its midst, whoever sent that: a shutdown sends one to all processes.
    """
    return job.has_ended_itself and job.returncode is not None and job.returncode >= 0


def _partial(stdout: _Stream, stderr: _Stream) -> Result:
    """Return what a command wrote before it was ended."""
    written, errors = (_decode(stream.kept.content()) for stream in (stdout, stderr))
    return Result(status="cancelled", stdout=written, stderr=errors)


@contextlib.contextmanager
def _script_file(step: Run, script: bytes) -> Iterator[str]:
    """Write the script to a private file, whose name makes the shell's messages name the step."""
    try:
        descriptor, file = tempfile.mkstemp(prefix=f"coupler-{step.id[:40]}-", suffix=".sh")
    except OSError as error:
        raise _unwritten(error) from None
    with guarded_file(file):
        try:
            try:
                with open(descriptor, "wb") as opened:  # noqa: PTH123 - it is open already
                    opened.write(script)
            except OSError as error:
                raise _unwritten(error) from None
            yield file
        finally:
            Path(file).unlink(missing_ok=True)


def _unwritten(error: OSError) -> StepError:
    message = f"The script could not be written to a temporary file: {error.strerror}. Is TMPDIR right?"
    return StepError("exit", message, exit_code=NOT_RUN)


def _start(
    shell: str, file: str, attempt: Attempt, stdin: bytes | None, withheld: Sequence[str]
) -> RunningCommand:
    # The shell's own variable would name the directory that we are in.
    environment = Environment.inherit({**dict.fromkeys(withheld), **attempt.env, "PWD": attempt.cwd})
    try:
        return RunningCommand.start(
            [shell, file], cwd=attempt.cwd, env=environment, input=stdin, hears_stderr=True
        )
    except SpawnError as error:
        kind = _KINDS.get(error.kind, "exit")
        raise StepError(kind, error.message, exit_code=NOT_RUN if kind == "exit" else None) from None
    except UnicodeEncodeError:
        message = "An environment variable of the step has a value that is no text: half a surrogate pair."
        raise StepError("template", message) from None


class _Ending(NamedTuple):
    """Exit code and output of a command."""

    returncode: int
    stdout: Capture
    stderr: Capture

    @property
    def exit_code(self) -> int:
        """The exit code as a shell gives it: 128 plus the number of the signal that ended the command."""
        return self.returncode if self.returncode >= 0 else 128 - self.returncode

    def result(self, status: Literal["success", "failed"]) -> Result:
        return Result(
            status=status,
            stdout=_decode(self.stdout.content()),
            stderr=_decode(self.stderr.content()),
            exit_code=self.exit_code,
        )

    def in_words(self, mask: Callable[[str], str]) -> str:
        """Describe how the command ended, with the last line of its stderr."""
        if self.returncode >= 0:
            how = f"The command ended with exit code {self.returncode}"
        else:
            how = f"The command was ended by {_name(-self.returncode)}"
        # Without secrets before it is cut: nobody would recognise the half of one.
        last = mask(_decode(self.stderr.content().rstrip().rpartition(b"\n")[2]).strip())
        last = last.encode(errors="surrogateescape").decode(errors="replace")
        return f"{how}: {last[:LONGEST_REASON]}" if last else f"{how}."


def _judge(step: Run, ending: _Ending, mask: Callable[[str], str], withheld: Sequence[str]) -> Result:
    code = ending.exit_code
    if code not in step.ok_codes:
        message = ending.in_words(mask)
        if withheld and code != 0:
            hint = withheld_sentence(withheld, "`secrets` of the workflow")
            message = f"{message.removesuffix('.')}; {hint}"
        raise StepError("exit", message, exit_code=code, result=ending.result("failed"))
    result = ending.result("success")
    try:
        return msgspec.structs.replace(result, output=_output(step, result, ending.stdout))
    except StepError as error:
        failed = msgspec.structs.replace(result, status="failed")
        raise StepError(error.kind, str(error), exit_code=code, result=failed) from None


def _output(step: Run, result: Result, stdout: Capture) -> Json | msgspec.UnsetType:
    if step.output is not None and stdout.is_cut:
        raise StepError("invalid_output", "The command wrote more to stdout than can be kept and read.")
    return parsed_output(step, result.stdout or "")


def parsed_output(step: Run, stdout: str) -> Json | msgspec.UnsetType:
    """Parse stdout into `steps.x.output`, or `UNSET` if the step does not ask for it; raises `StepError`."""
    match step.output:
        case None:
            return msgspec.UNSET
        case "lines":
            return lines_of(stdout)
        case "json":
            return decoded_json(stdout, STDOUT_NAME)
        case _:
            return fitting(
                schema_of(step.output, step.position.file), decoded_json(stdout, STDOUT_NAME), STDOUT_NAME
            )


def lines_of(text: str) -> list[str]:
    """Return the lines of a text without their ends; the last one may have none."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def schema_of(output: Json, workflow_file: str) -> Json:
    """Return the schema of a step's output, from the workflow or from a file beside it."""
    if not isinstance(output, str):
        return output
    return decoded_json(read_file_beside(output, workflow_file), f"The schema {output!r}")


def fitting(schema: Json, value: Json, what: str) -> Json:
    """Return a value that fits the schema of a step's output; raises `StepError`, which calls it `what`."""
    try:
        return _shape(msgspec.json.encode(schema)).read(value)
    except JsonTypeError as error:
        raise StepError("invalid_output", f"{what} does not fit the schema, {error}.") from None


@functools.lru_cache(maxsize=64)
def _shape(schema: bytes) -> JsonType:
    """Parse the schema of a step's output; cached, because loops use the same one again."""
    decoded = msgspec.json.decode(schema)
    if not isinstance(decoded, dict):
        raise StepError("invalid_output", "The step's `output` is no JSON Schema: that is an object.")
    try:
        return json_type_of(decoded)
    except TypeError as error:
        raise StepError("invalid_output", f"The step's `output` cannot be used: {error}.") from None
    except MissingExtraError as error:
        raise StepError("not_found", f"{error}.") from None


def decoded_json(text: str, what: str) -> Json:
    """Parse JSON; raises `StepError` with its place for what is none, which calls it `what`."""
    if not text.strip():
        raise StepError("invalid_output", f"{what} is not JSON: it is empty.")
    try:
        return msgspec.json.decode(text)
    except UnicodeEncodeError as error:
        problem = f"a byte that is not UTF-8{_place(text[: error.start])}"
    except msgspec.DecodeError as error:
        problem = _problem(str(error), text)
    except RecursionError:
        problem = "it is nested too deeply"
    raise StepError("invalid_output", f"{what} is not JSON: {problem}.")


def _problem(message: str, text: str) -> str:
    """Return what is wrong with JSON, and at which place of the text."""
    if "truncated" in message:
        return f"it ends too early{_place(text)}"
    found = re.fullmatch(r"JSON is malformed: (.*) \(byte (\d+)\)", message)
    if found is None:
        return message
    return f"{found[1]}{_place(text.encode()[: int(found[2])].decode(errors='ignore'))}"


def _place(before: str) -> str:
    return f" in line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"


class _Stream:
    """Sends what comes from one pipe to the log and to the result.

    Shown is what is kept: of an endless output the beginning as it comes, and the end when it is over.
    """

    def __init__(self, name: Literal["stdout", "stderr"], attempt: Attempt) -> None:
        self.kept = Capture(MOST_HEAD, MOST_TAIL)
        self._name: Literal["stdout", "stderr"] = name
        self._attempt = attempt
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def hear(self, chunk: bytes) -> None:
        self._show(self._decoder.decode(self.kept.append(chunk)))

    def finish(self) -> None:
        if self.kept.is_cut:
            self._decoder.reset()
        self._show(self._decoder.decode(self.kept.rest(), final=True))

    def _show(self, text: str) -> None:
        for start in range(0, len(text), READ_BYTES):
            self._attempt.emit(Wrote(stream=self._name, text=text[start : start + READ_BYTES]))


def _encode(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise StepError("template", "The step's `stdin` is no text: it has half a surrogate pair.") from None


def _decode(written: bytes) -> str:
    return written.decode("utf-8", "surrogateescape")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
