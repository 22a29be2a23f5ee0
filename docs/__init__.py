"""The documentation; `python -m docs.generate` writes what of it follows from the code."""
