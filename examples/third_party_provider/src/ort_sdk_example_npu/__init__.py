"""An execution provider for a made-up device, in the size of a first one."""
