"""Logging in: what clients are told, when the agent is open to them, and what to run if it is not."""

import asyncio
import logging
import threading

import msgspec
import pytest

from coupler.agent.agent import Agent
from coupler.agent.auth import Login, Logins
from coupler.agent.capabilities import initialize_response, response_for_client
from coupler.agent.errors import AuthRequiredError
from coupler.schema.v1 import AuthCapabilities, ClientCapabilities
from coupler.wire.messages import RpcError
from tables import table

PLAIN = ClientCapabilities()
WITH_TERMINAL = ClientCapabilities(auth=AuthCapabilities(terminal=True))


class Account:
    """Somebody who can log in and out, and counts how often he was looked at."""

    def __init__(self, *, is_in=False):
        self.is_in = is_in
        self.checks = self.logins = self.logouts = 0

    def check(self):
        self.checks += 1
        return self.is_in

    def login(self):
        self.logins += 1
        self.is_in = True

    def logout(self):
        self.logouts += 1
        self.is_in = False

    async def check_async(self):
        return self.check()

    async def login_async(self):
        self.login()

    async def logout_async(self):
        self.logout()


def no():
    return False


def yes():
    return True


def agent_with(*logins):
    return type("Private", (Agent,), {"logins": logins})


def methods_for(client, introduction):
    return on_the_wire(response_for_client(introduction, client).auth_methods)


def on_the_wire(value):
    return msgspec.json.decode(msgspec.json.encode(value))


def code_of(raised):
    return raised.value.code, raised.value.reason


class TestDeclarations:
    AGENT = Login("key", "API key", "Set EXAMPLE_KEY", check=no)
    TERMINAL = Login("tui", "In a terminal", check=no, command=["login", "--now"], env={"MODE": "login"})
    BARE = Login("bare", "Bare", check=no, command=["login"])

    def test_clients_are_told_of_terminals_only_if_they_have_them(self):
        introduction = initialize_response(agent_with(self.AGENT, self.TERMINAL, self.BARE))

        assert methods_for(PLAIN, introduction) == [
            {"id": "key", "name": "API key", "description": "Set EXAMPLE_KEY"}
        ]
        assert methods_for(WITH_TERMINAL, introduction) == [
            {"id": "key", "name": "API key", "description": "Set EXAMPLE_KEY"},
            {
                "type": "terminal",
                "id": "tui",
                "name": "In a terminal",
                "args": ["login", "--now"],
                "env": {"MODE": "login"},
            },
            {"type": "terminal", "id": "bare", "name": "Bare", "args": ["login"]},
        ]

    @table(
        ("keywords", "problem"),
        [
            ({"id": ""}, "the id of a login is text"),
            ({"id": 5}, "the id of a login is text"),
            ({"id": "a\ud83d"}, "unpaired surrogate"),
            ({"name": " "}, "the name of the login 'a' is text"),
            ({"description": 5}, "the description of the login 'a' is text"),
            ({"check": True}, "the check of the login 'a' is a function"),
            ({"check": None}, "the check of the login 'a' is a function"),
            ({"login": "x"}, "the `login` of the login 'a' is a function"),
            ({"logout": 5}, "the `logout` of the login 'a' is a function"),
            ({"command": "login"}, "the command of the login 'a' is a list of arguments"),
            ({"command": [5]}, "the command of the login 'a' is a list of texts"),
            ({"command": ["a\0"]}, "the command of the login 'a' is a list of texts"),
            ({"command": []}, "would run the agent itself"),
            ({"command": ["x"], "login": yes}, "has a `command` and a `login`"),
            ({"env": {"A": "b"}}, "has variables but no command"),
            ({"command": ["x"], "env": {"A=": "b"}}, "a variable that cannot be called 'A='"),
            ({"command": ["x"], "env": {"": "b"}}, "a variable that cannot be called ''"),
            ({"command": ["x"], "env": {"A": 5}}, "the variable A of the login 'a' is text"),
            ({"command": ["x"], "env": ["A"]}, "the variables of the login 'a' are a mapping"),
        ],
    )
    def test_a_mistake_is_found_where_it_is_written(self, keywords, problem):
        with pytest.raises(ValueError, match=problem):
            Login(**{"id": "a", "name": "A", "check": no, **keywords})

    def test_no_two_have_the_same_id(self):
        with pytest.raises(ValueError, match="two logins are called 'key'"):
            Logins([self.AGENT, self.AGENT])

    @table(
        ("logins", "can"),
        [
            ([], False),
            ([Login("a", "A", check=no)], False),
            ([Login("a", "A", check=no), Login("b", "B", check=no, logout=no)], True),
            ([Login("a", "A", check=no, command=["x"], logout=no)], True),
        ],
    )
    def test_one_can_log_out_if_a_login_says_how(self, logins, can):
        capabilities = initialize_response(agent_with(*logins)).agent_capabilities

        assert on_the_wire(capabilities.auth) == ({"logout": {}} if can else {})


