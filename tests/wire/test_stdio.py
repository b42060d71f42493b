"""The protocol's descriptors, in real processes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tables import table

SERVE = """
import asyncio, os, sys
from coupler.wire.stdio import StdioIsTerminal, take_over

try:
    read_fd, write_fd = take_over()
except StdioIsTerminal:
    print("a terminal")
    sys.exit(2)

from coupler.wire.peer import Peer
from coupler.wire.pipe_transport import PipeTransport


class Serving:
    def __init__(self):
        self.ended = asyncio.Event()

    def request_received(self, request):
        globals()[request.method]()
        request.answer({"done": request.method})

    def notification_received(self, method, params):
        pass

    def disconnected(self, error):
        self.ended.set()


async def main():
    serving = Serving()
    peer = Peer(PipeTransport(read_fd, write_fd), serving)
    peer.open()
    await serving.ended.wait()
    await peer.drain()
    await peer.close()
"""


def serve(
    code: str, *methods: str, before: str = "", **options: Any
) -> tuple[subprocess.CompletedProcess[bytes], list[dict[str, Any]]]:
    """Run a process that calls the function of each request's name; also its stdout, all of it JSON."""
    script = f"{textwrap.dedent(before)}\n{SERVE}\n{textwrap.dedent(code)}\nasyncio.run(main())\n"
    lines = b"".join(
        b'{"jsonrpc":"2.0","id":%d,"method":"%b"}\n' % (number, method.encode())
        for number, method in enumerate(methods)
    )
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    options = {"input": lines, "stderr": subprocess.PIPE, "env": buffered, **options}
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, timeout=60, **options)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


NOISE = {
    "a print": ("print('noise')", 1),
    "a print to the first stdout": ("print('noise', file=sys.__stdout__)", 1),
    "a write to descriptor 1": ("os.write(1, b'noise\\n')", 1),
    "a C library": (
        "import ctypes; c = ctypes.CDLL(None); c.puts(b'noise'); c.write(1, b'noise\\n', 6); c.fflush(None)",
        2,
    ),
    "a shell of a C library": ("import ctypes; ctypes.CDLL(None).system(b'echo noise; echo noise >&1')", 2),
    "a child process": ("import subprocess; subprocess.run(['echo', 'noise'], check=True)", 1),
    "a child with all descriptors": (
        "import subprocess; subprocess.run('for fd in 1 3 4 5 6 7 8 9; do"
        " echo noise >&$fd; done 2>/dev/null; true', shell=True, close_fds=False, check=True)",
        1,
    ),
    "os.system": ("os.system('echo noise')", 1),
    "open descriptors of /dev/stdout": ("open('/dev/stdout', 'w').write('noise\\n')", 1),
}


@table(("code", "count"), NOISE.values(), ids=NOISE)
def test_noise_goes_to_stderr_and_never_to_the_peer(code: str, count: int) -> None:
    done, messages = serve(f"def noise():\n    {code}\n    sys.stdout.flush()", "noise", "noise")
    assert messages == [{"jsonrpc": "2.0", "id": id, "result": {"done": "noise"}} for id in (0, 1)]
    assert done.stderr.decode().count("noise") == 2 * count
    assert done.returncode == 0


def test_what_was_printed_before_goes_to_stderr_too() -> None:
    done, messages = serve("def m(): pass", "m", before="print('early', end='')")
    assert (len(messages), done.stderr) == (1, b"early")


def test_a_forked_child_holds_no_end_of_the_pipes() -> None:
    # given a child that writes to whatever descriptor it finds, and lives on until we let it go
    held, holding = os.pipe()
    code = f"""
    def fork():
        if os.fork() == 0:
            for fd in (fd for fd in range(1, 20) if fd != {held}):
                try:
                    os.write(fd, b"noise")
                except OSError:
                    pass
            print("noise", flush=True)
            os.read({held}, 1)
            os._exit(0)
    """
    # when the parent ends, and the child does not
    try:
        done, messages = serve(code, "fork", pass_fds=[held], stderr=subprocess.DEVNULL)
    finally:
        os.close(holding)
        os.close(held)
    # then the output ended all the same, and nothing of the child's was in it
    assert messages == [{"jsonrpc": "2.0", "id": 0, "result": {"done": "fork"}}]
    assert done.returncode == 0


