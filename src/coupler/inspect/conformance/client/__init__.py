"""What a client must do: scenarios that provoke it, beside the rules that judge it, a module a topic."""
