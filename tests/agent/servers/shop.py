"""An MCP server made with the `mcp` package: over stdio, or over HTTP on a loopback port that it prints."""

import asyncio
import socket
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import ToolAnnotations

shop = MCPServer("shop")
PIXEL = bytes.fromhex("89504e470d0a1a0a")


@shop.tool(annotations=ToolAnnotations(read_only_hint=True, destructive_hint=False))
def price(item: str) -> str:
    """What something costs."""
    return f"{item}: 3 EUR"


@shop.tool()
def refuse() -> str:
    """Always fails."""
    raise ValueError("sold out")


@shop.tool()
def picture() -> Image:
    """A picture of the shop."""
    return Image(data=PIXEL, format="png")


@shop.tool()
async def wait(directory: str) -> str:
    """Works until it is told to stop, and says so in files."""
    Path(directory, "started").touch()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        Path(directory, "stopped").touch()
        raise
    return "done"


@shop.tool()
async def restock(context: Context) -> str:
    """Has a tool more from then on."""
    shop.add_tool(lambda: "new", name="novelty", description="Something new")
    await context.session.send_tool_list_changed()
    return "restocked"


def main(transport: str) -> None:
    if transport == "stdio":
        shop.run("stdio")
        return
    with socket.create_server(("127.0.0.1", 0)) as listening:
        import uvicorn

        application = shop.sse_app() if transport == "sse" else shop.streamable_http_app()
        print(listening.getsockname()[1], flush=True)
        config = uvicorn.Config(application, log_level="warning")
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(sys.argv[1])
