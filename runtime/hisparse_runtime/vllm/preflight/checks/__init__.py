"""One file for a kind of check: pure functions of the plan and the facts. They look at nothing themselves."""
