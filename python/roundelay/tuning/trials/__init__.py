"""`roundelay trials`: the settings that a job has tried on its own training, as a table and a picture."""
