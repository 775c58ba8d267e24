"""Data from files, tables and collections that do not fit in memory.

| to change | look in |
| --- | --- |
| which names of files are tables | names.py |
| how files are read | reading.py |
| the target, the task, and which columns can be used | tabular.py, unusable.py |
| columns of a table as numbers | encoding.py |
| what an estimator accepts as rows, and how it is checked | rows.py |
| rows in blocks, from files and collections | streams.py |
| tables that are written | writing.py |
"""
