"""What the user of `roundelayrun` gives, and what is checked of it before anything starts.

`parser` reads the flags, with those of `knobs`, `unsupported_flags` and the kinds of launch, and
`config_file` a file that means the same. `settings` checks variables, and `checks` files, programs and texts.
"""
