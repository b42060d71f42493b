"""`present_plan`: how the mode for planning is left. The user reads the plan, and says how to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from langchain_core.tools import BaseTool

from coupler import acp
from coupler.agent.elicitation import ask_in_call
from coupler.coder.offered_modes import ACCEPT_EDITS, INTERACTIVE, PLANNING
from coupler.langchain.current import steps_in
from coupler.langchain.editor_tools.tool_use import ToolUse, session_tool, tool_use
from coupler.permission.action import Action
from coupler.schema.v1 import PermissionOption, PermissionToolCall

if TYPE_CHECKING:
    from coupler.agent.permission import Permission
    from coupler.agent.session import Session

LONGEST_PLAN = 30_000
"""Characters of a plan: nobody reads a longer one before saying yes."""
LONGEST_REMARK = 4000
"""Characters of what the user wants to be different."""

TITLE = "Present the plan"
KEEP_PLANNING = PermissionOption("keep-planning", "Keep planning", "reject_once")
ANSWERS = (
    PermissionOption(INTERACTIVE, "Approve, and ask before edits", "allow_once"),
    PermissionOption(ACCEPT_EDITS, "Approve, and accept edits", "allow_once"),
    KEEP_PLANNING,
)
WHAT_ELSE = "What should be different in the plan?"

APPROVED = {
    INTERACTIVE: "The user has approved the plan, and is asked before each change. Carry it out now.",
    ACCEPT_EDITS: "The user has approved the plan, and accepts edits of the project's files without being "
    "asked; commands are asked about. Carry it out now.",
}
NOT_APPROVED = "The user has not approved the plan, and wants you to keep planning."
UNANSWERED = (
    "The plan was shown, but nobody has approved it: {reason}. End your turn with one sentence that says so; "
    "the user can answer in the chat, or choose another mode to have it carried out."
)


def plan_tools(session: Session | None = None) -> list[BaseTool]:
    """The tool to present a plan; given a session, it works in no other."""
    return [session_tool(present_plan, "switch_mode", session, title=lambda told: TITLE)]


async def present_plan(
    plan: Annotated[
        str, "The whole plan in Markdown: a numbered list, one step a line, with files and checks."
    ],
) -> str:
    """Show the user your plan and ask whether to carry it out. Only in planning mode, once the plan is done.

    If it is approved you can change things from the next call on; if not, you are told what to change.
    """
    text = plan.strip()
    if not text:
        raise ValueError("the plan is empty: write its steps as a numbered list")
    if len(text) > LONGEST_PLAN:
        raise ValueError(f"the plan is too long: write it in at most {LONGEST_PLAN} characters")
    async with tool_use(TITLE, "switch_mode") as use:
        if use.prompt.session.mode != PLANNING:
            raise ValueError("there is nothing to approve: you are not in planning mode any more, so go on")
        acp.emit_plan(steps_in(text) or _lines(text))
        await use.block.output(f"{text}\n\n")
        permission = await _asked(use)
        if permission.is_given and permission.option in APPROVED:
            use.prompt.session.set_mode(permission.option)
            use.block.start()
            return APPROVED[permission.option]
        if permission.option == KEEP_PLANNING.option_id:
            remark = await _remark(use)
            raise ValueError(f"{NOT_APPROVED} {remark}".rstrip())
        raise ValueError(UNANSWERED.format(reason=permission.reason))


async def _asked(use: ToolUse) -> Permission:
    """What the user, or a rule against it, says."""
    prompt, call = use.prompt, use.block
    session = prompt.session
    if (key := prompt.call_id) is not None and key in prompt.calls:
        prompt.calls.wait(key)
    shown = PermissionToolCall(
        call.id,
        kind="switch_mode",
        status="pending",
        title=TITLE,
        name="present_plan",
        content=session.outlet.ledger.content(call.id),
    )
    action = Action(kind="switch_mode", name="present_plan", cwd=session.cwd, roots=session.roots)
    return await session.project.permitting().decide(prompt.turn, shown, action, None, ANSWERS, ())


async def _remark(use: ToolUse) -> str:
    """What the user wants to be different, if the client can ask for it and the user says so."""
    if not use.prompt.turn.editor.offers("elicitation.form"):
        return "Ask what should be different, or end your turn and wait for it."
    answer = await ask_in_call(use.prompt.turn, use.block, WHAT_ELSE, str)
    if answer is None or not answer.accepted or not str(answer.value).strip():
        return "They have not said what should be different: ask, or end your turn."
    return f"They say: {str(answer.value).strip()[:LONGEST_REMARK]}"


def _lines(text: str) -> list[str]:
    """A plan without a list, as what is shown of it."""
    return [line.strip("#-* ") for line in text.splitlines() if line.strip("#-* ")]
