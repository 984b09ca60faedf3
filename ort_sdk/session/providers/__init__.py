"""The providers of one session, and their devices' memory."""
