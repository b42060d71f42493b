"""Faults of modes and configuration options."""

from __future__ import annotations

import threading

from fault import Fault
from model_sessions import MODES, Session, text_in
from model_wire import Object, Request


class AnswersOnlyWhatChanged(Fault):
    """The answer to a change has the changed option alone."""

    assertion = "A35"

    def answer(self, request: Request, result: Object) -> None:
        if request.method == "session/set_config_option":
            changed = request.params["configId"]
            result = {"configOptions": [entry for entry in result["configOptions"] if entry["id"] == changed]}
        super().answer(request, result)


class AnswersTheOldValue(Fault):
    """The answer to a change shows the options as they were before."""

    assertion = "A35"

    def answer(self, request: Request, result: Object) -> None:
        if request.method == "session/set_config_option":
            result = {"configOptions": self.options(Session("", "", []))}
        super().answer(request, result)


class RefusesGroupedValues(Fault):
    """A value in a group cannot be chosen."""

    assertion = "A35"

    def values_of(self, option: Object) -> list[str]:
        return [entry["value"] for entry in option["options"] if "value" in entry]


class TakesUnknownOptions(Fault):
    """An option that does not exist can be changed."""

    assertion = "A36"

    def check_value(self, session: Session, option: str, value: object, type: object) -> None:
        if option in [entry["id"] for entry in self.options(session)]:
            super().check_value(session, option, value, type)


class TakesUnofferedValues(Fault):
    """A select takes any string; its value stays as it was."""

    assertion = "A36"

    def set_option(self, request: Request) -> None:
        session, value = self.session_of(request), request.params.get("value")
        known = [
            choice for entry in self.options(session) for choice in self.values_of({"options": [], **entry})
        ]
        if isinstance(value, str) and value not in known:
            self.answer(request, {"configOptions": self.options(session)})
        else:
            super().set_option(request)


class TakesBareBooleans(Fault):
    """A boolean option takes a boolean that does not say its type."""

    assertion = "A36"

    def check_value(self, session: Session, option: str, value: object, type: object) -> None:
        super().check_value(session, option, value, "boolean")


class AlwaysOffersBooleans(Fault):
    """A boolean option is shown to clients that cannot show it."""

    assertion = "A37"

    def offers_booleans(self) -> bool:
        return True


class PointsAtNoValue(Fault):
    """The current value of an option is none of its values."""

    assertion = "A38"

    def options(self, session: Session) -> list[Object]:
        mode, model, *others = super().options(session)
        return [mode, {**model, "currentValue": "retired"}, *others]


class LetsTheOptionGoStale(Fault):
    """A mode that is set by set_mode does not reach the option."""

    assertion = "A39"

    def set_mode(self, request: Request) -> None:
        session, mode = self.session_of(request), text_in(request.params, "modeId")
        if mode not in MODES:
            super().set_mode(request)
            return
        self.update(session, {"sessionUpdate": "current_mode_update", "currentModeId": mode})
        self.answer(request, {})


class LetsTheModeGoStale(Fault):
    """A mode that is set by its option does not reach clients that know modes only."""

    assertion = "A39"

    def update(self, session: Session, update: Object) -> None:
        if update["sessionUpdate"] != "current_mode_update":
            super().update(session, update)


class QueuesSettingsBehindTheTurn(Fault):
    """An option that is changed during a turn is changed after it."""

    assertion = "A40"

    def set_option(self, request: Request) -> None:
        def wait_and_set() -> None:
            with self.changed:
                self.changed.wait_for(lambda: session.id not in self.turns)
            super(QueuesSettingsBehindTheTurn, self).set_option(request)

        session = self.session_of(request)
        if session.id in self.turns:
            threading.Thread(target=wait_and_set, daemon=True).start()
        else:
            super().set_option(request)
