"""MCP servers' tools as LangChain tools."""
