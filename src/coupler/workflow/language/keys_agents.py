"""The keys of agents: how one is set up, and what it is told."""

from __future__ import annotations

from coupler.workflow.language.keys_shared import (
    FREE_NAME_PATTERN,
    FREE_NAME_WORDS,
    STEP_ID,
    TEMPLATE,
    VARIABLES,
)
from coupler.workflow.language.scalars import AnyText, Boolean, Choice, Duration, FileName, Number, Rule, Text
from coupler.workflow.language.shapes import Anything, Either, JsonSchema, ListOf, MappingOf
from coupler.workflow.language.table import Key, Needs, OneOf, Table

BUDGET = Table(
    "budget",
    "a budget",
    (
        Key("tokens", Number(minimum=1, is_whole=True), "Tokens that agents may use.", "50000"),
        Key("cost", Number(above=0), "What agents may cost, in the currency that they report.", "1.50"),
        Key("time", Duration(), "How long it may take.", "10m"),
    ),
    sentence="What may be used up at most; what is left out has no limit.",
)
SERVER = Table(
    "mcp_server",
    "an MCP server",
    (
        Key("command", TEMPLATE, "The program of a server that is started.", "npx"),
        Key(
            "args",
            ListOf(AnyText(), "a list of texts"),
            "The program's arguments.",
            '[-y, "@example/server"]',
        ),
        Key("env", VARIABLES, "The program's environment, besides ours.", "{LOG_LEVEL: debug}"),
        Key("url", TEMPLATE, "The address of a server that runs already.", "https://mcp.example.com/mcp"),
        Key("type", Choice(("http", "sse")), "How that server is spoken to.", "sse", "`http`"),
        Key(
            "headers",
            VARIABLES,
            "Headers of every request to it.",
            '{Authorization: "Bearer {{ secrets.MCP_TOKEN }}"}',
        ),
    ),
    (
        OneOf(("command", "url")),
        Needs("args", "command"),
        Needs("env", "command"),
        Needs("type", "url"),
        Needs("headers", "url"),
    ),
    sentence="An MCP server: a program that is started, or an address.",
)
SERVERS = MappingOf(SERVER, "a mapping of MCP servers by name", FREE_NAME_PATTERN, FREE_NAME_WORDS)
TOOLS = Table(
    "tools",
    "`tools`",
    (
        Key(
            "allow",
            ListOf(Rule(), "a list of permission rules"),
            "Tool calls that need no question.",
            '["read(**)"]',
        ),
        Key(
            "deny",
            ListOf(Rule(), "a list of permission rules"),
            "Tool calls that are refused.",
            '["execute(rm *)"]',
        ),
    ),
    sentence="Permission rules for the tool calls of an agent.",
)
_SCHEMA = Either((FileName("the name of a file with a JSON Schema"), JsonSchema()))
AGENT_NAME = Text("an agent", kind="template")
PROMPT_KEYS = (
    Key("prompt", TEMPLATE, "What the agent is told.", '"Fix {{ inputs.target }}."'),
    Key("prompt_file", FileName(), "A file with the prompt; its text is a template.", "prompts/fix.md"),
)
SYSTEM_KEY = Key("system", TEMPLATE, "The system prompt.", "You review code.")
MODEL_KEY = Key("model", TEMPLATE, "The agent's model.", "sonnet", "the agent's own")
_MODE = Key("mode", TEMPLATE, "The agent's mode.", "plan", "the agent's own")
OPTIONS_KEY = Key(
    "options",
    MappingOf(Anything(kind="template"), "a mapping of values", r"\S", "a text"),
    "Options of the agent, by their ids.",
    "{effort: high}",
)
TOOLS_KEY = Key(
    "tools",
    TOOLS,
    "Permission rules for the agent's tool calls; see [permissions](permissions.md).",
    '{allow: ["read(**)"], deny: ["execute(*)"]}',
)
FILES_KEY = Key(
    "files",
    Choice(("none", "read", "write")),
    "What of the working directory the agent may use through Coupler.",
    "read",
    "the agent's own",
)
SERVERS_KEY = Key(
    "mcp_servers", SERVERS, "MCP servers whose tools the agent gets.", "{tickets: {command: tickets-mcp}}"
)
INTERCEPT_KEY = Key(
    "intercept",
    Boolean(),
    "Whether calls to MCP servers pass through Coupler, where rules judge them and the run's log has them.",
    "true",
    "false",
)
_CONTEXT = Key(
    "context",
    ListOf(FileName(), "a list of file names"),
    "Files whose text goes before the prompt.",
    "[docs/style.md]",
)
_SKILLS = Key(
    "skills",
    ListOf(FileName(), "a list of file names"),
    "Files with instructions that are added to the system prompt.",
    "[skills/review.md]",
)
_OUTPUT = Key(
    "output",
    _SCHEMA,
    "A JSON Schema, or a file with one, that the answer must fit; the answer is then `steps.x.output`.",
    "schemas/findings.json",
    "the answer is text",
)
_REPAIRS = Key(
    "repairs",
    Number(minimum=0, maximum=100, is_whole=True),
    "How often an answer that does not fit `output` is handed back.",
    "1",
    "2",
)
BUDGET_KEY = Key("budget", BUDGET, "What may be used up at most.", "{tokens: 50000, time: 10m}")
SET_UP_KEYS = (
    SYSTEM_KEY,
    MODEL_KEY,
    _MODE,
    OPTIONS_KEY,
    TOOLS_KEY,
    FILES_KEY,
    SERVERS_KEY,
    INTERCEPT_KEY,
    _CONTEXT,
    _SKILLS,
    _OUTPUT,
    _REPAIRS,
    BUDGET_KEY,
)
CONTINUE_KEY = Key(
    "continue", STEP_ID, "The step before, of the same agent, whose session goes on here.", "review"
)
