"""The program that agents start to reach tools: small, quick, and gone when either side is."""

import os
import socket
import subprocess
import sys

import pytest

from coupler.mcp import shim

COMMAND = [sys.executable, "-I", "-S", shim.__file__]


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        yield server


def started(port):
    return subprocess.Popen(
        COMMAND,
        env={shim.PORT: str(port), shim.TOKEN: "secret"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def welcomed(server):
    connection, _ = server.accept()
    connection.settimeout(20)
    assert connection.recv(100) == b"secret\n"
    connection.sendall(shim.WELCOME)
    return connection


def test_bytes_are_carried_both_ways_and_the_end_of_the_input_is_passed_on(listening):
    with started(listening.getsockname()[1]) as process, welcomed(listening) as connection:
        payload = os.urandom(60_000)  # what pipes hold, for nobody reads yet
        connection.sendall(b"from there\n")
        assert process.stdout.readline() == b"from there\n"
        process.stdin.write(payload)
        process.stdin.close()
        assert b"".join(iter(lambda: connection.recv(65536), b"")) == payload
        connection.sendall(b"last")
        connection.close()
        assert process.stdout.read() == b"last"
        assert process.wait(20) == 0


def test_it_ends_with_the_program_that_offers_the_tools_though_its_input_is_open(listening):
    with started(listening.getsockname()[1]) as process:
        welcomed(listening).close()
        assert process.wait(20) == 0
        process.stdin.close()


def test_without_somebody_who_listens_it_says_so():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with started(port) as process:
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (1, b"")
    assert b"is gone" in err


def test_without_its_variables_it_says_so():
    done = subprocess.run(COMMAND, env={}, capture_output=True, timeout=20, check=False)
    assert done.returncode == 1
    assert b"COUPLER_SHIM_PORT and COUPLER_SHIM_TOKEN are not set" in done.stderr


def test_it_imports_nothing_that_takes_time():
    command = [sys.executable, "-X", "importtime", *COMMAND[1:]]
    done = subprocess.run(command, env={}, capture_output=True, text=True, timeout=20, check=False)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "socket" in imported
    assert not {"asyncio", "json", "typing", "coupler", "msgspec", "subprocess"} & imported
