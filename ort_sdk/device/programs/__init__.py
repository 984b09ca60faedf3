"""Programs on devices: launches that are captured, their workspace, and traces of several steps."""
