"""The drawings of the documentation, one module a subject; `labml_opt.figures` is their door."""
