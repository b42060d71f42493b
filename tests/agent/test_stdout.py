"""stdout is the protocol's, whatever the agent and its libraries do with it."""

import json
import sys

import pytest

from agent.steps import leave
from raw_client import RawClient, texts

NOISY = """
import ctypes, logging, os, subprocess, sys, warnings

print("printed at import")
os.write(1, b"written at import\\n")
logging.getLogger("some.library").warning("warned by a library")
warnings.warn("careless use")

async def agent(turn):
    print("printed")
    print("printed and flushed", flush=True)
    sys.stdout.write("written to sys.stdout\\n")
    sys.__stdout__.write("written to sys.__stdout__\\n")
    sys.stdout.buffer.write(b"written to the buffer\\n")
    os.write(1, b"written to descriptor 1\\n")
    libc = ctypes.CDLL(None)
    libc.puts(b"put by C")
    libc.fflush(None)
    os.system("echo echoed by a shell")
    subprocess.run(["echo", "echoed by a child"])
    subprocess.run([sys.executable, "-c", "print(input('read by a child? '))"], stderr=subprocess.DEVNULL)
    logging.getLogger("some.library").error("logged by a library")
    warnings.warn("careless again")
    if (child := os.fork()) == 0:
        print("printed by a fork", flush=True)
        os.write(1, b"written by a fork\\n")
        os._exit(0)
    os.waitpid(child, 0)
    with open("/dev/stdout", "wb", buffering=0) as file:
        file.write(b"written to /dev/stdout\\n")
    await turn.say("quiet")
"""
NOISE = [
    "printed at import",
    "written at import",
    "warned by a library",
    "careless use",
    "printed",
    "printed and flushed",
    "written to sys.stdout",
    "written to sys.__stdout__",
    "written to the buffer",
    "written to descriptor 1",
    "put by C",
    "echoed by a shell",
    "echoed by a child",
    "logged by a library",
    "careless again",
    "printed by a fork",
    "written by a fork",
    "written to /dev/stdout",
]


@pytest.mark.parametrize("starts", [1, 2])
def test_a_noisy_agent_writes_nothing_but_the_protocol_to_stdout(start, starts):
    for _ in range(starts):
        client = start(NOISY)
        client.initialize()
        updates, _ = client.prompt(client.new_session())
        leave(client)

    assert texts(updates) == "quiet"
    assert [json.loads(line)["jsonrpc"] for line in client.lines] == ["2.0"] * 4
    noise = client.stderr.decode()
    assert [sound for sound in NOISE if sound not in noise] == []


def test_a_script_that_serves_itself_is_as_clean_from_the_call_of_serve_on(app):
    script = app(
        NOISY.replace('os.write(1, b"written at import\\n")', "")
        + "from coupler import serve\nserve(agent)\n"
    )
    with RawClient(sys.executable, str(script), env={"PYTHONUNBUFFERED": ""}) as client:
        client.initialize()
        client.prompt(client.new_session())
        leave(client)

        assert [json.loads(line)["jsonrpc"] for line in client.lines] == ["2.0"] * 4
        # What was printed before, and not written yet, goes where later prints go.
        assert b"printed at import" in client.stderr


def test_the_agents_stdin_is_empty_and_not_the_protocol(converse):
    client, session = converse("""
        import sys
        async def agent(turn):
            await turn.say(repr(sys.stdin.read()))
    """)

    assert texts(client.prompt(session)[0]) == "''"
