"""Fields: declared once on annotated structs, read from files, shown in forms, and checked.

`nodes` is a file's content with the line and column of every value, `shapes` are the kinds of values, and
`tables` makes the keys of a mapping of an annotated struct: reading it, its JSON Schema and its table in the
manual. `json_types` makes the JSON Schema of a Python type, such as a
function's parameters, and reads values of it. Forms are described by a JSON Schema or by a Python type:
`type_forms` and `schema_forms` read the fields; `form_fields` describes each to clients as ACP's elicitation
wants it, and checks what comes back; `bounded_regex` matches patterns of unknown origin in bounded time.
"""

from __future__ import annotations


def readable(id: str) -> str:
    """The id as a name for people: "accept_edits" is "Accept edits".

    An id with a digit, a colon or a slash, such as "gpt-4o" or "ollama:qwen-coder", is mostly a name already
    and stays as it is.
    """
    words = id.replace("_", " ").replace("-", " ").split()
    if not words or any(character.isdigit() or character in ":/" for character in id):
        return id
    text = " ".join(words)
    return text[0].upper() + text[1:]