def test_a_number_that_means_another_file_by_then_is_left_open_in_the_child() -> None:
    script = """
import os
from coupler.wire.stdio import take_over

read_fd, write_fd = take_over()
os.dup2(other := os.open("/", os.O_RDONLY), read_fd)
os.close(write_fd)
if os.fork() == 0:
    os._exit(7 if os.path.samestat(os.fstat(read_fd), os.stat("/")) else 1)
os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 7


def test_children_find_an_empty_stdin() -> None:
    code = """
    import subprocess

    def read():
        assert subprocess.run(["cat"], capture_output=True, check=True).stdout == b""
        assert os.read(0, 10) == b""
        assert sys.stdin.read() == ""
    """
    done, messages = serve(code, "read", "read")
    assert [message.get("result") for message in messages] == [{"done": "read"}] * 2, done.stderr


def test_a_terminal_is_no_peer() -> None:
    far, near = pty.openpty()
    try:
        done = subprocess.run([sys.executable, "-c", SERVE], stdin=near, stdout=subprocess.PIPE, timeout=60)
    finally:
        os.close(near)
        os.close(far)
    # It was refused before anything was moved: the sentence is on stdout.
    assert (done.returncode, done.stdout) == (2, b"a terminal\n")


@pytest.mark.parametrize("closed", ["2", "1", "0", "0 1", "1 2", "0 2", "0 1 2"])
def test_descriptors_that_are_closed_do_no_harm(closed: str, tmp_path: Path) -> None:
    # given a process whose parent closed some of 0, 1 and 2
    report = tmp_path / "report"
    code = f"""
    def m():
        print("noise")
        os.write(1, b"noise")
        os.write(2, b"noise")
        os.system("echo noise; echo noise >&2; cat")
    open({str(report)!r}, "w").write(f"{{read_fd > 2}} {{write_fd > 2}} {{os.fstat(2) is not None}}")
    """
    script = f"{SERVE}\n{textwrap.dedent(code)}\nasyncio.run(main())\n"
    redirects = " ".join(f"{fd}>&-" for fd in closed.split())
    # when it takes over what is left
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {redirects}', sys.executable, script],
        input=b'{"jsonrpc":"2.0","id":0,"method":"m"}\n',
        capture_output=True,
        timeout=60,
    )
    # then the protocol's descriptors are none of the three, and noise stays out of it
    assert done.returncode == 0, done.stderr
    assert report.read_text() == "True True True"
    answered = "0" not in closed and "1" not in closed
    assert done.stdout == (b'{"jsonrpc":"2.0","id":0,"result":{"done":"m"}}\n' if answered else b"")


def test_a_stdout_that_is_gone_for_python_does_no_harm() -> None:
    for before in ("import sys; sys.stdout = None", "import sys; sys.stdout.close()"):
        _, messages = serve("def m(): pass", "m", before=before)
        assert messages[0]["result"] == {"done": "m"}


def test_taking_over_imports_next_to_nothing() -> None:
    code = "import sys; before = {*sys.modules}; import coupler.wire.stdio; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    loaded = set(done.stdout.split())
    assert "coupler.wire.stdio" in loaded
    assert not loaded & {"asyncio", "msgspec", "logging", "subprocess", "socket", "coupler.wire.peer"}


def test_lines_that_are_written_in_pieces_are_all_answered() -> None:
    script = f"{SERVE}\ndef m(): print('noise')\nasyncio.run(main())\n"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        for number in range(1000):
            line = b'{"jsonrpc":"2.0","id":%d,"method":"m"}\n' % number
            process.stdin.write(line[:7])
            process.stdin.write(line[7:])
        process.stdin.close()
        answers = process.stdout.read().splitlines()
    assert [json.loads(answer)["id"] for answer in answers] == list(range(1000))
