"""The commands: one module each, composing the layers below. Nothing heavy is imported at module level."""
