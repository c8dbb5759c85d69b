"""`roundelay trials`: what a job has tried on its own training, as a table and a picture."""
