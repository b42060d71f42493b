"""Formats values for people, asks on the terminal, and reads and writes the user's files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coupler.cli.exit_codes import FAILED, print_error, refuse
from coupler.cli.output import confirm, stderr
from coupler.runtime.formatting import count, to_datetime
from coupler.runtime.terminal_text import clean, clean_sentence, one_line

if TYPE_CHECKING:
    from coupler.schema.v1 import ImageContent

SESSION_PREFIX = "sess_"
"""The prefix of every session's id; the rest is random."""

SHORT_ID_LENGTH = 8
"""Characters of an id that tell sessions apart well enough."""

MOST_NAMED = 10
"""Things that are named before somebody is asked about them all."""

_UNITS = (("year", 365 * 86400), ("month", 30 * 86400), ("day", 86400), ("hour", 3600), ("minute", 60))

TERMINAL = "/dev/tty"

LONGEST_LINE = 4096
"""Bytes of an answer; a terminal holds no more in a line."""

STDIN = "-"

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The media types that agents take as images."""

LARGEST_IMAGE = 5 * 1024 * 1024
"""Bytes of an image in a prompt."""

BACKUP_SUFFIX = "before-coupler"
"""The suffix of a backup's name; those after the first also have a number."""

LARGEST_FILE = 10_000_000
"""Bytes of a file, at most: no settings are larger."""


def short_id(id: str) -> str:
    """Shortens a session's id to what people type."""
    return clean(id[len(SESSION_PREFIX) :][:SHORT_ID_LENGTH] if id.startswith(SESSION_PREFIX) else id)


def short_agent(identity: str) -> str:
    """Shortens an agent's identity: without the directory that its file is in."""
    return one_line(re.split(r"[/\\]", identity)[-1])


def short_directory(path: str) -> str:
    """Shortens a path as people write it, with ~ for their home."""
    path = one_line(path)
    try:
        home = str(Path.home())
    except RuntimeError:
        return path
    if path == home:
        return "~"
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path


def local_time(at: int) -> str:
    """Formats a time for the person at this terminal."""
    when = to_datetime(at)
    return "at an unknown time" if when is None else when.astimezone().strftime("%Y-%m-%d %H:%M")


