"""What is measured of a cluster, a machine or a job, and what is chosen by that.

`file` has the tuning file's types. `cluster` measures a cluster's algorithms and links (`roundelay tune`),
`kernels` those of which a network's layers consist (`roundelay tune --layers`). `buckets` chooses the cuts of
a gradient pool by a cost model; the search in a job's own training is in `roundelay.torch`.
"""