async def raises():
    raise LookupError("no such account")


def raises_in_thread():
    raise LookupError("no such account")


async def exits():
    raise SystemExit(3)


def exits_in_thread():
    raise SystemExit(3)


def stops():
    raise StopIteration


async def is_cancelled():
    raise asyncio.CancelledError


async def hangs():
    await asyncio.Event().wait()


async def swallows():
    while True:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            return True


BAD_CHECKS = [
    (raises, "failed: LookupError: no such account"),
    (raises_in_thread, "failed: LookupError: no such account"),
    (exits, "failed: RuntimeError: SystemExit: 3"),
    (exits_in_thread, "failed: RuntimeError: SystemExit: 3"),
    (stops, "failed: RuntimeError: StopIteration"),
    (is_cancelled, "was cancelled"),
    (hangs, "did not end within 0.05 s"),
    (lambda: "alice", "returned str, not a bool"),
    (lambda: 1, "returned int, not a bool"),
    (lambda: None, "returned NoneType, not a bool"),
    (lambda: hangs(), "did not end within 0.05 s"),
]


class TestChecks:
    def test_without_logins_there_is_nothing_to_satisfy(self):
        async def try_it():
            await Logins().require()
            return await Logins().is_satisfied()

        assert asyncio.run(try_it())

    @table(
        ("checks", "satisfied"),
        [
            ([yes], True),
            ([no], False),
            ([no, no], False),
            ([no, yes], True),
            ([raises, yes], True),
            ([hangs, yes], True),
            ([lambda: asyncio.sleep(0, True)], True),
        ],
    )
    def test_one_that_passes_is_enough(self, checks, satisfied):
        logins = Logins([Login(str(n), str(n), check=check) for n, check in enumerate(checks)])

        assert asyncio.run(asyncio.wait_for(logins.is_satisfied(), 5)) is satisfied

    @pytest.mark.parametrize(("check", "reason"), BAD_CHECKS)
    def test_one_that_does_not_work_is_not_passed_and_the_log_says_why(self, caplog, check, reason):
        logins = Logins([Login("key", "Key", check=check)], limit=0.05 if "end within" in reason else 10)

        with caplog.at_level(logging.WARNING, "coupler.agent"):
            assert not asyncio.run(logins.is_satisfied())

        assert [record.getMessage() for record in caplog.records] == [f"the check of the login key {reason}"]

    def test_a_thread_that_hangs_is_not_followed_by_more_and_refuses_at_once(self):
        release, started = threading.Event(), []

        def hangs_in_thread():
            started.append(1)
            release.wait(30)
            return True

        async def check_often():
            logins = Logins([Login("key", "Key", check=hangs_in_thread)], limit=0.05)
            answers = [await logins.is_satisfied() for _ in range(5)]
            release.set()
            return answers

        assert asyncio.run(check_often()) == [False] * 5
        assert started == [1]

    def test_many_at_once_share_one_check(self):
        account = Account(is_in=True)
        logins = Logins([Login("key", "Key", check=account.check)])

        async def check_often():
            return await asyncio.gather(*(logins.is_satisfied() for _ in range(20)))

        assert asyncio.run(check_often()) == [True] * 20
        assert account.checks == 1

    def test_one_who_stops_waiting_leaves_the_check_to_the_others(self):
        async def check_twice():
            go = asyncio.Event()

            async def slow():
                await go.wait()
                return True

            logins = Logins([Login("key", "Key", check=slow)])
            first, second = (asyncio.ensure_future(logins.is_satisfied()) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait({first})
            go.set()
            return first.cancelled(), await second

        assert asyncio.run(check_twice()) == (True, True)

    def test_a_check_that_swallows_its_cancel_harms_nobody(self):
        logins = Logins([Login("key", "Key", check=swallows)], limit=0.05)

        assert not asyncio.run(logins.is_satisfied())

    def test_a_yes_is_remembered_and_a_no_is_not(self):
        account = Account()
        logins = Logins([Login("tui", "Terminal", check=account.check, command=["login"])])

        async def look():
            before = await logins.is_satisfied()
            account.is_in = True  # the user ran the command
            return before, await logins.is_satisfied(), await logins.is_satisfied(), account.checks

        assert asyncio.run(look()) == (False, True, True, 2)

    def test_forgetting_makes_it_look_again(self):
        account = Account(is_in=True)
        logins = Logins([Login("key", "Key", check=account.check)])

        async def look():
            before = await logins.is_satisfied()
            account.is_in = False
            logins.forget()
            return before, await logins.is_satisfied()

        assert asyncio.run(look()) == (True, False)

    def test_a_check_that_began_before_a_logout_does_not_count_after_it(self):
        async def race():
            go, answers = asyncio.Event(), [True, False, False, False]

            async def slow():
                answer = answers.pop(0)
                await go.wait()
                return answer

            logins = Logins([Login("key", "Key", check=slow, logout=no)])
            early = asyncio.ensure_future(logins.is_satisfied())
            await asyncio.sleep(0)
            leaving = asyncio.ensure_future(logins.log_out())
            while len(answers) == 3:  # until the logout looks for itself
                await asyncio.sleep(0)
            go.set()
            await leaving
            return await early, await logins.is_satisfied()

        assert asyncio.run(race()) == (False, False)


class TestRequire:
    @pytest.mark.parametrize(
        ("program", "expected"),
        [
            (
                (),
                "log in first: API key (Set EXAMPLE_KEY); or Browser; or run the agent's command with `login "
                "--user 'a b'` in a terminal",
            ),
            (
                ("my-agent", "serve"),
                "log in first: API key (Set EXAMPLE_KEY); or Browser; or run `my-agent serve login "
                "--user 'a b'` in a terminal",
            ),
        ],
    )
    def test_the_refusal_names_the_ways_in(self, program, expected):
        logins = Logins(
            [
                Login("key", "API key", "Set EXAMPLE_KEY", check=no),
                Login("browser", "Browser", check=no, login=yes),
                Login(
                    "tui", "Terminal", check=no, command=["login", "--user", "a b"], env={"HIDDEN": "hunter2"}
                ),
            ],
            program=program,
        )

        with pytest.raises(AuthRequiredError) as raised:
            asyncio.run(logins.require())

        assert raised.value.message == expected
        assert code_of(raised) == (-32000, "auth_required")

    def test_a_satisfied_check_opens(self):
        asyncio.run(Logins([Login("key", "Key", check=yes)]).require())


@pytest.mark.parametrize("suffix", ["", "_async"])
class TestAuthenticate:
    def logins(self, account, suffix, *more):
        return Logins(
            [
                Login(
                    "key",
                    "Key",
                    check=getattr(account, f"check{suffix}"),
                    login=getattr(account, f"login{suffix}"),
                    logout=getattr(account, f"logout{suffix}"),
                ),
                *more,
            ]
        )

    def test_it_logs_in_and_opens(self, suffix):
        account = Account()
        logins = self.logins(account, suffix)

        async def enter():
            before = await logins.is_satisfied()
            await logins.authenticate("key")
            await logins.require()
            return before

        assert asyncio.run(enter()) is False
        assert account.logins == 1

    def test_who_is_in_already_need_not_log_in(self, suffix):
        account = Account(is_in=True)

        asyncio.run(self.logins(account, suffix).authenticate("key"))

        assert account.logins == 0

    def test_logging_out_closes_until_the_next_login(self, suffix):
        account = Account()
        logins = self.logins(account, suffix)

        async def in_and_out():
            await logins.authenticate("key")
            await logins.log_out()
            closed = not await logins.is_satisfied()
            await logins.authenticate("key")
            return closed, await logins.is_satisfied()

        assert asyncio.run(in_and_out()) == (True, True)
        assert (account.logins, account.logouts) == (2, 1)

    def test_logging_out_closes_also_what_cannot_be_logged_out_of(self, suffix):
        account = Account()
        logins = self.logins(account, suffix, Login("env", "Variable", check=yes))

        async def in_and_out():
            before = await logins.is_satisfied()
            await logins.log_out()
            closed = not await logins.is_satisfied()
            await logins.authenticate("env")
            return before, closed, await logins.is_satisfied()

        assert asyncio.run(in_and_out()) == (True, True, True)
        assert account.logins == 0

    def test_a_terminal_login_elsewhere_opens_after_a_logout(self, suffix):
        account = Account(is_in=True)
        check, logout = (getattr(account, f"{what}{suffix}") for what in ("check", "logout"))
        logins = Logins([Login("tui", "Terminal", check=check, logout=logout, command=["login"])])

        async def out_and_in():
            await logins.log_out()
            closed = not await logins.is_satisfied()
            account.is_in = True
            return closed, await logins.is_satisfied()

        assert asyncio.run(out_and_in()) == (True, True)


class TestRefusedAuthentication:
    LOGINS = (
        Login("key", "Key", "Set EXAMPLE_KEY", check=no),
        Login("tui", "Terminal", check=no, command=["login"]),
    )

    def refused(self, logins, method):
        with pytest.raises(RpcError) as raised:
            asyncio.run(asyncio.wait_for(Logins(logins, program=["my-agent"]).authenticate(method), 5))
        return raised

    @table("method", ["", "nothing", "KEY", "key ", "x" * 10_000])
    @table("check", [no, yes])
    def test_an_unknown_method_is_a_wrong_parameter(self, method, check):
        raised = self.refused([*self.LOGINS, Login("other", "Other", check=check)], method)

        assert code_of(raised) == (-32602, "invalid_params")
        assert raised.value.data["path"] == "methodId"
        assert raised.value.message.endswith("those for authenticate: key, other")
        assert len(raised.value.message) < 300

    @pytest.mark.parametrize("check", [no, yes])
    def test_so_is_one_for_terminals_even_if_it_is_satisfied(self, check):
        raised = self.refused([Login("tui", "Terminal", check=check, command=["login"])], "tui")

        assert code_of(raised) == (-32602, "invalid_params")
        assert "run `my-agent login` in a terminal, then reconnect" in raised.value.message

    def test_without_a_login_to_run_it_says_what_to_do(self):
        raised = self.refused(self.LOGINS, "key")

        assert code_of(raised) == (-32000, "auth_required")
        assert raised.value.message == (
            "Key did not log the user in; log in first: Key (Set EXAMPLE_KEY); "
            "or run `my-agent login` in a terminal"
        )

    @table(
        ("login", "reason"),
        [
            (raises, "failed: LookupError: no such account"),
            (raises_in_thread, "failed: LookupError: no such account"),
            (exits, "failed: RuntimeError: SystemExit: 3"),
            (exits_in_thread, "failed: RuntimeError: SystemExit: 3"),
            (stops, "failed: RuntimeError: StopIteration"),
            (yes, "did not log the user in"),
        ],
    )
    def test_a_login_that_fails_says_why(self, login, reason):
        raised = self.refused([Login("key", "Key", check=no, login=login)], "key")

        assert code_of(raised) == (-32000, "auth_required")
        assert reason in raised.value.message

    def test_another_login_takes_the_place_of_one_that_hangs(self):
        account = Account()
        logins = Logins(
            [
                Login("browser", "Browser", check=no, login=hangs),
                Login("key", "Key", check=account.check, login=account.login),
            ]
        )

        async def change_ones_mind():
            first = asyncio.ensure_future(logins.authenticate("browser"))
            while logins._login is None:
                await asyncio.sleep(0)
            await logins.authenticate("key")
            (result,) = await asyncio.gather(first, return_exceptions=True)
            return result

        result = asyncio.run(asyncio.wait_for(change_ones_mind(), 5))

        assert isinstance(result, AuthRequiredError)
        assert "was given up" in result.message

    def test_a_cancelled_request_cancels_its_login(self):
        ended = []

        async def login():
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        async def cancel_it():
            logins = Logins([Login("key", "Key", check=no, login=login)])
            request = asyncio.ensure_future(logins.authenticate("key"))
            while logins._login is None:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            request.cancel()
            await asyncio.wait({request, logins._login})
            return request.cancelled()

        assert asyncio.run(cancel_it())
        assert ended == [True]

    def test_a_logout_that_fails_is_told_after_the_others_were_tried(self):
        account = Account(is_in=True)
        logins = Logins(
            [
                Login("a", "A", check=no, logout=raises),
                Login("b", "B", check=account.check, logout=account.logout),
            ]
        )

        with pytest.raises(RpcError, match="logging out failed: A: LookupError: no such account") as raised:
            asyncio.run(logins.log_out())

        assert code_of(raised) == (-32603, "agent_failed")
        assert account.logouts == 1

    def test_a_logout_waits_for_all_checks_at_once(self):
        async def log_out():
            together = asyncio.Barrier(3)

            async def check():
                await together.wait()
                return True

            logins = Logins([Login(id, id, check=check, logout=yes) for id in "abc"], limit=60)
            async with asyncio.timeout(10):
                await logins.log_out()
            return together.broken

        assert not asyncio.run(log_out())
