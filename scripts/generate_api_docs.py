"""Write docs/python-api.md: the public names of Coupler, from their source.

    python scripts/generate_api_docs.py [--check]

A public name that no group below has is an error, so that none can be forgotten.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import coupler
from coupler import acp, providers
from pages import update
from python_source import Described, Member, described

GROUPS = {
    "serving": ("serve", "serve_async", "Agent", "Turn", "BlockingTurn", "Session"),
    "declaring": ("Mode", "Select", "Toggle", "Group", "Choice", "Command", "Login"),
    "driving": (
        *("connect", "ask", "Pool", "Reply", "Budget", "Limits"),
        *("Environment", "Policy", "PermissionRequest"),
    ),
    "answering": ("ToolContext", "FormRequest", "UrlRequest", "Finished"),
    "errors": (
        *("AgentError", "EndTurn", "RpcError", "AuthRequiredError", "EditorError", "NotPermittedError"),
        *("TurnEndedError", "SettingError", "FileChangedError", "OutsideRootsError", "UnsuitableFileError"),
        *("McpError", "SpawnError"),
    ),
}
"""The names of `coupler`, by the headings of the page."""

HELD_BY_AGENTS = (
    ("coupler.agent.tool_call", "Call"),
    ("coupler.agent.turn", "Plan"),
    ("coupler.agent.files", "Files"),
    ("coupler.agent.terminal", "Terminal"),
    ("coupler.agent.mcp_servers", "TurnMcp"),
    ("coupler.agent.elicitation", "Answer"),
    ("coupler.agent.turn", "Compacting"),
    ("coupler.agent.editor", "Editor"),
)
HELD_BY_CLIENTS = (
    ("coupler.client.remote", "RemoteAgent"),
    ("coupler.client.remote", "OpeningOptions"),
    ("coupler.client.session", "RemoteSession"),
    ("coupler.client.prompt", "Prompt"),
    ("coupler.client.policy", "Decision"),
    ("coupler.events.events", "TurnUsage"),
    ("coupler.client.limits", "Cut"),
)
"""What one gets from the public names, and never makes."""

NOT_MADE = frozenset(
    {
        "Turn",
        "BlockingTurn",
        "Session",
        "Reply",
        "PermissionRequest",
        "ToolContext",
        "FormRequest",
        "UrlRequest",
    }
    | {"Finished", "Current", "SettingError", "FileChangedError", "OutsideRootsError", "UnsuitableFileError"}
    | {"AgentError", "EditorError", "NotPermittedError", "TurnEndedError", "McpError", "SpawnError"}
    | {name for _, name in (*HELD_BY_AGENTS, *HELD_BY_CLIENTS)}
)
"""Classes whose constructors are nobody's business."""

INTERNAL = {
    "Agent": "perform",
    "Turn": "end own check_alive begin_new_message say_apart report",
    "Session": "secrets withheld outlet place known_files readable_places in_order servers project settings "
    "is_known belong_to give_to move_to go_on_from tell_settings become_known admit until_ready "
    "until_logged_in is_logged_in until_stored end_turn until_idle stop_updates keep_state end_servers end",
    "Call": "open start",
    "Plan": "send",
    "Editor": "call ask tell",
    "RemoteAgent": "confinement peer wanted_files start_within offer_instead",
    "RemoteSession": "policy settings terminals questions tools is_over has_ended linger at_end abandon "
    "cancelled_turn_ended take_prompt send_prompt send_cancel give_up prompt_ended turn_ended span "
    "may_refuse_mode is_failure silence room start update_received permission_answered "
    "bridged_call_finished end_turn failure with_exit_details disconnected end_belongings",
    "Prompt": "leave listen explain accept decided end_with call_reported accept_answer",
    "Budget": "begin_turn refuse_if_spent running_cost charge run_up excess seconds_left",
    "Policy": "named of answer patterns name",
    "Environment": "resolve",
    "Login": "is_for_terminals as_method",
    "AgentError": "explained",
    **dict.fromkeys(("AuthRequiredError", "EditorError"), "code message data because reason"),
    "Decision": "of",
    **dict.fromkeys(("ModelsMiddleware", "ModesMiddleware"), "declared"),
    **dict.fromkeys(("PermissionsMiddleware", "PlanMiddleware", "ToolsMiddleware"), "name"),
    "Current": "calls presentation namespaces board sizes offers asked_in_chat chat_reviews unanswered "
    "when_retried call_around ask_and_wait is_on_loop call_on_loop",
}
"""What Coupler's own modules use of these classes, and nobody else should."""

