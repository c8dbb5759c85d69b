"""The speed table: `python -m benchmarks.table`.

A row of the table is a module here with two functions, listed in rows.py. `measure(run, quick)` starts ranks
and returns what they found, as JSON can hold it. `results(found)` makes results of that, and is pure.
"""
