"""`coupler editor`: settings for editors, printed or written into their files.

`editor` is the command, `editor_settings` knows where editors have their settings, `jsonc` edits JSON with
comments.
"""
