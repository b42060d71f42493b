"""MCP servers: which ones a session has, connections to them, their tools and what those answer.

The `mcp` package speaks the protocol; it is imported when the first server is used. Nothing here decides
whether a tool may be used: whoever calls one has asked before.
"""
