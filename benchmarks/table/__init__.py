"""The speed table: `python -m benchmarks.table`.

Each row of the table is a module here with two functions; rows.py lists them. `measure(run, quick)` starts
ranks and returns their measurements as JSON values. `results(found)` makes results from these, and is pure.
"""
