"""Expressions and templates: Jinja2's language, evaluated with every operation bounded.

A text and the names of a run come in, and a text or a value goes out. `template` parses with Jinja2 and
refuses what the language leaves out, `evaluation` goes through the parsed nodes with `operations` and
`filters`, and `values` has the limits and the conversion to text and JSON. `expression` is the interface
for the engine, and finds the names that a template uses.
"""
