"""The report of a table of answers with their labels: no server, one look.

evaluation   `trueodds.report` of arrays, in a terminal and in a notebook
comparing    `trueodds.compare` of arrays: models beside each other on the same rows
form         what a table does not say of itself, and the arguments that say it
classes      which class a label names, and whose probability a column is
answers      what a table says of each answer
reading      the forms of such tables
matching     the same rows of several tables
acting       from which confidence on answers may act alone
report       sums by class, tag, version and time, and the report of them
text         the report in a terminal
command      `trueodds report`
compare_command  `trueodds compare`
threshold    `trueodds threshold`
"""
