"""Templates and expressions: what they give, and what they cannot do."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator, Mapping

import pytest

from coupler.workflow.errors import StepError, UnknownNameError
from coupler.workflow.expressions.expression import Expressions, expression_problem, problem_in
from tables import table

NAMES: Mapping[str, object] = {
    "inputs": {"target": "main", "rounds": 2, "items": ["x", "y"], "empty": None, "flag": True, "ratio": 1.5},
    "steps": {
        "diff": {"stdout": "one\ntwo\n", "exit_code": 0, "error": None},
        "fixes": {"results": [{"fix": {"text": "a"}}, {"fix": {"text": "b"}}]},
    },
    "vars": {"people": [{"name": "Zoe", "age": 3}, {"name": "adam", "age": 5}, {"name": "Bo", "age": 3}]},
}


@pytest.fixture
def expressions() -> Expressions:
    return Expressions()


@table(
    ("template", "value"),
    [
        ("plain", "plain"),
        ("{{ inputs.rounds }}", 2),
        ("{{ inputs.rounds }}\n", 2),
        ("{{ inputs.rounds }} ", "2 "),
        ("{{ inputs.flag }}", True),
        ("{{ inputs.empty }}", None),
        ("{{ inputs.items }}", ["x", "y"]),
        ("{{ inputs['items'][0] }}", "x"),
        ("{{ inputs.items }} {{ inputs.flag }} {{ inputs.ratio }}", '["x", "y"] true 1.5'),
        ("{{ inputs.items.count('x') }}", 1),
        ("{{ steps.diff.keys() | list }}", ["stdout", "exit_code", "error"]),
        ("{{ inputs.get('no', 7) }}", 7),
        ("a {{ inputs.target }} b", "a main b"),
        ("{{ steps.diff.stdout | lines }}", ["one", "two"]),
        ("{{ '' | lines }}", []),
        ("{{ 'a\\r\\n\\nb' | lines }}", ["a", "", "b"]),
        ("{{ steps.diff.stdout | trim | upper }}", "ONE\nTWO"),
        ("{{ {'b': 1, 'a': [none, 'é']} | json }}", '{"b": 1, "a": [null, "é"]}'),
        ("{{ [1] | json(indent=1) }}", "[\n 1\n]"),
        ('{{ "it\'s" | quote }}', "'it'\"'\"'s'"),
        ("{{ ['a b', 'c'] | quote }}", "'a b' c"),
        ("{{ '$x' | raw }}", "$x"),
        ("{{ steps.fixes.results | map(attribute='fix.text') | join(', ') }}", "a, b"),
        ("{{ steps.fixes.results | length }}", 2),
        ("{{ steps.fixes.results[-1].fix.text }}", "b"),
        ("{{ vars.people | sort(attribute='name') | map(attribute='name') }}", ["adam", "Bo", "Zoe"]),
        (
            "{{ vars.people | sort(attribute='age,name', reverse=true) | map(attribute='name') | first }}",
            "adam",
        ),
        ("{{ vars.people | selectattr('age', 'gt', 3) | map(attribute='name') }}", ["adam"]),
        ("{{ vars.people | rejectattr('age', 'eq', 3) | list | length }}", 1),
        ("{{ vars.people | sum(attribute='age') }}", 11),
        ("{{ [3, 1, 2] | max }} {{ [3, 1, 2] | min }}", "3 1"),
        ("{{ [1, 2, 1, '1'] | unique }}", [1, 2, "1"]),
        ("{{ range(5) | select('odd') }}", [1, 3]),
        ("{{ range(1, 4) | map('string') | join }}", "123"),
        ("{{ range(5) | batch(2) }}", [[0, 1], [2, 3], [4]]),
        ("{{ {'b': 1, 'a': 2} | dictsort }}", [["a", 2], ["b", 1]]),
        (
            "{% for age, them in vars.people | groupby('age') %}{{ age }}:{{ them | length }} {% endfor %}",
            "3:2 5:1 ",
        ),
        ("{{ 'a-b-c'.split('-', 1) }}", ["a", "b-c"]),
        ("{{ 'Hello'[1:3] }}{{ [1, 2, 3][::2] }}", "el[1, 3]"),
        ("{{ 'x' if inputs.flag else 'y' }}", "x"),
        ("{{ 7 // 2 }} {{ 7 % 4 }} {{ 2 ** 10 }} {{ 7 / 2 }} {{ -3 }}", "3 3 1024 3.5 -3"),
        ("{{ 'a' ~ 1 ~ true ~ [2] }}", "a1true[2]"),
        ("{{ 1 < 2 < 3 and 'a' in 'abc' and 4 not in [1] }}", True),
        ("{{ '%s-%03d' % ('a', 7) }} {{ '%(x).1f' | format(x=1.25) }}", "a-007 1.2"),
        ("{{ '{} {b:>3}'.format('a', b=1) }}", "a   1"),
        ("{{ 'a\\nb' | indent(2) }}", "a\n  b"),
        ("{{ 3.14159 | round(2) }} {{ '42' | int + 1 }} {{ 'x' | int(9) }}", "3.14 43 9"),
        ("{{ 'one two three' | truncate(9) }}", "one..."),
        ("{{ 'a b/ü' | urlencode }}", "a%20b/%C3%BC"),
        ("{{ inputs.no | default('none') }} {{ steps.later.stdout | default('-') }}", "none -"),
        ("{{ inputs.empty | default('none', true) }}", "none"),
        ("{{ steps.later is defined }} {{ steps.later.stdout is not defined }}", "false true"),
        ("{{ steps.diff.error.kind is defined }}", False),
        ("{{ inputs.empty is none and inputs.rounds is integer and inputs.target is string }}", True),
        ("{% if inputs.rounds > 5 %}a{% elif inputs.flag %}b{% else %}c{% endif %}", "b"),
        (
            "{% for x in inputs['items'] %}{{ loop.index }}{{ x }}{{ '' if loop.last else ',' }}{% endfor %}",
            "1x,2y",
        ),
        ("{% for x in [1, 2, 3] if x is odd %}{{ x }}{% else %}none{% endfor %}", "13"),
        ("{% for x in [] %}{{ x }}{% else %}none{% endfor %}", "none"),
        ("{% for key, value in {'a': 1} | items %}{{ key }}={{ value }}{% endfor %}", "a=1"),
        ("{% set x = 1 %}{% for y in [1] %}{% set x = 2 %}{% endfor %}{{ x }}", "1"),
        ("{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}", "3"),
        ("{% raw %}{{ no }}{% endraw %}{{ 1 }}", "{{ no }}1"),
        ("${#name} {# no comment #} {{ 1 }}", "${#name} {# no comment #} 1"),
        (
            [{"a": "{{ inputs.rounds }}", "b": ["{{ inputs.target }}!"]}, 3, None],
            [{"a": 2, "b": ["main!"]}, 3, None],
        ),
    ],
    ids=str,
)
def test_a_template_gives_its_value(template: object, value: object, expressions: Expressions) -> None:
    given = expressions.value(template, NAMES)

    assert given == value
    assert type(given) is type(value)


@table(
    ("template", "problem"),
    [
        (
            "{{ steps.dif.stdout }}",
            "`{{ steps.dif.stdout }}`: there is no `steps.dif`: did you mean `steps.diff`?",
        ),
        ("{{ step.diff }}", "there is no `step`: did you mean `steps`?"),
        ("{{ inputs.qqq }}", "there is no `inputs.qqq`: there is `target`, `rounds`"),
        ("{{ steps.diff.error.kind }}", "`steps.diff.error` is null: it has no `kind`"),
        ("{{ inputs.rounds.x }}", "`inputs.rounds` is a number: it has no `x`"),
        (
            "{{ steps.fixes.results[9].fix }}",
            "there is no `steps.fixes.results[9]`: `steps.fixes.results` has 2 items",
        ),
        ("x{{ 'a' if false }}", "the `if` has no `else`"),
        ("{{ inputs.target.__class__ }}", "`inputs.target` is a text: it has no `__class__`"),
        ("{{ vars.people | map(attribute='nam') }}", "did you mean"),
        ("{{ vars.people | map(attribute='no.name') }}", "there is no `an item.no`"),
        ("{{ vars.people | map(attribute='no.0') }}", "there is no `an item.no`"),
        ("{{ [] | first }}", "no first one"),
        ("{{ not inputs.no }}", "there is no `inputs.no`"),
        ("{{ [inputs.no] }}", "there is no `inputs.no`"),
        ("{% if inputs.no %}{% endif %}", "there is no `inputs.no`"),
    ],
)
def test_a_name_that_is_not_there_is_told_with_the_nearest(
    template: str, problem: str, expressions: Expressions
) -> None:
    with pytest.raises(UnknownNameError) as failure:
        expressions.value(template, NAMES)

    assert problem in str(failure.value)
    assert failure.value.kind == "template"


@table(
    ("template", "problem"),
    [
        ("a {{ inputs.empty }}", "`{{ inputs.empty }}`: it is null"),
        ("{{ 'a' ~ inputs.empty }}", "null"),
        ("{{ 'a' + 1 }}", "`+` does not go with a text and a number: `~` joins texts"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ inputs.target() }}", "`inputs.target` is a text, which cannot be called"),
        ("{{ inputs.target.upper }}", "`upper` is a method: call it with `upper()`"),
        ("{{ [2, 'a'] | sort }}", "not supported"),
        ("{{ 'inf' | float }}", "no number that JSON knows"),
        ("{{ 5 | join }}", "a number, which has no items"),
        ("{{ '%d' % 'x' }}", "number is required"),
        ("{{ '%s %s' % 'x' }}", "more directives than values"),
        ("{{ '{a.b}'.format(a=1) }}", "a field `a.b`"),
        ("{{ 'x'.replace() }}", "missing"),
        ("{{ (-1) ** 0.5 }}", "no value that can be kept"),
        ("{{ x y }}", "expected token"),
        ("a\n{% if %}", "in line 2"),
    ],
)
def test_what_cannot_be_evaluated_says_why(template: str, problem: str, expressions: Expressions) -> None:
    with pytest.raises(StepError) as failure:
        expressions.value(template, NAMES)

    assert problem in str(failure.value)
    assert failure.value.kind == "template"


@table(
    ("expression", "answer"),
    [
        (True, True),
        (False, False),
        ("inputs.flag", True),
        ("inputs.empty", False),
        ("steps.diff.exit_code", False),
        ("steps.diff.exit_code == 0 and 'one' in steps.diff.stdout", True),
        ("steps.later is defined", False),
        ("inputs['items']", True),
        ("'false'", True),
    ],
)
def test_an_expression_is_tested(expression: str | bool, answer: bool, expressions: Expressions) -> None:
    assert expressions.test(expression, NAMES) is answer


def test_a_bare_expression_in_braces_is_told_to_go_without(expressions: Expressions) -> None:
    with pytest.raises(StepError, match="without"):
        expressions.test("{{ inputs.flag }}", NAMES)


def test_bytes_that_are_no_text_survive(expressions: Expressions) -> None:
    names = {"x": b"a\xff\xf0".decode("utf-8", "surrogateescape")}

    assert expressions.text("<{{ x | trim }}>", names).encode("utf-8", "surrogateescape") == b"<a\xff\xf0>"
    assert expressions.value("{{ x }}", names) == names["x"]
    assert expressions.text("{{ [x] }}", names) == r'["a\udcff\udcf0"]'


def test_a_large_text_is_passed_on_and_not_copied(expressions: Expressions) -> None:
    names = {"x": {"stdout": "y" * 20_000_000}}

    assert expressions.value("{{ x.stdout }}", names) is names["x"]["stdout"]


class Lazy(Mapping[str, object]):
    """A mapping that makes its values when they are asked for, and has its own idea of what is wrong."""

    def __getitem__(self, key: str) -> object:
        if key == "never":
            raise UnknownNameError("a `run` step has no `never`")
        if key not in ("items", "keys"):
            raise KeyError(key)
        return f"the key {key}"

    def __iter__(self) -> Iterator[str]:
        return iter(("items", "keys"))

    def __len__(self) -> int:
        return 2


def test_keys_win_over_methods_also_in_mappings_of_the_caller(expressions: Expressions) -> None:
    names = {"x": Lazy()}

    assert expressions.text("{{ x.items }}, {{ x.keys }}", names) == "the key items, the key keys"
    assert expressions.value("{{ x }}", names) == {"items": "the key items", "keys": "the key keys"}
    assert expressions.text("{{ x.values() }}", names) == '["the key items", "the key keys"]'
    with pytest.raises(UnknownNameError, match=r"^a `run` step has no `never`$"):
        expressions.text("{{ x.never }}", names)


def test_what_is_given_is_never_changed(expressions: Expressions) -> None:
    names = {"x": [2, 1], "y": {"a": 1}}

    for template in ("{{ x.append(3) }}", "{{ x.sort() }}", "{{ y.update(b=1) }}", "{{ y.pop('a') }}"):
        with pytest.raises(UnknownNameError):
            expressions.value(template, names)
    expressions.value("{{ x }}", names).append(3)

    assert names == {"x": [2, 1], "y": {"a": 1}}


DEEP = "{% set a = ['x', 'x'] %}" + "{% set a = [a, a, a, a] %}" * 30

HOSTILE = [
    "{{ 'a' * 10**9 }}",
    "{{ ['a'] * 10**9 }}",
    "{{ 9**9999 }}",
    "{{ 2 ** 4000 * 2 ** 4000 * 2 ** 4000 % 7 }}",
    "{{ ('f' * 9000000) | int(base=16) % 7 }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%.999999999f' % 1 }}",
    "{{ ('%(a)s' * 1000000) % {'a': 'b' * 1000000} }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ ('{0}' * 1000000).format('b' * 1000000) }}",
    "{{ 'x' | center(10**9) }}",
    "{{ 'x'.ljust(10**9) }}",
    "{{ 'x'.zfill(10**9) }}",
    "{{ 'x' | indent(10**9) }}",
    "{{ ('\n' * 9000000) | indent(9000) }}",
    "{{ ('a' * 1000000) | replace('a', 'b' * 1000000) }}",
    "{{ ('a' * 1000000).replace('', 'b' * 1000000) }}",
    "{{ ['a' * 1000000] * 100000 | join }}",
    "{{ (['a' * 1000000] * 100000) | join }}",
    "{{ ('a' * 1000000).join('b' * 1000000) }}",
    "{{ (' ' * 10000000).split(' ') }}",
    "{{ ('\n' * 10000000) | lines }}",
    "{{ ('ab' * 5000000) | list }}",
    "{{ ('a ' * 5000000) | title }}",
    "{{ range(10**9) | list }}",
    "{{ range(100000) | map('center', 9000) | list }}",
    "{{ (range(100000) | list) | select('in', range(100000, 200000) | list) | list }}",
    "{{ [[1] * 100000] * 100000 | sum(start=[]) }}",
    "{{ 5 | round(10**9, 'floor') }}",
    "{{ 5 | round(-10**9) }}",
    "{{ [1] | batch(10**9, 0) }}",
    "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "{% for a in range(100000) %}{{ 'b' * 1000 }}{% endfor %}",
    "{% for a in range(100000) %}{% set b = 'c' * 9000000 %}{% endfor %}",
    "{% set a = 'b' * 5000000 %}{% set c = [a ~ 'x', a ~ 'y'] * 50000 %}{{ c | sort | first }}",
    "{% set a = 'b' * 9000000 %}{% for i in range(99999) %}{% if a ~ '' == a %}{% endif %}{% endfor %}",
    DEEP + "{{ a }}",
    DEEP + "{{ a | json }}",
    DEEP + "{% set b = a %}{{ a == [b] }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "{{ 1" + " + 1" * 15000 + " }}",
    "{{ [" + "1," * 400000 + "] }}",
    "{{ 1 }}" * 200000,
    # Python looks for these letter by letter.
    *(
        "{{ ('a' * 5000000)." + name + "('ab' ~ 'a' * 1000000) }}"
        for name in ("rfind", "rindex", "rpartition", "rsplit")
    ),
    *("{{ ('a' * 5000000)." + name + "('b' * 4000000 ~ 'a') }}" for name in ("strip", "lstrip", "rstrip")),
    "{{ ('a' * 5000000) | trim('b' * 4000000 ~ 'a') }}",
    "{{ ('%%' * 5000000) % [] }}",
    "{{ ('{{' * 5000000).format() }}",
    "{{ [{}] | map(attribute='.' * 9000000) }}",
    "{{ [{}] | sort(attribute=',' * 9000000) }}",
    "{{ ('f' * 9000000) | int(base=16) }}",
    "{{ range(10**1200, 10**1200 + 90000) | list }}",
    "{% set a = range(100000) | list %}" + "{% set a = [a] %}" * 400 + "{{ a | json(8) }}",
    "{{ [2 ** 4000] * 500000 }}",
    "{{ ('\\x00' * 10000000) | json }}",
    "{% set a = range(100000) | map('string') | list %}{{ (a + a + a + a) | map('list') | json(8) }}",
    "{{ " + "9" * 1000000 + " }}",
    "{{ 0x" + "f" * 1000000 + " }}",
    "{{ 1" + "_1" * 500000 + " }}",
    "{{ '" + "\\n" * 500000 + " }}",
    "{{ " + "a" * 1000000 + " }}",
    "{{ '" + "a" * 2000000 + "' }}",
]


@pytest.mark.long
@table("template", HOSTILE, ids=lambda template: template[:60])
def test_a_hostile_expression_ends_soon_and_in_little_memory(template: str, expressions: Expressions) -> None:
    begun = time.thread_time()
    with pytest.raises(StepError) as failure:
        expressions.value(template, {})
    took = time.thread_time() - begun
    most = most_memory_of(template, expressions)

    assert failure.value.kind == "template"
    assert len(str(failure.value)) < 1000
    assert took < 1
    assert most < 100_000_000


def most_memory_of(template: str, expressions: Expressions) -> int:
    """In bytes, of a second evaluation: tracing takes more time than what it traces."""
    tracemalloc.start()
    try:
        with pytest.raises(StepError):
            expressions.value(template, {})
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@table(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''['__class__'] }}",
        "{{ inputs.__init__.__globals__ }}",
        "{{ range.__self__ }}",
        "{{ self.__dict__ }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ lipsum() }}",
        "{{ namespace(a=1) }}",
        "{{ dict(a=1) }}",
        "{{ joiner() }}",
        "{{ inputs | attr('__class__') }}",
        "{{ [''] | map(attribute='__class__') }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ 'x'.encode() }}",
        "{{ 'x'.translate({}) }}",
        "{% for x in [1] %}{{ loop.__class__ }}{% endfor %}",
        "{% include 'x' %}",
        "{% import 'x' as x %}",
        "{% extends 'x' %}",
        "{% block x %}{% endblock %}",
        "{% macro m() %}{% endmacro %}",
        "{% filter upper %}{% endfilter %}",
        "{% set x %}{% endset %}",
        "{% for x in [] recursive %}{% endfor %}",
        "{{ range(*[1]) }}",
    ],
)
def test_there_is_no_way_out_of_the_language(template: str, expressions: Expressions) -> None:
    with pytest.raises(StepError) as failure:
        expressions.text(template, {"inputs": {}})

    assert failure.value.kind == "template"


@table(
    ("template", "problem"),
    [
        ("all is {{ well }}", None),
        ("{{ a }}\n\n{{ b c }}", ("expected token 'end of print statement', got 'c'", 3)),
        ("{{ a | joi }}", ("there is no filter `joi`: did you mean `join`?", 1)),
        (
            "{% if false %}{{ a is defind }}{% endif %}",
            ("there is no test `defind`: did you mean `defined`?", 1),
        ),
        (
            "docker -f '{{.State}}'",
            ("unexpected '.'; text that is no template stands between `{% raw %}` and `{% endraw %}`", 1),
        ),
    ],
)
def test_what_is_wrong_with_a_template_is_found_before_it_is_rendered(
    template: str, problem: tuple[str, int] | None
) -> None:
    assert problem_in(template) == problem


def test_what_is_wrong_with_an_expression_is_found_as_well() -> None:
    assert expression_problem("a.b > 1") is None
    assert expression_problem("a b") == ("the expression ends before `b`", 1)
    assert expression_problem("a ==\n" + "9" * 5000) == (
        "a number has more than 4,096 bits: calculate with smaller ones",
        2,
    )
    assert expression_problem("{{ a }}") == ("an expression stands here: write it without `{{` and `}}`", 1)
    braces = "an expression stands here: write it without `${{` and `}}`"
    assert expression_problem("${{ a }}") == (braces, 1)
    assert expression_problem("a\n  and (") == ("unexpected 'end of template'", 2)


@table(
    ("expression", "advice"),
    [
        ("a && b", "write `and`, not `&&`"),
        ("a || b", "write `or`, not `||`"),
        ("!a", "write `not`, not `!`"),
        ("a = b", "write `==` to compare two values"),
        ("a === b", "write `==` to compare two values"),
        ("a ? b : c", "write `a if condition else b`, not `condition ? a : b`"),
        ("a == 'b", "a quote is opened and not closed: write the same quote at the end of the text"),
        ('a == "b', "a quote is opened and not closed: write the same quote at the end of the text"),
    ],
)
def test_a_sign_of_another_language_leads_to_the_word_that_is_meant(expression: str, advice: str) -> None:
    assert expression_problem(expression) == (advice, 1)
    assert problem_in(f"{{{{ {expression} }}}}") == (advice, 1)
