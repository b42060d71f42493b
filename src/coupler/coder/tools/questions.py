"""The tools `ask_user` and `present_plan`: questions of the model to the user, in the middle of its work.

A question is a form where the client shows forms, else a dialog with the choices. Where neither can be shown,
it is said in the chat and the turn ends: the next prompt is the answer, also in a session that was loaded
again meanwhile. To decline is an answer that the model reads. A plan that is approved ends the planning mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from weakref import WeakKeyDictionary

from langchain_core.tools import BaseTool
from langgraph.types import interrupt

from coupler import acp
from coupler.agent.elicitation import MOST_CHOICES, Answer, Form, FormError, ask_in_call, asks_for_secret
from coupler.agent.permission import TurnDialog
from coupler.coder.profiles import ACCEPT_EDITS, INTERACTIVE, PLANNING
from coupler.coder.setup import remove_state_value, set_state_value, state_value
from coupler.coder.tools.outputs import one_line
from coupler.fields.form_fields import ChoiceField, ChoicesField, Field, Option, TextField
from coupler.langchain.editor_tools.tool_use import ToolUse, session_tool, tool_use
from coupler.langchain.plan import plan_steps
from coupler.langchain.presentation import title_with_text
from coupler.permission.action import Action
from coupler.schema.v1 import PermissionOption, PermissionToolCall

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.langchain.current import Current
    from coupler.permission.decision import Permission

LONGEST_QUESTION = 4000
"""Characters of a question."""

MOST_OPTIONS = 20
LONGEST_OPTION = 200
"""Choices of one question, and characters of each, at most."""

LONGEST_ANSWER = 20_000
"""Characters of an answer that the model gets."""

LONGEST_TITLE = 100
"""Characters of a question that stand in the title of the call."""

LONGEST_PLAN = 30_000
"""Characters of a plan: nobody reads a longer one before saying yes."""
LONGEST_REMARK = 4000
"""Characters of the change that the user asks for."""

WAITING_KEY = "question"
"""Key in the session's state for the call whose question the next prompt answers."""

NO_SECRETS = (
    "the question asks for a secret, and what users answer passes models and logs: "
    "have the user put it where the program looks for it, and ask only whether that is done"
)
ONE_AT_A_TIME = (
    "another question is asked already, and this editor can show one at a time: "
    "wait for its answer, then ask again if you still need to know"
)
DECLINED = (
    "The user declined to answer. Do not ask the same again: decide yourself as far as that is safe and "
    "say what you assumed, or stop and say what you need."
)
CANCELLED = "The user closed the question without an answer. Go on without it, or stop and say what you need."

