"""The report of a table of answers with their labels, without a service and at one look.

- evaluation: `trueodds.report` of arrays, in a terminal and in a notebook
- comparing: `trueodds.compare` of arrays: several models on the same rows
- form: facts about a table that its file does not state
- classes: the classes of labels and of columns
- answers: the content of a table as answers
- reading: the file formats of tables
- matching: the common rows of several tables
- acting: the confidence from which on answers may act alone
- report: sums by class, tag, version and time, and their report
- text: the report in a terminal
"""
