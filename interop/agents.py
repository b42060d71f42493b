"""The agents of the matrix: what is installed, how each finds the scripted model, what is known of it.

A row has the prompts that make the agent use its own tools, and explains those of its cells that do not pass:
what is not explained here counts as ours. The versions are in `locks/`, one directory an agent; opencode,
gemini-cli and the examples of the SDKs are those of `tests/interop/agents`, which other tests use as well.
`NAME:native` is an agent that is driven by its command line, without ACP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from coupler.client.files import FileAccess
from labs import others
from labs.others import MODEL, Other

HERE = Path(__file__).parent


class Fault(NamedTuple):
    """A fault of an agent: how it is recognised, and why it is the agent's."""

    sign: str
    """A pattern that is found in what was seen. A failure without it is another one, and counts as ours."""
    why: str

    def explains(self, seen: str) -> bool:
        return re.search(self.sign, seen) is not None


@dataclass(frozen=True)
class Agent:
    """A row of the matrix."""

    name: str
    title: str
    packages: tuple[str, ...]
    """The packages to install, without versions; the first is the agent itself."""
    prepare: Callable[[Path, Path, str], Other]
    """Writes its settings; takes where it is installed, its home, and the address of the model."""
    write: str
    """The tool that writes a file, and its arguments; `{file}` stands for the path."""
    read: str = ""
    shell: str = ""
    """The tool that runs a command, for `coupler check`, which does not tell its directory."""
    bridged: str = "{name} {arguments}"
    """The call of a tool of ours, `{name}` of `{server}` with its `{arguments}`."""
    python: str | None = None
    """The version of Python that it needs; None for an agent of npm."""
    files: FileAccess = "read"
    """The access to files that it is offered; see `coupler.providers.catalogue`."""
    has_slow_turns: bool = True
    """True if a prompt can make a turn last until it is cancelled."""
    is_shared: bool = False
    """True if it is installed for other tests, too."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """The cells that it cannot have, and the reason of each."""
    faults: Mapping[str, Fault] = field(default_factory=dict)
    """Why a cell does not pass, by the cell's name: the agent's own faults."""
    check_faults: Mapping[str, Fault] = field(default_factory=dict)
    """Why an assertion of `coupler check` fails, by its id: the agent's own faults."""

    @property
    def is_native(self) -> bool:
        """True if it is driven by its command line, without ACP."""
        return self.name.endswith(":native")

    @property
    def directory(self) -> str:
        """The name of its directories."""
        return self.name.replace(":", "-")

    def order(self, tool: str, file: Path) -> str:
        """The prompt that makes the model call a tool about this file."""
        return f"Please call {tool.replace('{file}', str(file))}"

    def order_bridged(self, server: str | None, name: str, arguments: object) -> str:
        """The prompt that makes the model call a tool which Coupler has handed over."""
        call = self.bridged.replace("{name}", name).replace("{server}", server or "")
        # Inside of a program the arguments stand in a text.
        given = json.dumps(arguments)
        return (
            f"Please call {call.replace('{arguments}', given).replace('{quoted}', json.dumps(given)[1:-1])}"
        )


def opencode(place: Path, home: Path, model: str) -> Other:
    return others.opencode(home, model)


def native_opencode(place: Path, home: Path, model: str) -> Other:
    acp = others.opencode(home, model)
    return Other(acp.command[:1], acp.env)


def gemini(place: Path, home: Path, model: str) -> Other:
    return others.gemini(home, model)


def native_gemini(place: Path, home: Path, model: str) -> Other:
    return Other([str(place / "node_modules/.bin/gemini")], others.gemini(home, model).env)


def claude(place: Path, home: Path, model: str) -> Other:
    return Other(
        [str(place / "node_modules/.bin/claude-agent-acp")],
        {
            "ANTHROPIC_BASE_URL": model,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # Otherwise it refuses to be started by root, as in a container.
            "IS_SANDBOX": "1",
            # The model has all tools at once, and need not search for them.
            "ENABLE_TOOL_SEARCH": "false",
        },
    )


def native_claude(place: Path, home: Path, model: str) -> Other:
    # What is on its PATH after `npm install` is a link that a script of its installation would make.
    programs = sorted(place.glob("node_modules/@anthropic-ai/claude-code-*/claude"))
    return Other([str(programs[0])], claude(place, home, model).env)


def codex(place: Path, home: Path, model: str) -> Other:
    config = home / "config.toml"
    config.write_text(
        f"""model = "{MODEL}"
model_provider = "lab"
check_for_update_on_startup = false

[model_providers.lab]
name = "Lab"
base_url = "{model}/v1"
wire_api = "responses"
requires_openai_auth = false

[analytics]
enabled = false
"""
    )
    # In its default mode a model judges what leaves the sandbox, and no user.
    env = {"CODEX_HOME": str(home), "INITIAL_AGENT_MODE": "workspace-write"}
    return Other([str(place / "node_modules/.bin/codex-acp")], env)


