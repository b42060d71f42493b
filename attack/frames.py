"""Frames that are wrong: made from the schema's own types, then changed as values or as bytes.

`Frames` makes batches for one direction. A changed request keeps its id and its method as long as only its
params are changed; somebody waits for it then, and it must be answered exactly once: it is *tracked*. What is
changed as bytes may mean anything, and nothing is expected but that the next message is served.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import inspect

from coupler.schema.methods import METHODS, Method

Json = Any
Side = Literal["agent", "client"]

TEMPLATES_OF_METHOD = 12
DEPTHS = (60, 150, 250)
"""More than an encoder follows is left to `RAW_VALUES`."""
LARGE_SHARE = 1 / 300
LONGEST_CUT = 40
BYTES_OVER_LIMIT = 10 * 1024 * 1024 + 5000
OVERSIZED_SHARE = 1 / 200_000
"""Frames that are longer than an agent reads; each takes as long as thousands of others."""

TEXTS = ("", "a", "x" * 300, "é😀", "\u0000", "\u202e", "/", "..", "\u001b[2J", '"', "\\", "_", "null")
NUMBERS = (0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**70), 10**400, 1.5, -0.0, 1e308)
ODD: tuple[Json, ...] = (None, True, False, [], {}, [[]], {"": {}}, *NUMBERS, *TEXTS)
RAW_VALUES = (
    b"NaN", b"-Infinity", b"1e999", b"01", b"+1", b"tru", b"'a'", b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\x"',
    b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\x01"', b"9" * 5000, b"-" + b"9" * 400 + b".5e-4000",
    b"[" * 3000 + b"]" * 3000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b"[1,]", b"{,}", b"", b"[", b'{"a"',
    b"1 2",
)  # fmt: skip
TOKENS = (
    b'{ } [ ] " \\ : , 1 - e . null true NaN \xff \xf0\x9f "id" "method" "jsonrpc" "2.0" "params"'.split()
)
INSERTED = (b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b"\0", b"\n", b"\r", b"\xff", b"\xe2\x80\xa8")


class Frames:
    """An endless supply of frames for the side that handles `side`'s methods.

    `sessions` are the ids that frames are about; `cwd` is where sessions work.
    """

    def __init__(self, side: Side, chance: random.Random, cwd: str) -> None:
        self.sessions: list[str] = []
        self.expected: dict[str, str] = {}
        """Of each tracked request that was made, the id and the method."""
        self._chance = chance
        self._cwd = cwd
        # A client's ids are small numbers: an answer to one of them would be no wrong frame.
        self._ids = ODD if side == "agent" else (None, True, [], {}, 1.5, *TEXTS)
        self._salt = f"{chance.getrandbits(64):016x}"
        self._count = 0
        methods = [method for method in METHODS.values() if method.direction in (side, "both")]
        self._templates = [
            (method, Sampler(chance).value(inspect.type_info(method.params)))
            for method in methods
            for _ in range(TEMPLATES_OF_METHOD)
        ]
        results = [method.result for method in METHODS.values() if method.direction != side and method.result]
        self._results = [Sampler(chance).value(inspect.type_info(kind)) for kind in results for _ in range(3)]
        self._kinds: list[Callable[[], bytes]] = [
            *[self._changed_values] * 9,
            *[self._changed_bytes] * 7,
            self._valid,
            self._raw_value,
            self._tokens,
            self._noise,
            self._answer,
            self._interleaved,
        ]

    def batch(self, size: int) -> list[bytes]:
        """So many lines without their ends; some hold a line end of their own."""
        choice, random_ = self._chance.choice, self._chance.random
        lines = []
        for _ in range(size):
            kind = self._oversized if random_() < OVERSIZED_SHARE else choice(self._kinds)
            lines.append(kind())
        return lines

    def joined(self, lines: list[bytes]) -> bytes:
        """The lines with ends as different programs write them."""
        ends = self._chance.choices((b"\n", b"\r\n", b"\n\n", b" \n"), (20, 2, 1, 1), k=len(lines))
        return b"".join(part for pair in zip(lines, ends, strict=True) for part in pair)

    def answers_to(self, id: Json) -> list[bytes]:
        """A wrong answer to a request of the other side, and then one that ends it for certain."""
        wrong = self._damaged(
            _encoded({"jsonrpc": "2.0", "id": id, "result": self._chance.choice(self._results)})
        )
        error = {"code": -32000, "message": "not today"}
        return [wrong, _encoded({"jsonrpc": "2.0", "id": id, "error": error})]

    def _message(self) -> tuple[Method, dict[str, Json]]:
        """A valid one, about one of the sessions."""
        method, params = self._chance.choice(self._templates)
        params = _copied(params)
        if "sessionId" in params and self.sessions and self._chance.random() < 0.9:
            params["sessionId"] = self._chance.choice(self.sessions)
        if "cwd" in params:
            params["cwd"] = self._cwd
        return method, params

    def _tracked(self, method: Method) -> dict[str, Json]:
        """The envelope; a request that somebody waits for if the method has an answer."""
        envelope: dict[str, Json] = {"jsonrpc": "2.0", "method": method.name}
        if method.result is not None:
            self._count += 1
            envelope["id"] = f"tracked-{self._salt}-{self._count}"
            self.expected[envelope["id"]] = method.name
        return envelope

    def _valid(self) -> bytes:
        method, params = self._message()
        return _encoded({**self._tracked(method), "params": params})

    def _changed_values(self) -> bytes:
        method, params = self._message()
        value: Json = params
        for _ in range(self._chance.choice((1, 1, 1, 2, 4))):
            value = self._changed(value)
        return _encoded({**self._tracked(method), "params": value})

    def _changed(self, value: Json) -> Json:
        """The value with one change somewhere in it."""
        chance = self._chance
        if isinstance(value, dict) and value and chance.random() < 0.93:
            name = chance.choice([*value])
            match int(chance.random() * 8):
                case 0:
                    return {key: item for key, item in value.items() if key != name}
                case 1:
                    return {
                        **value,
                        chance.choice(("_meta", "x", name.upper(), f"{name}s")): chance.choice(ODD),
                    }
                case _:
                    return {**value, name: self._changed(value[name])}
        if isinstance(value, list) and value and chance.random() < 0.7:
            at = int(chance.random() * len(value))
            if chance.random() < 0.2:
                return value * chance.choice((0, 2, 3))
            return [*value[:at], self._changed(value[at]), *value[at + 1 :]]
        return self._odd(value)

    def _odd(self, value: Json) -> Json:
        chance = self._chance
        if chance.random() < LARGE_SHARE:
            return self._large(value)
        match int(chance.random() * 12):
            case 0:
                return [value]
            case 1:
                return json.dumps(value)
        return chance.choice(ODD)

    def _large(self, value: Json) -> Json:
        match int(self._chance.random() * 4):
            case 0:
                return [value] * 500
            case 1:
                return {str(number): value for number in range(300)}
            case 2 if isinstance(value, str):
                return value * 1000
        for _ in range(self._chance.choice(DEPTHS)):
            value = [value]
        return value

    def _changed_bytes(self) -> bytes:
        method, params = self._message()
        envelope = {
            "jsonrpc": "2.0",
            "id": self._chance.choice(self._ids),
            "method": method.name,
            "params": params,
        }
        if self._chance.random() < 0.3:
            envelope = {name: envelope[name] for name in self._chance.sample([*envelope], 3)}
        return self._damaged(_encoded(envelope))

    def _damaged(self, line: bytes) -> bytes:
        """The bytes with one to four changes."""
        random_ = self._chance.random
        for _ in range(1 + int(random_() * 4)):
            at = int(random_() * (len(line) + 1))
            length = 1 + int(random_() * LONGEST_CUT)
            match int(random_() * 6):
                case 0:
                    line = line[:at] + bytes((int(random_() * 256),)) + line[at + 1 :]
                case 1:
                    line = line[:at] + line[at + length :]
                case 2:
                    line = line[:at] + line[at : at + length] * 2 + line[at + length :]
                case 3:
                    line = line[:at] + self._chance.choice(INSERTED) + line[at:]
                case 4:
                    line = line[:at]
                case 5:
                    flipped = bytes(byte ^ (1 << int(random_() * 8)) for byte in line[at : at + 1])
                    line = line[:at] + flipped + line[at + 1 :]
        return line

    def _raw_value(self) -> bytes:
        """A request whose params are no JSON, or such as no one wants; the id comes before or after them."""
        method, _ = self._message()
        id = _encoded(self._chance.choice(self._ids))
        parts = [b'"id":' + id, b'"params":' + self._chance.choice(RAW_VALUES), b'"jsonrpc":"2.0"']
        self._chance.shuffle(parts)
        return b'{"method":"%b",%b}' % (method.name.encode(), b",".join(parts))

    def _tokens(self) -> bytes:
        return b"".join(self._chance.choices(TOKENS, k=1 + int(self._chance.random() * 40)))

    def _noise(self) -> bytes:
        return self._chance.randbytes(int(self._chance.random() * 80))

    def _answer(self) -> bytes:
        """An answer to what nobody has asked: its id is never one that is in use."""
        id = self._chance.choice((None, 1.5, True, [], {}, "", "nobody", 10**9 + 7, 10**400, -5))
        member = self._chance.choice(("result", "error", "both", "none"))
        frame: dict[str, Json] = {"jsonrpc": "2.0", "id": id}
        if member in ("result", "both"):
            frame["result"] = self._chance.choice(self._results)
        if member in ("error", "both"):
            frame["error"] = self._chance.choice(({"code": 1}, {"code": "x", "message": 2}, None, 5, []))
        return _encoded(frame)

    def _interleaved(self) -> bytes:
        """Two frames written by two writers that did not know of each other."""
        one, other = self._changed_bytes(), self._changed_bytes()
        at = int(self._chance.random() * (len(one) + 1))
        return one[:at] + other + self._chance.choice((b"", b"\n")) + one[at:]

    def _oversized(self) -> bytes:
        method, _ = self._message()
        id = _encoded(self._tracked(method).get("id"))
        filling = self._chance.choice((b"x", b"[", rb"\"", b"\xff", b" ")) * BYTES_OVER_LIMIT
        return b'{"jsonrpc":"2.0","id":%b,"method":"%b","params":"' % (id, method.name.encode()) + filling


class Sampler:
    """Makes valid values of the schema's types, as JSON."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def value(self, kind: inspect.Type, depth: int = 0) -> Json:
        chance = self._chance
        match kind:
            case inspect.BoolType():
                return chance.random() < 0.5
            case inspect.StrType():
                return chance.choice(("a", "plain text", "é😀", "/tmp", "text/plain", "ask", "read"))
            case inspect.IntType():
                low = kind.ge if kind.ge is not None else -5
                return chance.choice((low, low + 1, min(low + 1000, kind.le or low + 1000)))
            case inspect.FloatType():
                return chance.choice((0.0, 0.5, 1e9))
            case inspect.LiteralType():
                return chance.choice(kind.values)
            case inspect.ListType():
                return [
                    self.value(kind.item_type, depth + 1)
                    for _ in range(chance.randrange(3) if depth < 6 else 0)
                ]
            case inspect.DictType():
                return {"k": self.value(kind.value_type, depth + 1)} if chance.random() < 0.5 else {}
            case inspect.UnionType():
                options = [
                    option for option in kind.types if not isinstance(option, inspect.CustomType) or depth < 6
                ]
                return self.value(chance.choice(options), depth + 1)
            case inspect.CustomType():
                structs = [each for each in kind.cls.__subclasses__() if issubclass(each, msgspec.Struct)]
                return self.value(inspect.type_info(chance.choice(structs)), depth + 1)
            case inspect.StructType():
                return self._struct(kind, depth)
        return None

    def _struct(self, kind: inspect.StructType, depth: int) -> Json:
        made: dict[str, Json] = {}
        if kind.tag_field is not None:
            made[kind.tag_field] = kind.tag
        for field in kind.fields:
            if field.required or (depth < 6 and self._chance.random() < 0.5):
                made[field.encode_name] = self.value(field.type, depth + 1)
        return made


def _copied(value: Json) -> Json:
    """A copy of the outer mapping: what is inside is never changed in place."""
    return {**value} if isinstance(value, dict) else {}


def _encoded(value: Json) -> bytes:
    try:
        return msgspec.json.encode(value)
    except OverflowError:  # it knows no numbers of more than 64 bits
        return json.dumps(value).encode()
