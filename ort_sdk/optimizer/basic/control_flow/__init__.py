"""Control flow: constant branches, and what does not change in loops."""
