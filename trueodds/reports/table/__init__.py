"""The report of a table of answers with their labels: no server, one look.

evaluation   `trueodds.report` of arrays, in a terminal and in a notebook
comparing    `trueodds.compare` of arrays: models beside each other on the same rows
matching     the same rows of several tables
answers      what a table says of each answer
classes      which class a label names, and whose probability a column is
numbers      the columns of the classes, checked by name
reading      the forms of such tables
composition  sums by class, tag, version and time, and the report of them
text         the report in a terminal
command      `trueodds report`
compare_command  `trueodds compare`
"""
