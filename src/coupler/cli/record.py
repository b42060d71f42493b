"""`coupler record`: records what an editor and an agent say, as a tap between them.

It reads its own arguments and imports next to nothing, because an editor waits for the agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coupler.cli.exit_codes import DONE, print_error, refuse

if TYPE_CHECKING:
    from coupler.wire.tap import RecordingFeed, Tap


HELP = """\
Usage: coupler record [OPTIONS] [--] COMMAND...

  Record what an editor and an agent say to each other.

  COMMAND starts the agent. Put `coupler record --` before it where the editor
  is told how to start the agent: every byte is passed on as it is, and written
  to a file with its time. `coupler check --trace FILE` judges the recording,
  and `coupler replay FILE` plays it.

  Secrets are masked in the file, not in what is passed on.

  Examples:
    coupler record -- opencode acp
    coupler record -o session.ndjson -- coupler serve agent.py

Options:
  -o, --output FILE  Write to this file instead of a new one in the user's own
                     directory. If there is such a file, a number is added.
  --no-mask          Keep secrets in the file.
  -q, --quiet        Do not tell the file's name on stderr.
  -h, --help         Show this message and exit.

Exit codes: that of the agent, 128 and the signal's number if a signal ended
it, 2 for wrong usage, 127 if the agent cannot be started.
"""

PROGRAM = "coupler record"

CANNOT_START = 127
"""The exit code of a shell for a missing program: this command stands in the agent's place."""


class RecordArguments:
    """The parsed command line."""

    def __init__(self) -> None:
        self.command: list[str] = []
        self.output: str | None = None
        self.mask = True
        self.is_quiet = False


def main(arguments: list[str]) -> None:
    """Passes everything on until the agent ends, and ends as it does."""
    from coupler.wire.tap import RecordingFeed, exit_at_once, open_missing_streams

    given = parse(arguments)
    open_missing_streams()
    descriptor, path = _open(given)
    feed = RecordingFeed()
    # First, because the process that writes also ends the agent if we are killed.
    _start_writer(feed, descriptor, given)
    tap = _start_tap(given.command, feed)
    if not given.is_quiet:
        print_error(f"the recording is in {path}", PROGRAM)
    code = tap.run()
    if tap.is_recorded is None:
        print_error(f"the end of the recording is still being written to {path}", PROGRAM)
    elif not tap.is_recorded:
        print_error(
            f"the recording is not complete: {path} could not be written fast enough, or not at all", PROGRAM
        )
    exit_at_once(code)


def parse(arguments: list[str]) -> RecordArguments:
    """Parses the options and the command after them; a mistake ends the program."""
    given = RecordArguments()
    rest = iter(arguments)
    for word in rest:
        option, equals, value = word.partition("=")
        if word == "--":
            break
        if not word.startswith("-"):
            given.command = [word]
            break
        if word in ("-h", "--help"):
            from coupler.cli.output import say

            say(HELP)
            raise SystemExit(DONE)
        if option in ("-o", "--output"):
            given.output = (value if equals else next(rest, "")) or refuse(f"{option} needs a file", PROGRAM)
        elif word == "--no-mask":
            given.mask = False
        elif word in ("-q", "--quiet"):
            given.is_quiet = True
        else:
            refuse(f"there is no option {option}; there are --output, --no-mask and --quiet", PROGRAM)
    given.command += rest
    if not given.command or not given.command[0]:
        refuse("say how the agent is started, as in: coupler record -- my-agent --acp", PROGRAM)
    return given


def _open(given: RecordArguments) -> tuple[int, str]:
    from coupler.runtime.directories import NoHomeError
    from coupler.wire.tap import RecordingFileError, default_recording_path, open_recording

    if given.output == "-":
        refuse("stdout belongs to the editor and the agent: name a file after --output", PROGRAM)
    try:
        return open_recording(given.output or default_recording_path(given.command))
    except NoHomeError as error:
        refuse(f"{error}, or name a file with --output", PROGRAM)
    except RecordingFileError as error:
        refuse(
            str(error) if given.output else f"{error}: name a file with --output, or set COUPLER_HOME",
            PROGRAM,
        )


def _start_tap(command: list[str], feed: RecordingFeed) -> Tap:
    from coupler.wire.tap import WINDOWS, Tap

    try:
        return Tap(_full_command(command) if WINDOWS else command, feed)
    except (OSError, ValueError):
        # What else is there to know about a command is only looked up when it is needed.
        found = _full_command(command)
    try:
        return Tap(found, feed)
    except (OSError, ValueError) as error:
        print_error(f"{command[0]!r} could not be started: {error}", PROGRAM)
        raise SystemExit(CANNOT_START) from None


def _full_command(command: list[str]) -> list[str]:
    """The command with its program's full path; if there is none, the program ends with an error."""
    import os
    from pathlib import Path

    from coupler.client_api import startable_command
    from coupler.runtime.environment import SpawnError, find_program, split_command

    try:
        program, *words = split_command(startable_command(command))
        return [str(find_program(program, cwd=Path.cwd(), environment=os.environ)), *words]
    except SpawnError as error:
        print_error(str(error), PROGRAM)
        raise SystemExit(CANNOT_START) from None


def _start_writer(feed: RecordingFeed, descriptor: int, given: RecordArguments) -> None:
    import json
    import os
    import time

    from coupler.wire.tap import agent_name

    header = {
        "label": agent_name(given.command),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": given.command,
        "mask": given.mask,
    }
    try:
        feed.start(descriptor, json.dumps(header).encode())
    except OSError as error:
        print_error(f"nothing is recorded: {error}", PROGRAM)  # the editor and the agent go on
    os.close(descriptor)
