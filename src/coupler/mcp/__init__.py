"""Uses a session's MCP servers as a client, and serves our own tools to an agent over MCP.

As a client: `servers` has all servers of a session, `connection` the connection to one of them, over
`stdio_client` or `http_client`; `tools` describes their tools, results and errors. As a server: `functions`
makes tools of Python functions, and `loopback` serves them over HTTP, or to the `shim`, a program that
agents start. The `mcp` package speaks the protocol; `package` imports it when the first server is used.
Nothing here decides whether a tool may be used: whoever calls one has asked before.
"""
