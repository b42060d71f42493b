"""The agents of the matrix: what is installed, how each finds the scripted model, what is known of it.

A row has the prompts that make the agent use its own tools, and explains those of its cells that do not pass:
what is not explained here counts as ours. The versions are in `locks/`, one directory an agent; opencode and
gemini-cli are those of `tests/interop/agents`, which other tests use as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coupler.client.files import FileAccess
from labs import others
from labs.others import MODEL, Other

HERE = Path(__file__).parent


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
    faults: Mapping[str, str] = field(default_factory=dict)
    """Why a cell does not pass, by the cell's name: the agent's own faults."""
    check_faults: Mapping[str, str] = field(default_factory=dict)
    """Why an assertion of `coupler check` fails, by its id: the agent's own faults."""

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


def gemini(place: Path, home: Path, model: str) -> Other:
    return others.gemini(home, model)


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


ECHO = "echo written > note.txt"
ESCALATED = '"sandbox_permissions": "require_escalated", "justification": "To see whether it asks"'

IGNORES_SERVERS = "It ignores the servers of its client, though every agent must take those over stdio."
NEVER_ENDS = "The call of an edit that it asks about is never reported to its end."

AGENTS = [
    Agent(
        "opencode",
        "opencode",
        ("opencode-ai",),
        opencode,
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
            "A60": "Its answer to `session/load` has a `sessionId`, which that type does not have.",
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
            "A60": "It advertises `sessionCapabilities.subagents`, which neither the schema nor a draft has.",
        },
    ),
    Agent(
        "gemini",
        "Gemini CLI",
        ("@google/gemini-cli",),
        gemini,
        write='write_file {"file_path": "{file}", "content": "written"}',
        read='read_file {"file_path": "{file}"}',
        shell=f'run_shell_command {{"command": "{ECHO}"}}',
        files="none",
        faults={
            "load": "It advertises `session/load`, and knows none of its sessions in a new process.",
            "files": "It takes the answer that a file is not there for a failure, and makes no new files: "
            "Coupler offers it none.",
            "doctor": "It does not end with its input, and `load` is as above.",
        },
        check_faults={
            "A28": "As `load`.",
            "A60": "`models` is a former draft.",
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
            "A04": "It asks clients for a method of its own, whose name does not begin with `_`.",
            "A60": "`models` is a former draft.",
            "S01": "As A04.",
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
            "A34": "The prompt of a session that is closed ends with an error.",
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
            "A02": "It answers whatever version it was asked for.",
            "A30": "It replays the conversation when it resumes a session, too.",
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
            "deny": "It reports every call as completed, also one that was rejected.",
            "tools": IGNORES_SERVERS,
            "second": IGNORES_SERVERS,
        },
        check_faults={
            "A02": "It answers whatever version it was asked for.",
            "A11": "Its library's: stubs that were inherited answer for what was never written.",
            "A25": "It ignores the servers of its client.",
            "S01": "As A11.",
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
            "tool": NEVER_ENDS,
            "deny": NEVER_ENDS,
        },
        check_faults={
            "A11": "Its library's: stubs that were inherited answer for what was never written.",
            "A16": "A login in a terminal is only for clients that say they have one.",
            "A30": "It replays the conversation when it resumes a session, too.",
            "A52": "A cancelled turn ends with an internal error.",
            "A60": "`models` is a former draft.",
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
            "A01": "As A04.",
            "A04": "`clientCapabilities` may be left out.",
            "A60": "`schema_version` stands beside the members of the published schema, not in `_meta`.",
        },
    ),
]
"""All agents, in the order of the table."""
