"""What is measured of a cluster, a machine or a job, and what is chosen by that.

`file` has the tuning file's types. `cluster` measures a cluster's algorithms and links (`roundelay tune`),
`kernels` those of which a network's layers consist (`roundelay tune --layers`). `buckets` chooses the cuts of
a gradient pool by a cost model. `trials` shows what jobs have tried on their own training (`roundelay
trials`); the search in such a job is in `roundelay.torch`.
"""
