"""The rules, a module for each; `analysis.diagnosis.catalog` lists them."""
