"""Faults of tool calls, and of what is asked of the client for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fault import Fault
from model import leaf
from model_turn import Turn
from model_wire import Cancellable, Cancelled, Object


class WorksInItsOwnDirectory(Fault):
    """Tools work in the directory of the process, not in that of the session."""

    assertion = "A23"

    def directory_of(self, turn: Turn) -> str:
        return str(Path.cwd())


class UpdatesUnknownCalls(Fault):
    """An update is about a tool call that was never introduced."""

    assertion = "A46"

    def think(self, turn: Turn, thought: str) -> None:
        super().think(turn, thought)
        self.update(turn.session, self.settled_call("nobody"))


class ReusesCallIds(Fault):
    """The tool calls of every turn have the ids of those before."""

    assertion = "A46"

    def start_turn(self, turn: Turn) -> None:
        turn.session.calls = 0
        super().start_turn(turn)


class LeavesCancelledCallsOpen(Fault):
    """A tool call that is cut short is never reported again."""

    assertion = "A47"

    def settle_open_calls(self, turn: Turn) -> None:
        pass


class LeavesCallsRunning(Fault):
    """A tool call that is done stays in progress."""

    assertion = "A47"

    def move_call(self, turn: Turn, call: str, status: str, **more: Any) -> None:
        if status != "completed":
            super().move_call(turn, call, status, **more)

    def settle_open_calls(self, turn: Turn) -> None:
        if turn.cancelled:
            super().settle_open_calls(turn)


class CallsACallCancelled(Fault):
    """A tool call that is cut short has a status that ACP 1 does not know."""

    assertion = "A47"

    def settled_call(self, call: str) -> Object:
        return super().settled_call(call) | {"status": "cancelled"}


class NamesNoTool(Fault):
    """A tool call has a name that is empty."""

    assertion = "N03"

    def open_call(self, turn: Turn, kind: str, title: str, **more: Any) -> str:
        return super().open_call(turn, kind, title, **{**more, "name": ""})


class PointsAtRelativePaths(Fault):
    """The location of a tool call is a relative path."""

    assertion = "A48"

    def open_call(self, turn: Turn, kind: str, title: str, **more: Any) -> str:
        return super().open_call(turn, kind, title, **{**more, "locations": [{"path": "notes.txt"}]})


class CountsLinesFromZero(Fault):
    """The location of a tool call is line 0."""

    assertion = "A48"

    def open_call(self, turn: Turn, kind: str, title: str, **more: Any) -> str:
        locations = [{**location, "line": 0} for location in more.get("locations", [])]
        return super().open_call(turn, kind, title, **{**more, "locations": locations})


class ShowsRelativeDiffs(Fault):
    """The path of a diff is relative."""

    assertion = "A48"

    def move_call(self, turn: Turn, call: str, status: str, **more: Any) -> None:
        if "content" in more:
            more["content"] = [
                {**part, "path": "notes.txt"} if part["type"] == "diff" else part for part in more["content"]
            ]
        super().move_call(turn, call, status, **more)


class RunsInARelativeDirectory(Fault):
    """The directory of a terminal is relative."""

    assertion = "A48"

    def command_of(self, turn: Turn) -> Object:
        return super().command_of(turn) | {"cwd": "."}


class ShowsBareText(Fault):
    """The text of a tool call is not wrapped."""

    assertion = "A48"

    def move_call(self, turn: Turn, call: str, status: str, **more: Any) -> None:
        if "content" in more:
            more["content"] = [part.get("content", part) for part in more["content"]]
        super().move_call(turn, call, status, **more)


class ForgetsTheTitle(Fault):
    """A tool call has no title."""

    assertion = "S01"

    def report(self, turn: Turn, update: Object) -> None:
        if update["sessionUpdate"] == "tool_call":
            update = {key: value for key, value in update.items() if key != "title"}
        super().report(turn, update)


class WritesWhatWasCancelled(Fault):
    """A cancel while permission is asked lets the tool run."""

    assertion = "A54"

    def is_allowed(self, turn: Turn, call: str, diff: Object) -> bool:
        try:
            return super().is_allowed(turn, call, diff)
        except Cancelled:
            self.write_file(turn, diff["path"], diff["newText"])
            raise


class GoesOnWhenPermissionIsCancelled(Fault):
    """A cancel while permission is asked ends the tool call, but not the turn."""

    assertion = "A54"

    def is_allowed(self, turn: Turn, call: str, diff: Object) -> bool:
        try:
            return super().is_allowed(turn, call, diff)
        except Cancelled:
            turn.cancelled = False
            return False


class ReadsFilesUnasked(Fault):
    """The client is asked for a file, which it did not offer."""

    assertion = "A56"

    def offered_in(self, params: Object) -> set[str]:
        return super().offered_in(params) | {"read"}


class WritesFilesUnasked(Fault):
    """The client is told to write a file, which it did not offer."""

    assertion = "A56"

    def offered_in(self, params: Object) -> set[str]:
        return super().offered_in(params) | {"write"}


class UsesTerminalsUnasked(Fault):
    """The client is asked for a terminal, which it did not offer."""

    assertion = "A56"

    def offered_in(self, params: Object) -> set[str]:
        return super().offered_in(params) | {"terminal"}


class TakesAnEmptyElicitationForAForm(Fault):
    """A client that offers no kind of elicitation is asked by a form."""

    assertion = "A56"

    def offered_in(self, params: Object) -> set[str]:
        empty = leaf(params.get("clientCapabilities"), ("elicitation",)) == {}
        return super().offered_in(params) | ({"form"} if empty else set())


class KeepsTerminals(Fault):
    """A terminal is never released."""

    assertion = "A57"

    def release(self, turn: Turn, terminal: Object) -> None:
        pass


class KeepsTheTerminalsOfCancelledTurns(Fault):
    """A terminal is not released if the turn is cancelled."""

    assertion = "A57"

    def release(self, turn: Turn, terminal: Object) -> None:
        if not turn.cancelled:
            super().release(turn, terminal)


class TakesARejectionForAYes(Fault):
    """A tool runs that the user has rejected."""

    assertion = "A58"

    def is_yes(self, outcome: object) -> bool:
        return super().is_yes(outcome) or leaf(outcome, ("optionId",)) == "reject_once"


class TakesAnUnknownOptionForAYes(Fault):
    """A tool runs if the client chooses an option that does not exist."""

    assertion = "A58"

    def is_yes(self, outcome: object) -> bool:
        return leaf(outcome, ("optionId",)) not in (None, "reject_once")


class LeavesOutTheMode(Fault):
    """A form does not say that it is one."""

    assertion = "A59"

    def form_for(self, turn: Turn) -> Object:
        return {key: value for key, value in super().form_for(turn).items() if key != "mode"}


class UsesTwoScopes(Fault):
    """A form belongs to a session and to a request at once."""

    assertion = "A59"

    def form_for(self, turn: Turn) -> Object:
        return super().form_for(turn) | {"requestId": turn.request.id}


class NestsItsForm(Fault):
    """A form has an object in it."""

    assertion = "A59"

    def form_for(self, turn: Turn) -> Object:
        form = super().form_for(turn)
        form["requestedSchema"]["properties"]["style"] = {"type": "object", "properties": {}}
        return form


class WaitsForAnotherAnswer(Fault):
    """A form that is declined or dismissed keeps the turn waiting."""

    assertion = "A59"

    def ask(
        self, turn: Cancellable | None, method: str, params: Object, *, seconds: float | None = None
    ) -> Object:
        answer = super().ask(turn, method, params, seconds=seconds)
        if method == "elicitation/create" and answer.get("action") != "accept":
            with self.changed:
                self.changed.wait_for(lambda: self.given_up(turn), 60)
        return answer
