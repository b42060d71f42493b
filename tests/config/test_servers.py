"""`[mcp.NAME]` in coupler.toml: what is read, what is refused, and who may set it."""

import pytest

from coupler.config import ConfigError
from coupler.schema.v1 import EnvVariable, HttpHeader, McpServerHttp, McpServerSse, McpServerStdio


class Trusting:
    def is_trusted(self, path, content):
        return True


def test_commands_and_addresses_are_read(place):
    place.user_says(
        '[mcp.github]\ncommand = "npx"\nargs = ["-y", "server"]\nenv = { TOKEN = "x" }\n'
        '[mcp.far]\nurl = "https://example.com/mcp"\nheaders = { Authorization = "Bearer x" }\n'
        '[mcp.old]\nurl = "http://127.0.0.1/sse"\ntype = "sse"\n'
    )
    assert place.load().mcp == (
        McpServerStdio("github", "npx", ("-y", "server"), [EnvVariable("TOKEN", "x")]),
        McpServerHttp("far", "https://example.com/mcp", [HttpHeader("Authorization", "Bearer x")]),
        McpServerSse("old", "http://127.0.0.1/sse", []),
    )


def test_a_relative_command_starts_at_its_file(place):
    path = place.user_says('[mcp.a]\ncommand = "./bin/server"\n')
    (server,) = place.load().mcp
    assert server.command == str(path.parent / "bin" / "server")


def test_a_trusted_project_replaces_and_adds_servers(place):
    place.user_says('[mcp.a]\ncommand = "mine"\n[mcp.b]\ncommand = "mine"\n')
    place.project_says('[mcp.b]\ncommand = "theirs"\n[mcp.c]\ncommand = "theirs"\n')
    found = {server.name: server.command for server in place.load(trust=Trusting()).mcp}
    assert found == {"a": "mine", "b": "theirs", "c": "theirs"}


def test_a_project_that_is_not_trusted_changes_nothing_and_a_note_says_so(place):
    place.user_says('[mcp.a]\ncommand = "mine"\n')
    place.project_says('[mcp.a]\ncommand = "theirs"\n')
    config = place.load()
    assert [server.command for server in config.mcp] == ["mine"]
    assert "until you have trusted the project" in str(config.notes[0])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mcp = 1", "`mcp` in FILE line 1 must be a table for each server: write [mcp.NAME], not a number"),
        ("[mcp]\na = 1", "`mcp.a` in FILE line 2 must be a table, not a number"),
        ("[mcp.a]", "`mcp.a` in FILE line 1: `command` or `url` is needed here"),
        (
            '[mcp.a]\ncommand = "x"\nurl = "https://x"',
            "`mcp.a.url` in FILE line 3: either `command` or `url`, not both",
        ),
        (
            '[mcp.a]\ncomand = "x"',
            "`mcp.a.comand` in FILE line 2 is unknown; did you mean `command`?\n"
            "`mcp.a` in FILE line 1: `command` or `url` is needed here",
        ),
        (
            "[mcp.a]\ncommand = 1",
            "`mcp.a.command` in FILE line 2 must be a text, not a number: put it in quotes",
        ),
        (
            '[mcp.a]\ncommand = "x"\nargs = ["y", 2]',
            "item 2 of `mcp.a.args` in FILE line 3 must be a text, not a number: put it in quotes",
        ),
        (
            '[mcp.a]\ncommand = "x"\nheaders = {}',
            "`mcp.a.headers` in FILE line 3: `headers` goes with `url`, which is not here",
        ),
        ('[mcp.a]\nurl = "ftp://s3cret"', "`mcp.a.url` in FILE line 2 must begin with https:// or http://"),
        ('[mcp.a]\nurl = "https://x"\ntype = "ws"', '`mcp.a.type` in FILE line 3 must be "http" or "sse"'),
        (
            '[mcp."a(b)"]\ncommand = "x"',
            '`mcp."a(b)"` in FILE line 1 must be called by letters, digits, `_`, `-` and `.`, at most 64 of '
            "them",
        ),
        (
            '[mcp.a]\ncommand = "x"\nenv = { A = 5 }',
            "`mcp.a.env.A` in FILE line 3 must be a text, not a number: put it in quotes",
        ),
        (
            '[mcp.a]\nurl = "https://x"\nheaders = { A = "s3cret\\nB: c" }',
            "`mcp.a.headers.A` in FILE line 3 must be one line without control characters",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_never_repeated(place, text, problem):
    path = place.user_says(text)
    with pytest.raises(ConfigError) as caught:
        place.load()
    assert str(caught.value).replace(str(path), "FILE") == problem
    assert "s3cret" not in str(caught.value)
