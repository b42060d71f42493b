"""The coder's own tools, beside those of the editor.

`shell` runs commands, with `background_jobs` for those that outlive their turn and `sandbox` around all of
them; `web` fetches pages, which `page_text` makes text of; `questions` asks the user; `outputs` keeps results
that are too long for the model.
"""
