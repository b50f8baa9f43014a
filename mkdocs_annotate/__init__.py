"""Commented Python as annotated pages: prose and equations beside the lines of code that carry them out."""
