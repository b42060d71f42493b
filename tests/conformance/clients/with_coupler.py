"""A client on Coupler itself: with_coupler.py COMMAND…"""

import asyncio
import sys

from coupler import connect


async def main(command: list[str]) -> None:
    async with connect(command) as agent:
        session = await agent.new()
        print((await session.prompt("hello")).text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
