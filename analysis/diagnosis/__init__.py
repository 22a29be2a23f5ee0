"""Diagnosis: findings about a capture, the worst first.

A finding is a sentence with its evidence, the likely cause, a change that helps, and the command
that shows more. A rule is one module of `analysis.diagnosis.rules`: a question, the answers that it
rests on, and its thresholds, each with its reason. `RULES` has all of them.

A rule reports what the capture shows, and nothing else. Thresholds include the smallest sample:
below it, a rule has no finding. `coverage` reports what the capture cannot show.

rule    the declaration of a rule, and a finding
case    answers and queries on one capture, each computed once
rules   the rules
causes  causes that rules look for, with their evidence and advice
catalog the rules by name, and their thresholds
run     `diagnose`: from tables to a DataFrame
time    where the time of each client went
words   parts of findings
"""
