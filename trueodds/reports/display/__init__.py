"""Forms of a report outside Python, for reports of arrays and of a service alike.

- figure_table: the numbers as a table
- notebook: the table and the diagram as HTML for a notebook
- report_files: files and matplotlib axes
- live: the report that a client reads from a service
"""
