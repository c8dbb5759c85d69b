"""What measurements become: tables in the pages of docs, and pictures.

page.py puts Markdown between the marks of a page. picture.py has what pictures share; only what draws imports
matplotlib. table.py, averaging.py, gradientflow.py, gpu.py, papers.py and curves.py each have the tables and
pictures of one subject. bars.py and lines.py draw times for commands that make their tables themselves.
"""
