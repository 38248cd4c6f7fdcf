"""One module a command, or a part of one."""
