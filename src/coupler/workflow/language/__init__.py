"""The workflow language: files are found, read with lines and columns, and turned into the model.

A file comes in, and a `Workflow` of `model` goes out, or all its problems at once. `library` finds files,
what they call, and whether they are trusted. `yaml_source` parses YAML with positions, `reader` reads it into
the structs of `model`, whose fields are the keys and have the shapes in `shapes`, and `error_recovery`
removes faulty parts so that the rest can be checked. `inputs` parses the inputs of a run; `json_schema` and
`graph` describe the language and a workflow.
"""
