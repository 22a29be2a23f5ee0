"""Makes the committed captures, vectors and documents. Users import nothing from it.

record                  records captures and their truth: `python -m tools.record`
generate_docs           writes the generated pages of docs/: `python -m tools.generate_docs`
shown_output            runs the commands whose output documents show
"""
