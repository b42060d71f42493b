"""Clients that are killed: killing.py SECONDS:SIGNAL,… COMMAND…

For each pair a client of its own, a copy of this process, drives the agent and gets the signal after so
many seconds, unless it was done before. Prints how each ended: a negative number is the signal that hit it.
"""

import asyncio
import os
import sys
import time

from coupler import connect

command = sys.argv[2:]


async def drive():
    async with connect(command) as agent:
        session = await agent.new()
        for _ in range(3):
            await session.prompt("go")


def run_and_kill(seconds, number):
    pid = os.fork()
    if pid == 0:
        asyncio.run(drive())
        os._exit(0)
    time.sleep(seconds)
    os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


killings = [pair.split(":") for pair in sys.argv[1].split(",")]
print(*[run_and_kill(float(seconds), int(number)) for seconds, number in killings])
