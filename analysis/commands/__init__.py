"""The commands: a module each, in which `command` is what click runs."""
