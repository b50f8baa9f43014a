"""How fast the optimizers are, beside those of others: `python3 tasks.py bench` measures it.

| module | its question |
|---|---|
| `timing` | how two things are timed so that the noise of the machine hits both alike |
| `contestants` | what is timed: our optimizers, torch's, and those of other packages |
| `ancestor` | the half-precision Adam that this package comes from, typed anew from its formulas |
| `bars` | what has to be reached, row by row |
| `plan` | which pairs are timed, and in which order |
| `memory`, `agreement`, `compiling` | bytes of state, equality of the two paths, the first step |
| `worker` | the process that measures, one for each number of threads |
| `results` | the file that is written, with its provenance |
| `tables` | the tables that the site shows, made from that file |

Nothing here is imported by `labml_opt`.
"""
