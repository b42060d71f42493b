"""A workflow as a flowchart."""

from __future__ import annotations

import re
from pathlib import Path

from coupler.workflow.language.graph import LONGEST_LABEL, label, mermaid
from coupler.workflow.language.reader import read_text
from tables import table

EVERYTHING = Path(__file__).parent / "everything.yaml"


def drawn(text: str) -> list[str]:
    return [line.strip() for line in mermaid(read_text(text, "/w/main.yaml")).splitlines()]


def test_steps_follow_each_other_from_start_to_end():
    assert drawn("steps: [{id: a, run: make}, {id: b, agent: claude, prompt: Hello}]") == [
        "flowchart TD",
        "begin((start))",
        's1_a["<b>a</b><br/>make"]',
        's2_b("<b>b</b><br/>claude: Hello")',
        "begin --> s1_a",
        "s1_a --> s2_b",
        "s2_b --> finish",
        "finish((end))",
    ]


def test_questions_have_two_ways_on():
    lines = drawn(
        """
        steps:
          - {id: a, if: inputs, run: make, approve: {question: Sure?, on_deny: stop}}
          - {id: b, approve: Really?, on_deny: skip}
          - {id: c, run: make}
        """
    )
    assert lines[2:6] == [
        's1_a_if{"if inputs"}',
        's1_a_gate{"Sure?"}',
        's1_a["<b>a</b><br/>make"]',
        's2_b{"<b>b</b><br/>Really?"}',
    ]
    assert lines[7:-1] == [
        "begin --> s1_a_if",
        "s1_a_if -->|yes| s1_a_gate",
        "s1_a_if -->|no| s2_b",
        "s1_a_gate -->|yes| s1_a",
        "s1_a_gate -->|no: stop| finish",
        "s1_a --> s2_b",
        "s2_b -->|no| s3_c",
        "s2_b -->|yes| s3_c",
        "s3_c --> finish",
    ]


def test_gotos_lead_where_the_step_is_entered():
    lines = drawn(
        """
        steps:
          - {id: a, if: inputs, run: make}
          - {id: b, run: make, goto: {step: a, max: 3}, on_error: {exit: {goto: d}, default: continue}}
          - {id: c, stop: Done}
          - {id: d, run: make, on_error: {goto: {step: a, max: 2}}}
        """
    )
    assert "s2_b -->|goto, at most 3 times| s1_a_if" in lines
    assert "s2_b -.->|on exit| s4_d" in lines
    assert "s4_d -.->|on error, at most 2 times| s1_a_if" in lines
    assert "s3_c --> finish" in lines
    assert "s2_b --> s3_c" not in lines


def test_branches_and_loops_are_boxes_around_their_steps():
    lines = drawn(
        """
        steps:
          - id: both
            parallel: [{id: a, run: make}, [{id: b, run: make}, {id: c, stop: Done}]]
          - {id: loop, for_each: [1, 2], steps: [{id: d, run: make}]}
        hooks: {end: [{run: clean}]}
        """
    )
    assert lines[2:] == [
        'subgraph s1_both["both: parallel, wait for all"]',
        's3_a["<b>a</b><br/>make"]',
        's4_b["<b>b</b><br/>make"]',
        's5_c(("<b>c</b><br/>Done"))',
        "s4_b --> s5_c",
        "end",
        'subgraph s2_loop["loop: for each item of 2 items"]',
        's6_d["<b>d</b><br/>make"]',
        "end",
        "begin --> s1_both",
        "s1_both --> s2_loop",
        "s2_loop --> finish",
        "finish((end))",
        'subgraph hooks_end["hooks: end"]',
        's7_run_1["clean"]',
        "end",
        "finish -.-> hooks_end",
    ]


@table(
    ("text", "shown"),
    [
        ('say "hi"', "say #34;hi#34;"),
        ("<script>alert(1)</script>", "#60;script#62;alert(1)#60;/script#62;"),
        ("`markdown` & #35; {{ x }}", "#96;markdown#96; #38; #35;35; #123;#123; x #125;#125;"),
        ("one\n  two\x1b[31m\u202ethree", "one two [31m three"),
        ("a|b -->", "a#124;b --#62;"),
        ("x" * 100, "x" * (LONGEST_LABEL - 1) + "…"),
    ],
)
def test_what_an_author_wrote_stays_text(text, shown):
    assert label(text) == shown


def test_every_line_of_a_large_one_is_a_node_a_way_or_a_box():
    node = r"\w+[\[({/]+.*[\])}/]+"
    way = r"\w+ (-->|-\.->)(\|[\w ,:]+\|)? \w+"
    box = r'subgraph \w+\["[^"]*"\]|end'
    lines = drawn(EVERYTHING.read_text())[1:]
    assert [line for line in lines if not re.fullmatch(f"{node}|{way}|{box}", line)] == []
    named = {line.split()[-1] for line in lines if re.fullmatch(way, line)}
    made = {re.match(r"(subgraph )?(\w+)", line)[2] for line in lines if not re.fullmatch(way, line)}
    assert named <= made
