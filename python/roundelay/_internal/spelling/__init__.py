"""The one spelling of strategies: their texts' form, their names and parameters, and what each loses.

It loads neither torch nor the core, so that `roundelay plan` reads the same texts.
"""