def native_codex(place: Path, home: Path, model: str) -> Other:
    return Other([str(place / "node_modules/.bin/codex")], codex(place, home, model).env)


def native_copilot(place: Path, home: Path, model: str) -> Other:
    served = {"COPILOT_PROVIDER_BASE_URL": f"{model}/v1", "COPILOT_MODEL": MODEL}
    # Without a login, which only its own models need.
    env = {"COPILOT_HOME": str(home), "COPILOT_OFFLINE": "true", "COPILOT_AUTO_UPDATE": "false", **served}
    return Other([str(place / "node_modules/.bin/copilot")], env)


def qwen(place: Path, home: Path, model: str) -> Other:
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "tools": {"approvalMode": "default", "toolSearch": {"enabled": False}},
        "memory": {"enableManagedAutoMemory": False},
        "ui": {"enableFollowupSuggestions": False},
    }
    file = home / ".qwen" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps(settings))
    return Other(
        [str(place / "node_modules/.bin/qwen"), "--acp"],
        {"OPENAI_BASE_URL": f"{model}/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": MODEL},
    )


def vibe(place: Path, home: Path, model: str) -> Other:
    (home / "config.toml").write_text(
        f"""active_model = "{MODEL}"
enable_telemetry = false
enable_update_checks = false
default_agent = "default"

[[providers]]
name = "lab"
api_base = "{model}/v1"

[[models]]
name = "{MODEL}"
provider = "lab"
alias = "{MODEL}"
"""
    )
    return Other([str(place / "venv/bin/vibe-acp")], {"VIBE_HOME": str(home)})


def fast_agent(place: Path, home: Path, model: str) -> Other:
    config = home / "fast-agent.yaml"
    config.write_text(f"generic:\n  api_key: none\n  base_url: {model}/v1\n")
    options = ["--config-path", str(config), "--home", str(home), "--model", f"generic.{MODEL}", "--shell"]
    return Other([str(place / "venv/bin/fast-agent"), "--no-update-check", "acp", *options])


def deepagents(place: Path, home: Path, model: str) -> Other:
    return Other([str(place / "venv/bin/python"), str(HERE / "deep_agent.py")], {"MODEL_URL": f"{model}/v1"})


def hermes(place: Path, home: Path, model: str) -> Other:
    served = {"default": MODEL, "provider": "custom", "base_url": f"{model}/v1", "api_key": "none"}
    (home / "config.yaml").write_text(json.dumps({"model": {**served, "context_length": 100_000}}))
    return Other([str(place / "venv/bin/hermes-acp")], {"HERMES_HOME": str(home), "OPENAI_API_KEY": "none"})


def agentao(place: Path, home: Path, model: str) -> Other:
    served = {"OPENAI_BASE_URL": f"{model}/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": MODEL}
    return Other([str(place / "venv/bin/agentao"), "--acp"], {"LLM_PROVIDER": "OPENAI", **served})


def python_example(place: Path, home: Path, model: str) -> Other:
    return others.python_sdk()


def python_echo(place: Path, home: Path, model: str) -> Other:
    return others.python_sdk("echo_agent.py")


def typescript_example(place: Path, home: Path, model: str) -> Other:
    return others.typescript_sdk()


ECHO = "echo written > note.txt"
ESCALATED = '"sandbox_permissions": "require_escalated", "justification": "To see whether it asks"'

CALLED_NOTHING = r"`lookup_\w+` was called with \[\]; '{\"item\": \"tea\"}'"
"""The model was not offered the function."""
IGNORES_SERVERS = Fault(
    CALLED_NOTHING, "It ignores the servers of its client, though every agent must take those over stdio."
)
NEVER_ENDS = (
    "The end of an edit is never reported: its formatter of results takes the arguments, which are a text of "
    "JSON, for an object, and what it raises goes to a log."
)
LOSES_SESSIONS = (
    "`session/load` begins a new log of the session before it reads the old one. The name of a log has the "
    "minute and the id: in the minute in which the session began both are one file, and the conversation in "
    "it is replaced. Later the session is loaded, and replayed after the answer."
)
DRAFT_MODELS = Fault('result: unknown key "models"', "`models` is a former draft.")
ANY_VERSION = Fault("claims to speak version 65535", "It answers whatever version it was asked for.")
STUBS = "Its library's: stubs that were inherited answer for what was never written."
REPLAYS = Fault(
    "the conversation was replayed", "It replays the conversation when it resumes a session, too."
)
NATIVE_LACKS = {
    "files": "it uses the disk itself",
    "relay": "it does not speak ACP",
    "check": "it does not speak ACP",
}
MODEL_CELLS = (
    "prompt", "tool", "allow", "deny", "cancel", "load", "tools", "second", "output", "usage", "files",
    "relay", "doctor",
)  # fmt: skip
EXAMPLE_LACKS = dict.fromkeys(MODEL_CELLS, "an example without a model")


