"""What single operators become as parts of a sequence of tasks on rows."""
