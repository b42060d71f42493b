"""The fields of the protocol that are never masked, because they must arrive as they are.

The one list of them: tests compare the manual and the code with it. Everything else that people or files get
to see is masked, also when it shows the same text: a tool call's title with a command, a diff of a file.
"""

from __future__ import annotations

from typing import NamedTuple


class Payload(NamedTuple):
    """One kind of payload, where it travels, and why it is left alone."""

    name: str
    places: tuple[str, ...]
    reason: str


NEVER_MASKED = (
    Payload(
        "file bodies that are read",
        ("fs/read_text_file result: content",),
        "An agent that edits a file must see what is in it, or it would write the marks back.",
    ),
    Payload(
        "file bodies that are written",
        ("fs/write_text_file: content",),
        "A mark in a written file would destroy the secret that belongs there.",
    ),
    Payload(
        "prompts",
        ("session/prompt: prompt", "requests to models"),
        "A model or another agent gets what its user wrote and what its tools returned, word for word.",
    ),
    Payload(
        "commands for terminals",
        ("terminal/create: command, args, cwd",),
        "A command with a mark in it would be another command.",
    ),
    Payload(
        "the environment of terminals",
        ("terminal/create: env",),
        "A command that needs a token must get the token.",
    ),
    Payload(
        "the environment and headers of MCP servers",
        ("session/new, session/load, session/resume: mcpServers",),
        "A server can log in only with the real credentials.",
    ),
    Payload(
        "arguments of tools",
        ("tools/call: arguments", "calls of Python tools"),
        "A tool does its work with what it is given, and a mark is not what was meant.",
    ),
    Payload(
        "answers of people",
        ("elicitation/create result: content", "session/request_permission result: outcome"),
        "Whoever asked a question gets the answer that was typed.",
    ),
    Payload(
        "ids",
        ("sessionId", "toolCallId", "terminalId", "messageId", "optionId", "JSON-RPC id and method"),
        "An id that was changed on its way refers to nothing.",
    ),
    Payload(
        "paths",
        ("path", "cwd", "additionalDirectories", "uri of a file"),
        "An editor opens the file that is named, and a changed path names another.",
    ),
    Payload(
        "words of the protocol",
        ("kinds, statuses, roles, priorities, stop reasons", "MIME types", "names of commands and tools"),
        "A word that was changed is one that nobody knows.",
    ),
    Payload(
        "binary data",
        ("data of images and audio", "blob of embedded resources"),
        "It is encoded, so a secret in it is not to be read, and a mark would break it.",
    ),
    Payload(
        "an agent's memory",
        ("session.state",),
        "It is the agent's own, and it has to get back what it put there; keep no secrets in it.",
    ),
    Payload(
        "what an agent says of itself",
        ("initialize result",),
        "It is answered before anything else is known, with words that its author wrote down.",
    ),
    Payload(
        "keys",
        ("the keys of every object",),
        "Keys are the protocol's words, and a changed one would be an unknown field.",
    ),
    Payload(
        "numbers",
        ("every number, boolean and null",),
        "A mark is a text, and a text in the place of a number breaks the message.",
    ),
)