AGENTS = [
    Agent(
        "opencode",
        "opencode",
        ("opencode-ai",),
        opencode,
        is_shared=True,
        write='write {"filePath": "{file}", "content": "written"}',
        read='read {"filePath": "{file}"}',
        shell=f'bash {{"command": "{ECHO}", "description": "Writes a note"}}',
    ),
    Agent(
        "claude",
        "Claude Code (claude-agent-acp)",
        ("@agentclientprotocol/claude-agent-acp",),
        claude,
        write='Write {"file_path": "{file}", "content": "written"}',
        read='Read {"file_path": "{file}"}',
        shell=f'Bash {{"command": "{ECHO}", "description": "Writes a note"}}',
        check_faults={
            "A60": Fault(
                'unknown key "sessionId"',
                "Its answer to `session/load` has a `sessionId`, which that type does not have.",
            ),
        },
    ),
    Agent(
        "codex",
        "Codex (codex-acp)",
        ("@agentclientprotocol/codex-acp",),
        codex,
        # It asks before it leaves its sandbox; inside it asks nobody.
        write=f'exec_command {{"cmd": "echo written > {{file}}", {ESCALATED}}}',
        shell=f'exec_command {{"cmd": "{ECHO}", {ESCALATED}}}',
        check_faults={
            "A60": Fault(
                'unknown key "subagents"',
                "It advertises `sessionCapabilities.subagents`, which neither the schema nor a draft has.",
            ),
        },
    ),
    Agent(
        "gemini",
        "Gemini CLI",
        ("@google/gemini-cli",),
        gemini,
        is_shared=True,
        write='write_file {"file_path": "{file}", "content": "written"}',
        read='read_file {"file_path": "{file}"}',
        shell=f'run_shell_command {{"command": "{ECHO}"}}',
        files="none",
        faults={
            "load": Fault("No previous sessions found for this project|are not replayed$", LOSES_SESSIONS),
            "files": Fault(
                "it used fs/read_text_file, and nothing was written",
                "It takes the answer that a file is not there for a failure, and makes no new files: "
                "Coupler offers it none.",
            ),
            "doctor": Fault(
                "^end: it still ran 5 s after its input was closed"
                "(; load: .* got the error -32603: Internal error)?$",
                "It does not end with its input; `load` is as above.",
            ),
        },
        check_faults={
            "A28": Fault("No previous sessions found|Invalid session identifier", "As `load`."),
            "A60": DRAFT_MODELS,
        },
    ),
    Agent(
        "qwen",
        "Qwen Code",
        ("@qwen-code/qwen-code",),
        qwen,
        write='write_file {"file_path": "{file}", "content": "written"}',
        read='read_file {"file_path": "{file}"}',
        shell=f'run_shell_command {{"command": "{ECHO}", "is_background": false}}',
        check_faults={
            "A04": Fault(
                "asked for craft/drainMidTurnQueue",
                "It asks clients for a method of its own, whose name does not begin with `_`.",
            ),
            "A60": DRAFT_MODELS,
            "S01": Fault("craft/drainMidTurnQueue", "As A04."),
        },
    ),
    Agent(
        "vibe",
        "Mistral Vibe",
        ("mistral-vibe",),
        vibe,
        write='write_file {"path": "{file}", "content": "written"}',
        read='read_file {"path": "{file}"}',
        shell=f'bash {{"command": "{ECHO}"}}',
        # Its model reaches the tools of servers by programs alone.
        bridged='run_typescript {"code": "async function main() '
        '{ return await tools.mcp_{server}.{name}({quoted}) }"}',
        python="3.13",
        check_faults={
            "A34": Fault(
                "App server connection closed", "The prompt of a session that is closed ends with an error."
            ),
        },
    ),
    Agent(
        "fast-agent",
        "fast-agent",
        ("fast-agent-mcp",),
        fast_agent,
        write='write_text_file {"path": "{file}", "content": "written"}',
        read='read_text_file {"path": "{file}"}',
        shell=f'bash {{"command": "{ECHO}"}}',
        python="3.13",
        files="write",  # without it there is no tool that writes
        check_faults={
            "A02": ANY_VERSION,
            "A30": REPLAYS,
        },
    ),
    Agent(
        "deepagents",
        "deepagents-acp",
        ("deepagents-acp", "langchain-openai"),
        deepagents,
        write='write_file {"file_path": "{file}", "content": "written"}',
        read='read_file {"file_path": "{file}"}',
        python="3.12",
        faults={
            "deny": Fault(
                "^the denied call is completed, failed$",
                "It reports the result of every call as `completed`, also of one that was rejected. It asks "
                "under another id, and that call is the failed one.",
            ),
            "tools": IGNORES_SERVERS,
            "second": IGNORES_SERVERS,
        },
        check_faults={
            "A02": ANY_VERSION,
            "A11": Fault("was answered with the result {}", STUBS),
            "A25": Fault("the MCP server was not started", "It ignores the servers of its client."),
            "S01": Fault("^result: Expected `object`, got `null`", "As A11."),
        },
    ),
    Agent(
        "hermes",
        "Hermes",
        ("hermes-agent[acp,mcp]",),
        hermes,
        write='write_file {"path": "{file}", "content": "written"}',
        read='read_file {"path": "{file}"}',
        shell=f'terminal {{"command": "{ECHO}"}}',
        python="3.12",
        faults={
            "tool": Fault("^the call is edit, pending$", NEVER_ENDS),
            "deny": Fault("^the denied call is failed, pending$", NEVER_ENDS),
        },
        check_faults={
            "A11": Fault("was answered with the result {}", STUBS),
            "A16": Fault(
                "offered without auth.terminal",
                "A login in a terminal is only for clients that say they have one.",
            ),
            "A30": REPLAYS,
            "A52": Fault(
                "'NoneType' object has no attribute 'startswith'",
                "A cancelled turn ends with an internal error.",
            ),
            "A60": DRAFT_MODELS,
        },
    ),
    Agent(
        "agentao",
        "Agentao",
        ("agentao[cli]",),
        agentao,
        # It asks about commands; to write inside of its workspace it asks nobody.
        write='run_shell_command {"command": "echo written > {file}"}',
        read='read_file {"file_path": "{file}"}',
        shell=f'run_shell_command {{"command": "{ECHO}"}}',
        python="3.12",
        check_faults={
            "A01": Fault("version 1 was asked for and null answered", "As A04."),
            "A04": Fault("clientCapabilities must be a JSON object", "`clientCapabilities` may be left out."),
            "A60": Fault(
                'unknown key "schema_version"',
                "`schema_version` stands beside the members of the published schema, not in `_meta`.",
            ),
        },
    ),
    Agent(
        "claude:native",
        "Claude Code, native",
        ("@anthropic-ai/claude-code",),
        native_claude,
        write='Write {"file_path": "{file}", "content": "written"}',
        lacks=NATIVE_LACKS,
    ),
    Agent(
        "codex:native",
        "Codex, native",
        ("@openai/codex",),
        native_codex,
        write='exec_command {"cmd": "echo written > {file}"}',
        lacks=NATIVE_LACKS,
    ),
    Agent(
        "gemini:native",
        "Gemini CLI, native",
        ("@google/gemini-cli",),
        native_gemini,
        is_shared=True,
        write='write_file {"file_path": "{file}", "content": "written"}',
        lacks=NATIVE_LACKS,
    ),
    Agent(
        "copilot:native",
        "GitHub Copilot, native",
        ("@github/copilot",),
        native_copilot,
        write='bash {"command": "echo written > {file}", "description": "Writes a note"}',
        lacks=NATIVE_LACKS,
    ),
    Agent(
        "opencode:native",
        "opencode, native",
        ("opencode-ai",),
        native_opencode,
        is_shared=True,
        write='write {"filePath": "{file}", "content": "written"}',
        lacks=NATIVE_LACKS,
    ),
    Agent(
        "python-sdk",
        "Python SDK, its example agent",
        ("agent-client-protocol",),
        python_example,
        has_slow_turns=False,
        is_shared=True,
        write="nothing {}",
        lacks=EXAMPLE_LACKS,
        check_faults={
            "A11": Fault('result {"example": "response"}', "The example answers every extension method."),
        },
    ),
    Agent(
        "python-sdk-echo",
        "Python SDK, its echo agent",
        ("agent-client-protocol",),
        python_echo,
        has_slow_turns=False,
        is_shared=True,
        write="nothing {}",
        lacks=EXAMPLE_LACKS,
        check_faults={"A02": ANY_VERSION, "A11": Fault("was answered with the result {}", STUBS)},
    ),
    Agent(
        "typescript-sdk",
        "TypeScript SDK, its example agent",
        ("@agentclientprotocol/sdk",),
        typescript_example,
        is_shared=True,
        write="nothing {}",
        lacks=EXAMPLE_LACKS,
        check_faults={
            "A25": Fault("the MCP server was not started", "The example plays its tools."),
            "A46": Fault("is introduced again", "The ids of its tool calls are constants."),
            "A54": Fault(
                'the turn ended with "end_turn"',
                "It ends the turn normally when its question is cancelled.",
            ),
        },
    ),
]
"""All agents, in the order of the table."""