PLAN_TITLE = "Present the plan"
KEEP_PLANNING = PermissionOption("keep-planning", "Keep planning", "reject_once")
PLAN_OPTIONS = (
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

_asked_in_chat: WeakKeyDictionary[Turn, str | None] = WeakKeyDictionary()
"""The call whose question was put into the chat, by turn."""


def ask_tools(session: Session | None = None) -> list[BaseTool]:
    """Return the tool to ask the user something; given a session, it works in no other."""
    return [session_tool(ask_user, "think", session, title=title_with_text("Ask:", "question"))]


async def ask_user(
    question: Annotated[str, "One question, whole: the user sees nothing else of what you think."],
    options: Annotated[
        list[str], f"Answers to choose from, at most {MOST_OPTIONS} short ones; none for an open question."
    ] = [],  # noqa: B006 - the model reads the default, and nobody changes it
    multiple: Annotated[bool, "Whether several of the options may be chosen."] = False,
) -> str:
    """Ask the user a question, and wait for the answer.

    For decisions that are the user's and cannot be found out: what is meant, which of several ways to take.
    Do not ask for permission to use a tool: each tool asks for that itself.
    """
    asked = _Question(question, options, multiple)
    async with tool_use("Ask:", "think", about=asked.title) as use:
        await use.ask()
        if _is_answered_by_prompt(use.prompt):
            return _answered(asked, _answer_in_prompt(asked))
        answer = await _ask_now(use, asked)
        if answer is None:
            answer = await _ask_in_chat(use, asked)
        return _answered(asked, answer)


def plan_tools(session: Session | None = None) -> list[BaseTool]:
    """Return the tool to present a plan; given a session, it works in no other."""
    return [session_tool(present_plan, "switch_mode", session, title=lambda told: PLAN_TITLE)]


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
    async with tool_use(PLAN_TITLE, "switch_mode") as use:
        if use.prompt.session.mode != PLANNING:
            raise ValueError("there is nothing to approve: you are not in planning mode any more, so go on")
        acp.emit_plan(plan_steps(text) or _lines(text))
        await use.block.describe(f"{text}\n\n")
        permission = await _asked(use)
        if permission.is_given and permission.option in APPROVED:
            use.prompt.session.set_mode(permission.option)
            use.block.start()
            return APPROVED[permission.option]
        if permission.option == KEEP_PLANNING.option_id:
            remark = await _remark(use)
            raise ValueError(f"{NOT_APPROVED} {remark}".rstrip())
        raise ValueError(UNANSWERED.format(reason=permission.reason))


class _Question:
    """A checked question; ValueError tells the model what is wrong with it."""

    def __init__(self, text: str, options: list[str], multiple: bool) -> None:
        self.text = text.strip()
        self.multiple = multiple
        if not self.text:
            raise ValueError("the question is empty: write what you want to know")
        if len(self.text) > LONGEST_QUESTION:
            raise ValueError(f"the question is too long: at most {LONGEST_QUESTION} characters can be asked")
        if asks_for_secret(self.text):
            raise ValueError(NO_SECRETS)
        self.options = _checked_options(options)
        if multiple and not self.options:
            raise ValueError("`multiple` is for questions with options: give them, or leave it out")

    @property
    def title(self) -> str:
        """The question in one line."""
        return one_line(self.text, LONGEST_TITLE)

    @property
    def in_full(self) -> str:
        """The question with its choices, for who reads text only."""
        if not self.options:
            return self.text
        listed = "\n".join(f"{number}. {option}" for number, option in enumerate(self.options, 1))
        how = "You can name several of them." if self.multiple else "You can also say something else."
        return f"{self.text}\n\n{listed}\n\n{how}"

    def form(self) -> Form[str]:
        """The form: the choices, and a line for what is none of them."""
        own_words = TextField(
            name="other" if self.options else "answer",
            keyword="other" if self.options else "answer",
            title="Or in your own words" if self.options else "Answer",
            required=not self.options,
            longest=LONGEST_ANSWER,
        )
        return Form([*self._choice(), own_words], _joined)

    def dialog(self) -> Form[str] | None:
        """Return the form as mere choices; None if it is no such question."""
        if not self.options or self.multiple or len(self.options) > MOST_CHOICES:
            return None
        return Form([*self._choice()], _joined)

    def _choice(self) -> list[Field]:
        if not self.options:
            return []
        common: dict[str, Any] = {"name": "choice", "keyword": "choice", "title": "Answer", "required": False}
        options = tuple(Option(option, option, option) for option in self.options)
        if self.multiple:
            return [ChoicesField(**common, options=options)]
        return [ChoiceField(**common, options=options)]


def _checked_options(options: list[str]) -> tuple[str, ...]:
    if len(options) > MOST_OPTIONS:
        raise ValueError(f"there are {len(options)} options: give the {MOST_OPTIONS} best, or ask openly")
    kept = tuple(dict.fromkeys(" ".join(option.split()) for option in options))
    if not all(kept):
        raise ValueError("an option is empty: each is a short text")
    if any(len(option) > LONGEST_OPTION for option in kept):
        raise ValueError(f"an option is too long: each has at most {LONGEST_OPTION} characters")
    if len(kept) == 1:
        raise ValueError("there is only one option: give several, or none for an open question")
    return kept


def _joined(values: dict[str, Any]) -> str:
    """Join the values of a form to one text; raises FormError for an empty form, which is shown again."""
    choice = values.get("choice")
    chosen = [choice] if isinstance(choice, str) else [*(choice or ())]
    written = str(values.get("other") or values.get("answer") or "").strip()
    if not chosen and not written:
        raise FormError("expected an answer")
    return "\n".join([*chosen, *([written] if written else [])])


async def _asked(use: ToolUse) -> Permission:
    """Request the user's permission for the plan; a rule may deny it."""
    prompt, call = use.prompt, use.block
    session = prompt.session

    def as_asked() -> PermissionToolCall:
        return PermissionToolCall(
            call.id,
            kind="switch_mode",
            status=session.outlet.ledger.status_when_asked(call.id),
            title=PLAN_TITLE,
            name="present_plan",
            content=session.outlet.ledger.content(call.id),
        )

    action = Action(kind="switch_mode", name="present_plan", cwd=session.cwd, roots=session.roots)
    dialog = TurnDialog(prompt.turn, as_asked, own=PLAN_OPTIONS, always=())
    return await session.project.permissions().decide(action, dialog, always_asks=True)


async def _remark(use: ToolUse) -> str:
    """Return what the user wants to be different, if the client can ask for it and the user says so."""
    if not use.prompt.turn.editor.offers("elicitation.form"):
        return "Ask what should be different, or end your turn and wait for it."
    answer = await ask_in_call(use.prompt.turn, use.block, WHAT_ELSE, str)
    if answer is None or not answer.accepted or not str(answer.value).strip():
        return "They have not said what should be different: ask, or end your turn."
    return f"They say: {str(answer.value).strip()[:LONGEST_REMARK]}"


def _lines(text: str) -> list[str]:
    """Return the lines of a plan that has no list, as its entries."""
    return [line.strip("#-* ") for line in text.splitlines() if line.strip("#-* ")]


async def _ask_now(use: ToolUse, asked: _Question) -> Answer[str] | None:
    """Ask by a form or a dialog; None if the client can show neither for this question."""
    prompt = use.prompt
    has_forms = prompt.turn.editor.offers("elicitation.form")
    form = asked.form() if has_forms else asked.dialog()
    if form is None:
        return None
    if not has_forms and asked.title != asked.text:
        await use.block.describe(f"{asked.text}\n\n")
    answer: Answer[str] | None = await ask_in_call(prompt.turn, use.block, asked.text, form)
    use.block.start()
    return answer


async def _ask_in_chat(use: ToolUse, asked: _Question) -> Answer[str]:
    """Put the question into the chat and interrupt the graph until the next prompt."""
    prompt, key = use.prompt, use.prompt.call_id
    if _asked_in_chat.setdefault(prompt.turn, key) != key:
        raise ValueError(ONE_AT_A_TIME)
    if key is not None and key in prompt.calls:
        # It has done what it can: the answer comes by another prompt, and there by another call.
        prompt.calls.append(key, "The question was put into the chat: the next prompt is the answer.")
        prompt.calls.settle(key, "completed")
        set_state_value(prompt.session, WAITING_KEY, key)
    return _answer_in_prompt(asked)


def _is_answered_by_prompt(prompt: Current) -> bool:
    """True if the prompt that runs is the answer: the call began in an earlier one."""
    waiting = state_value(prompt.session, WAITING_KEY)
    if waiting is None or waiting != prompt.call_id:
        return False
    remove_state_value(prompt.session, WAITING_KEY)
    return True


def _answer_in_prompt(asked: _Question) -> Answer[str]:
    return Answer("accept", str(interrupt(asked.in_full)))


def _answered(asked: _Question, answer: Answer[str]) -> str:
    """Return the answer for the model; the call shows it to the user as well."""
    if answer.accepted and answer.value is not None:
        return _in_words(asked, answer.value.strip()[:LONGEST_ANSWER])
    told = CANCELLED if answer.action == "cancel" else DECLINED
    return f"{told} ({answer.reason})" if answer.reason else told


def _in_words(asked: _Question, answer: str) -> str:
    """Format the answer; the number of an option, as listed in the chat, is replaced by the option."""
    if answer.isdecimal() and 1 <= int(answer) <= len(asked.options) and answer not in asked.options:
        answer = asked.options[int(answer) - 1]
    return f"The user answered: {answer}" if answer else "The user answered nothing."
