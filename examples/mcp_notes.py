"""An MCP server with two tools, for `langchain_mcp.py` and every other agent: notes in a file `notes.txt`.

    pip install "coupler[mcp]"

An agent is given it by a `coupler.toml`, yours or that of a project that you trust:

    [mcp.notes]
    command = "python3"
    args = ["/path/to/examples/mcp_notes.py"]
"""

from pathlib import Path

from mcp.server.mcpserver import MCPServer

NOTES = Path("notes.txt")
"""Coupler starts the servers of a session in the session's directory."""

server = MCPServer("notes")


@server.tool()
def find_notes(word: str) -> list[str]:
    """The notes that have this word in them."""
    lines = NOTES.read_text().splitlines() if NOTES.exists() else []
    return [line for line in lines if word.lower() in line.lower()]


@server.tool()
def add_note(text: str) -> str:
    """Keep a note, which is one line."""
    with NOTES.open("a") as file:
        file.write(" ".join(text.split()) + "\n")
    return "kept"


if __name__ == "__main__":
    server.run()
