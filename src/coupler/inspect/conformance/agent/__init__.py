"""What an agent must do: assertions A01–A60 and some more, a module a topic."""
