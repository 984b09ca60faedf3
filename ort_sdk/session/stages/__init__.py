"""The steps between a model file and a session that is ready to run; ``session.build`` knows their order."""