def format_duration(seconds: float) -> str:
    """Formats a duration for people: 0.3 s, 42 s, 3 min 5 s, 2 h 10 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, whole = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {whole} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


def ago(at: int) -> str:
    """Says how long ago a time was."""
    seconds = int(time.time() - at / 1000)
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{count(seconds // size, unit)} ago"
    return "just now"


def confirm_or_refuse(
    question: str, program: str, *, to: str, declined: str, heading: str = "", listed: Sequence[str] = ()
) -> None:
    """Asks on the terminal, below what is meant; a no, or no terminal to ask on, ends the program."""
    if not sys.stdin.isatty():
        refuse(f"there is no terminal to ask on: add --yes to {to} without a question", program)
    output = stderr()
    if heading:
        output.line(heading)
    for line in listed[:MOST_NAMED]:
        output.line(f"  {line}")
    if len(listed) > MOST_NAMED:
        output.line(f"  and {len(listed) - MOST_NAMED:,} more")
    if not confirm(question):
        refuse(declined, program, FAILED)


class QuestionTerminal:
    """Asks on the terminal that a command was started from, whatever stdin and stdout are."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._turn = asyncio.Lock()

    @classmethod
    def opened(cls) -> QuestionTerminal | None:
        """Opens the terminal; None if there is none."""
        if sys.platform == "win32":
            return None
        try:
            return cls(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
        except OSError:
            return None

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Takes the terminal alone, for as many lines as a question takes."""
        async with self._turn:
            self._discard_typed_input()
            yield

    def write(self, text: str) -> None:
        """Shows a text without anything that the terminal would obey."""
        os.write(self._descriptor, clean_sentence(text).encode(errors="replace"))

    async def ask(self, question: str) -> str:
        """Asks for a line, returned with its end; empty if the person has left, by Ctrl-D or for good.

        The loop goes on meanwhile, so Ctrl-C is heard.
        """
        self.write(question)
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._descriptor, ready.set)
        try:
            await ready.wait()
        except asyncio.CancelledError:
            # Whatever is shown next begins a line.
            with contextlib.suppress(OSError):
                self.write("\n")
            raise
        finally:
            loop.remove_reader(self._descriptor)
        try:
            return os.read(self._descriptor, LONGEST_LINE).decode(errors="replace")
        except OSError:
            return ""

    async def ask_hidden(self, question: str) -> str:
        """Asks for a line that is not shown while it is typed."""
        with self._without_echo():
            line = await self.ask(question)
        self.write("\n")
        return line

    def close(self) -> None:
        """Closes the terminal."""
        os.close(self._descriptor)

    @contextlib.contextmanager
    def _without_echo(self) -> Iterator[None]:
        if sys.platform == "win32":
            yield
            return
        import termios

        before = termios.tcgetattr(self._descriptor)
        hidden = [*before]
        hidden[3] &= ~termios.ECHO
        termios.tcsetattr(self._descriptor, termios.TCSANOW, hidden)
        try:
            yield
        finally:
            termios.tcsetattr(self._descriptor, termios.TCSANOW, before)

    def _discard_typed_input(self) -> None:
        """Drops what was typed before the question was seen: it is no answer to it."""
        if sys.platform != "win32":
            import termios

            with contextlib.suppress(termios.error):
                termios.tcflush(self._descriptor, termios.TCIFLUSH)


def read_text_argument(file: str, program: str) -> str:
    """Reads the text of a file that the command line names, or of stdin; failure ends the program.

    What is piped may be a log or a diff with a few bytes of another encoding, so these are only told.
    """
    content = _read_argument(file, program)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        where = f"is no text in UTF-8 (byte {error.start + 1})"
        if file != STDIN:
            convert = "convert it, or name its path in the prompt for the agent to read"
            refuse(f"{file} {where}: {convert}", program)
        print_error(f"stdin {where}: its other bytes are replaced", program)
        return content.decode("utf-8", "replace")


def read_image_argument(file: str, program: str) -> ImageContent | None:
    """Reads a file that the command line names if it is an image by its name; failure ends the program."""
    kind = image_type(file)
    if file == STDIN or kind is None:
        return None
    content = _read_argument(file, program)
    if len(content) > LARGEST_IMAGE:
        refuse(f"{file} is too large: images have {LARGEST_IMAGE // 2**20} MiB at most", program)
    return image_content(content, kind, Path(file).absolute())


def image_type(name: str) -> str | None:
    """Returns the media type of an image that agents take, by its file's name; None for other files."""
    import mimetypes

    kind = mimetypes.guess_type(name)[0]
    return kind if kind in IMAGES else None


def image_content(content: bytes, kind: str, path: Path) -> ImageContent:
    """Returns an image as a block of a prompt."""
    import base64

    from coupler.schema.v1 import ImageContent

    return ImageContent(base64.b64encode(content).decode(), kind, uri=path.as_uri())


def _read_argument(file: str, program: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        refuse(f"{file} cannot be read: {error.strerror}", program)


def read_json_argument(file: str, option: str, program: str) -> Any:
    """Reads the JSON in a file that an option names; failure ends the program."""
    content = _read_argument(file, program)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        refuse(f"{option}: {file} is no JSON: {error}", program)


class CannotWriteError(Exception):
    """The file cannot be written, and is as it was; the message says why."""


def read_file(path: Path) -> bytes | None:
    """Reads a file, which may be a link; None if there is none. Raises `CannotWriteError`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CannotWriteError(f"{path} is not a file")
        if status.st_size > LARGEST_FILE:
            raise CannotWriteError(f"{path} is larger than {LARGEST_FILE // 1_000_000} MB")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotWriteError(f"{path} cannot be read: {error.strerror}") from None


def write_new_file(path: Path, content: bytes) -> None:
    """Creates a file and its directories. Raises `CannotWriteError` if there is one already."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as stream:
            stream.write(content)
    except FileExistsError as error:
        wrong = "is there already" if error.filename == str(path) else f"cannot be made: {error.strerror}"
        raise CannotWriteError(f"{error.filename} {wrong}") from None
    except OSError as error:
        raise CannotWriteError(f"{path} cannot be written: {error.strerror}") from None


def replace_file(path: Path, content: bytes, before: bytes | None) -> Path | None:
    """Replaces the content of a file that was read; returns the backup of it, if there was one.

    A link stays one: what it leads to is replaced. Who has changed the file since keeps what they wrote.
    """
    real = Path(os.path.realpath(path))
    kept: Path | None = None
    new: Path | None = None
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        new = _write_beside(real, content)
        kept = None if before is None else _back_up(path, before)
        if read_file(path) != before:
            raise CannotWriteError(f"{path} was changed meanwhile, and is left alone: try again")
        new.replace(real)
    except BaseException as error:
        for made in (new, kept):
            if made is not None:
                made.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise CannotWriteError(f"{path} cannot be written: {error.strerror}") from None
        raise
    return kept


def _write_beside(real: Path, content: bytes) -> Path:
    """Writes a file in the same directory, as readable and writable as the one whose place it takes."""
    with suppress(FileNotFoundError):
        if not os.access(real, os.W_OK) and real.exists():
            raise PermissionError(0, "it is read-only", str(real))
    new = real.with_name(f".{real.name}.{secrets.token_hex(4)}")
    with new.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    with suppress(OSError):
        status = real.stat()
        new.chmod(stat.S_IMODE(status.st_mode))
        if hasattr(os, "chown"):
            os.chown(new, status.st_uid, status.st_gid)
    return new


def _back_up(path: Path, content: bytes) -> Path:
    """Copies the content to a name that nothing has yet, for nobody to read who could not read the file."""
    mode = stat.S_IMODE(path.stat().st_mode) & 0o666
    number = 1
    while True:
        copy = path.with_name(f"{path.name}.{BACKUP_SUFFIX}{'' if number == 1 else f'-{number}'}")
        try:
            descriptor = os.open(
                copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode
            )
        except FileExistsError:
            number += 1
            continue
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        return copy