HOOKS = frozenset(
    f"{start}{hook}"
    for start in ("", "a")
    for hook in (
        "wrap_model_call",
        "wrap_tool_call",
        "before_agent",
        "after_agent",
        "before_model",
        "after_model",
    )
)
"""What LangChain calls in middleware."""


def main(arguments: list[str]) -> int:
    told = {name for names in GROUPS.values() for name in names}
    if told != {*coupler.__all__} - {"__version__"}:
        raise ValueError(f"GROUPS and the public names differ: {told ^ {*coupler.__all__}}")
    parts = {
        name: sections(described(coupler._HOMES[each], each) for each in names)
        for name, names in GROUPS.items()
    }
    parts["held by agents"] = sections(described(*each) for each in HELD_BY_AGENTS)
    parts["held by clients"] = sections(described(*each) for each in HELD_BY_CLIENTS)
    parts["acp"] = "\n\n".join(of_acp(name) for name in acp.__all__)
    parts["providers"] = "\n\n".join(of_providers(name) for name in providers.__all__ if name != "ENTRIES")
    return update({"python-api.md": parts}, arguments)


def public(name: str) -> Described:
    """What a public name is. What a plain function's turn has says of itself what the other turn's says."""
    thing = described(coupler._HOMES[name], name)
    if name != "BlockingTurn":
        return thing
    sentences = {member.name: member.sentence for member in public("Turn").members}
    told = [
        member._replace(sentence=member.sentence or sentences.get(member.name, ""))
        for member in thing.members
    ]
    return thing._replace(members=(*told,))


def sections(things: Iterable[Described]) -> str:
    return "\n\n".join(section(thing, thing.name) for thing in things)


def of_acp(name: str) -> str:
    module, attribute = acp._HOMES[name]
    thing = described(f"{acp._BRIDGE}.{module}", attribute)
    signature = thing.signature.replace(attribute, name, 1)
    return section(thing._replace(signature=signature), f"acp.{name}")


def of_providers(name: str) -> str:
    module, _, attribute = providers._HOMES[name].partition(":")
    thing = described(f"coupler.providers.{module}", attribute)
    thing = thing._replace(signature=thing.signature.replace(attribute, name, 1))
    # All but one are agents, and have what agents have.
    return section(thing if name == "Entry" else thing._replace(members=()), f"providers.{name}")


def section(thing: Described, title: str) -> str:
    """A heading, how it is called, what it says of itself, and its members."""
    lines = [f"### {title}", ""]
    if thing.name not in NOT_MADE:
        lines += ["```text", thing.signature, "```", ""]
    lines += [thing.text, ""]
    if kinds := [base for base in thing.bases if base.endswith("Error")]:
        lines += [f"It is a kind of `{kinds[0]}`.", ""]
    lines += [bullet(member) for member in thing.members if is_told(thing, member)]
    return "\n".join(lines).strip()


def is_told(thing: Described, member: Member) -> bool:
    internal = INTERNAL.get(thing.name, "").split()
    return member.name not in internal and member.name not in HOOKS and not member.name.startswith("as_")


def bullet(member: Member) -> str:
    return f"- `{member.signature}`: {member.sentence}" if member.sentence else f"- `{member.signature}`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
